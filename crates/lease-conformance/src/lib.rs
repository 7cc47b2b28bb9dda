//! One behavioural suite for every lease store.
//!
//! The rules S1 to S14 of [`lease_core::LeaseStore`] as tests, for the providers of this project and for a store of your own.
//!
//! # How to run it for your own backend
//!
//! 1. Depend on this crate, in `[dev-dependencies]` only.
//! 2. Write a [`Harness`]: how to make a fresh table, how to open a store on it, how to make a lease run out. Write the hooks that
//!    your database allows: a foreign lock on a row, a deleted row, a network that swallows packets.
//! 3. Say [`suite!`] in `tests/conformance.rs`, once for the store and once for the store behind `Arc<dyn LeaseStore>`. Name the
//!    hooks that your database cannot have, each with the reason.
//! 4. Say [`history::Plan`] in another test: it runs many operations from several processes and checks what they saw.
//!
//! Here is the whole of steps 2 and 3 for the memory store of `lease-core`:
//!
//! ```
//! use std::time::Duration;
//! use lease_conformance::{Dyn, Harness, suite};
//! use lease_core::{
//!     ForceRelease, ForcedRelease, LeaseAdmin, LeaseName, MemoryLeaseStore, StoreError, async_trait,
//! };
//!
//! struct MemoryHarness(MemoryLeaseStore);
//!
//! #[async_trait]
//! impl Harness for MemoryHarness {
//!     type Store = MemoryLeaseStore;
//!
//!     async fn start() -> Self {
//!         Self(MemoryLeaseStore::new())
//!     }
//!
//!     async fn store(&self) -> MemoryLeaseStore {
//!         self.0.clone()
//!     }
//!
//!     async fn expire(&self, name: &LeaseName) {
//!         self.0.expire(name);
//!     }
//!
//!     fn precision(&self) -> Duration {
//!         Duration::from_millis(1)
//!     }
//!
//!     async fn delete_row(&self, name: &LeaseName) {
//!         self.0.delete(name);
//!     }
//!
//!     async fn force_release(&self, name: &LeaseName, mode: ForceRelease) -> Result<Option<ForcedRelease>, StoreError> {
//!         self.0.force_release(name, mode).await
//!     }
//!
//!     async fn request_hand_over(&self, name: &LeaseName) {
//!         self.0.request_release(name);
//!     }
//! }
//!
//! suite! {
//!     conformance: MemoryHarness,
//!     conformance_dyn: Dyn<MemoryHarness>;
//!     without {
//!         row: "the memory store shows its rows to nobody",
//!         drop_table: "the memory store has no table to drop",
//!         lock_row: "the memory store has no foreign transactions",
//!         stall: "the memory store answers from this process",
//!     }
//! }
//! # fn main() {}
//! ```
//!
//! Each case becomes one test whose path is the sentence that it shows, such as `conformance::acquire::held_name_is_refused`; its
//! documentation, in [`cases`], starts with its rule's number. A case that needs a hook that is missing is shown as ignored. A case
//! that hangs fails.
//!
//! The suite tests itself: `tests/broken` has some seventy stores that each break one rule. Every case catches one that breaks the
//! case's own rule, and every one is caught.

pub mod cases;
#[cfg(feature = "servers")]
pub mod faults;
pub mod forwarding;
mod harness;
pub mod history;
mod kit;
mod list;
pub mod poll;
mod report;
#[cfg(feature = "servers")]
pub mod servers;
mod suite;

pub use harness::{Dyn, Harness, Row, Undo};
pub use list::{CASES, Case, CaseFuture, Runner, run, runners};
pub use report::report;
