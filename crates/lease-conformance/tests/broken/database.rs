//! A database in memory with everything that a case may ask of one, and the harness over it.

use std::{
    cell::Cell,
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::Duration,
};

use lease_conformance::{Harness, Row, Undo};
use lease_core::{ForceRelease, ForcedRelease, LeaseAdmin, LeaseName, StoreError, async_trait, clock::LocalInstant};
use tokio::{
    runtime::{Builder, Runtime},
    sync::Notify,
};

use crate::{
    fault::Fault,
    store::{OPERATION_TIMEOUT, Store},
};

thread_local! {
    /// What is wrong with the stores of the next harness on this thread.
    pub(crate) static FAULT: Cell<Option<Fault>> = const { Cell::new(None) };
}

/// The rows, and who disturbs them.
#[derive(Debug)]
pub(crate) struct Database {
    state: Mutex<State>,
    /// A lock or a stall has ended.
    pub(crate) lifted: Notify,
    /// A lease was released.
    pub(crate) freed: Arc<Notify>,
    origin: LocalInstant,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) rows: HashMap<String, Row>,
    pub(crate) locked: HashSet<String>,
    pub(crate) stalled: bool,
    /// There is no table.
    pub(crate) is_missing: bool,
    /// How often the table was made.
    pub(crate) generation: u32,
}

impl Database {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            lifted: Notify::new(),
            freed: Arc::default(),
            origin: LocalInstant::now(),
        })
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The database's clock in Unix microseconds. It has nothing to do with the time of day of the machine that runs the tests.
    pub(crate) fn now(&self) -> i64 {
        let elapsed = LocalInstant::now().saturating_duration_since(self.origin);
        2_000_000_000_000_000 + i64::try_from(elapsed.as_micros()).expect("a test is short")
    }

    /// Waits until `disturbed` is over.
    pub(crate) async fn until_not(&self, disturbed: impl Fn(&State) -> bool) {
        loop {
            let lifted = self.lifted.notified();
            if !disturbed(&self.state()) {
                return;
            }
            lifted.await;
        }
    }

    fn lift(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.lifted.notify_waiters();
    }
}

/// A harness whose stores have the fault of this thread, or none.
#[derive(Debug)]
pub(crate) struct Broken {
    database: Arc<Database>,
    fault: Option<Fault>,
    replicas: AtomicI64,
}

#[async_trait]
impl Harness for Broken {
    type Store = Store;

    async fn start() -> Self {
        Self { database: Database::new(), fault: FAULT.get(), replicas: AtomicI64::new(0) }
    }

    async fn store(&self) -> Store {
        let replica = self.replicas.fetch_add(1, Relaxed);
        let private = self.fault == Some(Fault::KeepsRowsForItself) && replica > 0;
        let database = if private { Database::new() } else { Arc::clone(&self.database) };
        Store::new(database, self.fault, replica)
    }

    async fn expire(&self, name: &LeaseName) {
        let now = self.database.now();
        self.change(name, |row| row.expires_at = row.expires_at.min(now));
    }

    fn precision(&self) -> Duration {
        Duration::from_millis(1)
    }

    fn runtime() -> Runtime {
        Builder::new_current_thread().enable_all().start_paused(true).build().expect("the runtime starts")
    }

    fn operation_timeout(&self) -> Duration {
        OPERATION_TIMEOUT
    }

    async fn row(&self, name: &LeaseName) -> Option<Row> {
        self.database.state().rows.get(name.as_str()).cloned()
    }

    async fn set_row(&self, name: &LeaseName, row: Row) {
        self.change(name, |old| *old = row);
    }

    async fn clock(&self) -> i64 {
        self.database.now()
    }

    async fn delete_row(&self, name: &LeaseName) {
        self.database.state().rows.remove(name.as_str());
    }

    async fn force_release(&self, name: &LeaseName, mode: ForceRelease) -> Result<Option<ForcedRelease>, StoreError> {
        self.store().await.force_release(name, mode).await
    }

    async fn request_hand_over(&self, name: &LeaseName) {
        let now = self.database.now();
        self.change(name, |row| row.hand_over_at = Some(now));
    }

    async fn drop_table(&self) -> Undo {
        // A database's clock does not stand still meanwhile, which S6 counts on.
        self.elapse(Duration::from_millis(2)).await;
        let database = Arc::clone(&self.database);
        {
            let mut state = database.state();
            state.rows.clear();
            state.generation += 1;
            state.is_missing = true;
        }
        Undo::new(async move { database.state().is_missing = false })
    }

    async fn lock_row(&self, name: &LeaseName) -> Undo {
        let (database, name) = (Arc::clone(&self.database), name.to_string());
        database.state().locked.insert(name.clone());
        Undo::new(async move { database.lift(|state| state.locked.retain(|locked| *locked != name)) })
    }

    async fn stall(&self) -> Undo {
        let database = Arc::clone(&self.database);
        database.state().stalled = true;
        Undo::new(async move { database.lift(|state| state.stalled = false) })
    }
}

impl Broken {
    fn change(&self, name: &LeaseName, change: impl FnOnce(&mut Row)) {
        if let Some(row) = self.database.state().rows.get_mut(name.as_str()) {
            change(row);
        }
    }
}
