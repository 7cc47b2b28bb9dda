//! Singleton leases in a SQLite file, for the processes of one host.
//!
//! [`SqliteLeaseStore`] is a [`LeaseStore`](lease_core::LeaseStore) at the full contract, S1 to S14. The executor that runs a job
//! under a lease is in [`lease_core`], which this crate re-exports, so that a service names one dependency.
//!
//! # Quick start
//!
//! ```
//! # use lease_sqlite::lease_core::FencingToken;
//! # async fn write_page(page: u32, token: Option<FencingToken>) { assert!(page > 0 && token.is_some()); }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let url = format!("sqlite:{}", directory.path().join("leases.db").display());
//! use lease_sqlite::{
//!     SqliteLeaseStore,
//!     lease_core::{SingletonExecutor, SingletonOptions},
//! };
//!
//! // `url` is, for example, "sqlite:/var/lib/app/leases.db".
//! let store = SqliteLeaseStore::connect(url).await?;
//! store.migrate().await?; // does nothing when the table is there
//!
//! let executor = SingletonExecutor::new(store, SingletonOptions::enabled())?;
//! let report = executor.job("nightly-report")?;
//!
//! // Runs here once this instance wins the lease, and until then waits for its turn.
//! report
//!     .run(|lease| async move {
//!         for page in 1..=3 {
//!             if !lease.is_held() {
//!                 break; // told to stop
//!             }
//!             write_page(page, lease.token()).await;
//!         }
//!     })
//!     .await?;
//!
//! executor.shutdown().await; // stops what runs, waits for it, releases its leases
//! # Ok(())
//! # }
//! ```

mod admin;
mod claim;
mod clock;
mod config;
mod connection;
mod error;
mod fence;
mod file;
mod migrate;
mod session;
mod sql;
mod store;
mod worker;

pub use config::SqliteConfig;
pub use lease_core;
pub use rusqlite;
pub use store::SqliteLeaseStore;
