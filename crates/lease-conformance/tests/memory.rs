//! The suite on the memory store of `lease-core`, plain and as `Arc<dyn LeaseStore>`: the worked example of a harness.

use std::time::Duration;

use lease_conformance::{Dyn, Harness, suite};
use lease_core::{ForceRelease, ForcedRelease, LeaseAdmin, LeaseName, MemoryLeaseStore, StoreError, async_trait};
use tokio::runtime::{Builder, Runtime};

suite! {
    conformance: MemoryHarness,
    conformance_dyn: Dyn<MemoryHarness>;
    without {
        row: "the memory store shows its rows to nobody",
        drop_table: "the memory store has no table to drop",
        lock_row: "the memory store has no foreign transactions",
        stall: "the memory store answers from this process",
    }
}

#[derive(Debug)]
struct MemoryHarness(MemoryLeaseStore);

#[async_trait]
impl Harness for MemoryHarness {
    type Store = MemoryLeaseStore;

    async fn start() -> Self {
        Self(MemoryLeaseStore::new())
    }

    async fn store(&self) -> MemoryLeaseStore {
        self.0.clone()
    }

    async fn expire(&self, name: &LeaseName) {
        self.0.expire(name);
    }

    fn precision(&self) -> Duration {
        // The store counts microseconds, and tokio's timers wake at whole milliseconds.
        Duration::from_millis(1)
    }

    /// The store obeys tokio's clock, so that no case has to wait.
    fn runtime() -> Runtime {
        Builder::new_current_thread().enable_all().start_paused(true).build().expect("the runtime starts")
    }

    async fn delete_row(&self, name: &LeaseName) {
        self.0.delete(name);
    }

    async fn force_release(&self, name: &LeaseName, mode: ForceRelease) -> Result<Option<ForcedRelease>, StoreError> {
        self.0.force_release(name, mode).await
    }

    async fn request_hand_over(&self, name: &LeaseName) {
        self.0.request_release(name);
    }
}
