//! Singleton leases in a SQL Server table.
//!
//! [`MssqlLeaseStore`] is a [`LeaseStore`](lease_core::LeaseStore) at the full contract, S1 to S14, on SQL Server 2017 and later, Azure SQL, and
//! Babelfish. Why its statements are right is told in [`locking`]. The executor that runs a job under a lease is in [`lease_core`], which this crate re-exports, so that a service names one
//! dependency.

mod admin;
mod config;
mod connection;
mod error;
mod fence;
mod link;
pub mod locking;
mod migrate;
mod server;
mod sql;
mod store;

pub use config::{Encrypt, MssqlConfig};
pub use lease_core;
pub use store::MssqlLeaseStore;
pub use tiberius;
