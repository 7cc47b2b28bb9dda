//! The executor on a real PostgreSQL: silent networks, frozen, killed and busy processes, a thousand leases.
#![expect(clippy::unwrap_used, reason = "the helpers of a test fail as loudly as the test")]

#[path = "../support/server.rs"]
mod server;

mod beats;
mod children;
mod opening;
mod processes;
mod silence;
mod steps;
mod support;
