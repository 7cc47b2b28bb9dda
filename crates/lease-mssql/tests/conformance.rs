//! The suite on SQL Server, each case on a database of its own, plain and as `Arc<dyn LeaseStore>`.
#![expect(clippy::unwrap_used, reason = "a harness that does not work must fail its test")]

use lease_conformance::{Dyn, suite};

use crate::harness::MssqlHarness;

#[path = "support/harness.rs"]
mod harness;
#[path = "support/server.rs"]
mod server;

#[cfg(not(lease_no_mssql))]
suite! {
    conformance: MssqlHarness,
    conformance_dyn: Dyn<MssqlHarness>;
    without { wakes: "SQL Server tells nobody that a row has changed" }
}

#[cfg(lease_no_mssql)]
suite! {
    conformance: MssqlHarness,
    conformance_dyn: Dyn<MssqlHarness>;
    without { server: "no SQL Server: `LEASE_MSSQL_URL=mssql://USER:PASSWORD@HOST/DATABASE cargo xtask test`" }
}
