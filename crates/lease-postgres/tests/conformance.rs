//! The suite on PostgreSQL, each case on a schema of its own, plain and as `Arc<dyn LeaseStore>`.
#![expect(clippy::unwrap_used, reason = "a harness that does not work must fail its test")]

use lease_conformance::{Dyn, suite};

use crate::harness::PostgresHarness;

#[path = "support/harness.rs"]
mod harness;
#[path = "support/server.rs"]
mod server;

#[cfg(not(lease_no_postgres))]
suite! {
    conformance: PostgresHarness,
    conformance_dyn: Dyn<PostgresHarness>,
}

#[cfg(lease_no_postgres)]
suite! {
    conformance: PostgresHarness,
    conformance_dyn: Dyn<PostgresHarness>;
    without { server: "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`" }
}
