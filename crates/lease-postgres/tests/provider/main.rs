//! What only PostgreSQL does: its locks, its log of writes, its sessions and roles, and the network in between.
#![expect(clippy::unwrap_used, reason = "the helpers of a test fail as loudly as the test")]

#[path = "../support/server.rs"]
mod server;

mod budget;
mod dropped;
mod fence;
mod ledger;
mod locks;
mod network;
mod schema;
mod sessions;
mod support;
mod tls;
mod wakes;
