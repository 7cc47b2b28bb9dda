//! The suite on the memory store of `lease-core`, plain and as `Arc<dyn LeaseStore>`: the worked example of a harness.

use std::{collections::BTreeSet, env, process::Command, time::Duration};

use lease_conformance::{CASES, Case, Dyn, Harness, cases, run, suite};
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

/// A case whose hook is missing is a test that is seen to be ignored; all others run.
#[test]
fn cases_without_their_hook_are_ignored() {
    let needs_a_missing_hook =
        |case: &Case| case.hooks.iter().any(|hook| ["row", "drop_table", "lock_row", "stall"].contains(hook));
    for suite in ["conformance", "conformance_dyn"] {
        let path = |case: &Case| format!("{suite}::{}::{}", case.theme, case.name);
        let ignored: BTreeSet<String> = CASES.iter().filter(|case| needs_a_missing_hook(case)).map(path).collect();
        assert_eq!(listed(suite, &["--ignored"]), ignored);
        assert_eq!(listed(suite, &[]), CASES.iter().map(path).collect());
    }
}

/// A hook that is neither written nor named as missing fails its cases, and does not pass them in silence.
#[test]
#[should_panic(expected = "this harness has no hook `row`")]
fn case_whose_hook_was_forgotten_fails() {
    run::<MemoryHarness>(|harness| Box::pin(cases::acquire::refusal_writes_nothing(harness)));
}

/// The tests of one suite in this program, as `cargo test -- --list` shows them.
fn listed(suite: &str, options: &[&str]) -> BTreeSet<String> {
    let program = env::current_exe().expect("this program");
    let output = Command::new(program).args(["--list", "--format=terse"]).args(options).output().expect("the list");
    let list = String::from_utf8(output.stdout).expect("the names are text");
    let names = list.lines().filter_map(|line| line.strip_suffix(": test"));
    names.filter(|name| name.starts_with(&format!("{suite}::"))).map(ToOwned::to_owned).collect()
}
