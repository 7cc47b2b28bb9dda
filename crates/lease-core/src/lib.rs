//! The contract of a singleton lease store, and the executor that runs a job on exactly one instance.
//!
//! Start with [`LeaseStore`]: its documentation holds the rules S1 to S14 that every provider obeys. A service names one
//! provider crate (`lease-sqlite`, `lease-postgres`, ..), which re-exports this one.

mod admin;
pub mod clock;
mod duration;
mod error;
mod executor;
mod fence;
mod lease;
mod memory;
mod name;
mod store;
mod telemetry;

pub use admin::{ForceRelease, ForcedRelease, LeaseAdmin};
pub use async_trait::async_trait;
pub use duration::{DurationError, LeaseDuration};
pub use error::{ErrorKind, Operation, StoreError};
pub use executor::{
    AcquireError, Health, HeldLease, Job, Leadership, LeaseGuard, Misfire, NotHeld, OnOverrun, OptionsError, Role,
    RunError, ShutdownReport, SingletonExecutor, SingletonOptions, Status, Step, StopReason, TryRun,
};
pub use fence::{AsTerm, FenceError, FenceReason};
pub use lease::{Acquisition, FencingToken, Holder, LossReason, Renewal, Term};
pub use memory::MemoryLeaseStore;
pub use name::{LeaseName, NameError, NameRule, OwnerId};
pub use store::{LeaseStore, Wakeup};
