//! The suite on PostgreSQL, each case on a schema of its own, plain and as `Arc<dyn LeaseStore>`.
#![expect(clippy::unwrap_used, reason = "a harness that does not work must fail its test")]

use lease_conformance::{Dyn, suite};

use crate::harness::PostgresHarness;

#[path = "support/harness.rs"]
mod harness;
#[expect(dead_code, reason = "the provider tests count round trips too")]
#[path = "support/proxy.rs"]
mod proxy;
#[expect(dead_code, reason = "the provider tests stop servers too")]
#[path = "support/server.rs"]
mod server;

suite! {
    conformance: PostgresHarness,
    conformance_dyn: Dyn<PostgresHarness>,
}
