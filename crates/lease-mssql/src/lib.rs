//! Singleton leases in a SQL Server table.
//!
//! The executor that runs a job under a lease is in [`lease_core`], which this crate re-exports, so that a service names one
//! dependency.

mod config;
mod connection;
mod error;
mod link;
mod sql;

pub use config::{Encrypt, MssqlConfig};
pub use lease_core;
pub use tiberius;
