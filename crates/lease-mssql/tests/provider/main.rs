//! What only SQL Server does.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

#[path = "../support/server.rs"]
mod server;

mod connections;
mod durations;
mod fence;
mod locks;
mod race;
mod real_server;
mod schema;
mod support;
