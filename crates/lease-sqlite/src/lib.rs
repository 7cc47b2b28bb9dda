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
//!
//! # Fenced transactions
//!
//! A job that stalls past its lease does not know that another instance has it. A transaction on the store's own file knows: it
//! commits only in the term of its lease.
//!
//! ```
//! use lease_sqlite::{
//!     SqliteLeaseStore,
//!     lease_core::HeldLease,
//!     rusqlite::{Connection, TransactionBehavior},
//! };
//!
//! type Failure = Box<dyn std::error::Error + Send + Sync>;
//!
//! // Blocks, so that a job calls it within `tokio::task::spawn_blocking`.
//! fn pay(store: &SqliteLeaseStore, connection: &mut Connection, lease: &HeldLease) -> Result<(), Failure> {
//!     let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
//!     transaction.execute("INSERT INTO ledger (entry) VALUES ('paid')", [])?;
//!     Ok(store.commit(transaction, lease)?) // or rolls back, and says why
//! }
//! #
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # use lease_sqlite::{SqliteConfig, lease_core::{SingletonExecutor, SingletonOptions, TryRun}};
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("leases.db");
//! # let store = SqliteLeaseStore::connect(SqliteConfig::new(&path)).await?;
//! # store.migrate().await?;
//! # let mut connection = Connection::open(&path)?;
//! # connection.execute_batch("CREATE TABLE ledger (entry TEXT)")?;
//! # let executor = SingletonExecutor::new(store.clone(), SingletonOptions::enabled())?;
//! # let job = executor.job("payments")?;
//! # let paid = job.try_run(|lease| async move {
//! #     tokio::task::spawn_blocking(move || pay(&store, &mut connection, &lease)).await
//! # });
//! # assert!(matches!(paid.await?, TryRun::Ran(Ok(Ok(())))));
//! # executor.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! SQLite has one writer at a time, so a fenced transaction keeps the others waiting, the renewals of its own lease among them: keep
//! it short. See [`verify`](SqliteLeaseStore::verify) and [`commit`](SqliteLeaseStore::commit).

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
