//! Singleton leases in a SQL Server table.
//!
//! The executor that runs a job under a lease is in [`lease_core`], which this crate re-exports, so that a service names one
//! dependency.

mod admin;
mod config;
mod connection;
mod error;
mod fence;
mod link;
mod migrate;
mod server;
mod sql;
mod store;

pub use config::{Encrypt, MssqlConfig};
pub use lease_core;
pub use store::MssqlLeaseStore;
pub use tiberius;
