//! Singleton leases in a PostgreSQL table.
//!
//! [`PostgresLeaseStore`] is a [`LeaseStore`](lease_core::LeaseStore) at the full contract, S1 to S14, on PostgreSQL 12 and later. The
//! executor that runs a job under a lease is in [`lease_core`], which this crate re-exports, so that a service names one dependency.

mod admin;
mod config;
mod connection;
mod error;
mod fence;
mod link;
mod listener;
mod migrate;
mod pool_store;
mod sql;
mod store;
mod tls;

pub use config::PostgresConfig;
pub use deadpool_postgres;
pub use fence::OpenTransaction;
pub use lease_core;
pub use pool_store::PoolStore;
pub use store::PostgresLeaseStore;
pub use tls::SslMode;
pub use tokio_postgres;
