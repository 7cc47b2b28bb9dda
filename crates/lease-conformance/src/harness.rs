//! What the suite needs to know of a backend: how to make stores on a fresh table, and how to act as the database.

use std::{fmt, future::Future, pin::Pin, sync::Arc, time::Duration};

use async_trait::async_trait;
use lease_core::{ForceRelease, ForcedRelease, LeaseName, LeaseStore, OwnerId, StoreError};
use tokio::runtime::{Builder, Runtime};

/// A backend under test.
///
/// The first four items are every backend's. The *hooks* at the end act as the database or as an operator would, behind the
/// store's back; a backend that has no such thing names the hook under `without` in [`suite!`](crate::suite), with the reason, and
/// each case that needs it is then shown as ignored. A hook that is neither written nor named there fails its cases.
///
/// Calls may panic: a harness that does not work must fail its test.
#[async_trait]
pub trait Harness: Send + Sync + Sized + 'static {
    /// The store under test.
    type Store: LeaseStore;

    /// Makes a fresh, empty table. Every case has one of its own, and cases run at the same time.
    async fn start() -> Self;

    /// Opens another store on the same table, as another replica would: with its own pool and its own connections.
    async fn store(&self) -> Self::Store;

    /// Makes the lease on `name` run out by the database's own reckoning, right now: its owner stays in the row.
    async fn expire(&self, name: &LeaseName);

    /// How much two readings of time may differ that ought to be equal: the granularity of the table's times, and what the
    /// database's clock may gain on this machine's within a minute. The time that calls take is measured and needs no slack here.
    fn precision(&self) -> Duration;

    /// The runtime that a case runs on; by default tokio's, with two workers and real time. A backend whose database obeys tokio's
    /// clock may pause it.
    fn runtime() -> Runtime {
        Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("the runtime starts")
    }

    /// The operation timeout of [`store`](Self::store)'s stores (S12).
    fn operation_timeout(&self) -> Duration {
        Duration::from_secs(5)
    }

    /// How often a case repeats what needs luck to go wrong, such as a race. A slow server may take fewer.
    fn rounds(&self) -> u32 {
        20
    }

    /// Lets `duration` pass on the database's clock.
    async fn elapse(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }

    /// Hook `row`: reads a row over a connection that is not the store's.
    async fn row(&self, name: &LeaseName) -> Option<Row> {
        let _ = name;
        unsupported("row")
    }

    /// Hook `row`: writes every column of the row of `name`, which exists, over such a connection.
    async fn set_row(&self, name: &LeaseName, row: Row) {
        let _ = (name, row);
        unsupported("row")
    }

    /// Hook `row`: reads the database's clock, in Unix microseconds, as the store's statements do.
    async fn clock(&self) -> i64 {
        unsupported("row")
    }

    /// Hook `delete_row`: deletes the row of `name`.
    async fn delete_row(&self, name: &LeaseName) {
        let _ = name;
        unsupported("delete_row")
    }

    /// Hook `force_release`: forces the holder of `name` out, over a store that is a [`LeaseAdmin`](lease_core::LeaseAdmin).
    async fn force_release(&self, name: &LeaseName, mode: ForceRelease) -> Result<Option<ForcedRelease>, StoreError> {
        let _ = (name, mode);
        unsupported("force_release")
    }

    /// Hook `request_hand_over`: sets `hand_over_at` in the row of `name`.
    async fn request_hand_over(&self, name: &LeaseName) {
        let _ = name;
        unsupported("request_hand_over")
    }

    /// Hook `drop_table`: drops the table while stores are connected; undoing it makes the table anew, without rows.
    async fn drop_table(&self) -> Undo {
        unsupported("drop_table")
    }

    /// Hook `lock_row`: another session's open transaction locks the row of `name`, or inserts it when there is none, until the
    /// answer is undone. The transaction is rolled back.
    async fn lock_row(&self, name: &LeaseName) -> Undo {
        let _ = name;
        unsupported("lock_row")
    }

    /// Hook `stall`: until the answer is undone, the database answers no statement that would write. A network that swallows
    /// packets is the best way; where there is none, a foreign transaction that keeps every writer waiting.
    async fn stall(&self) -> Undo {
        unsupported("stall")
    }
}

/// A row of `singleton_leases`; times are Unix microseconds of the database's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The owner, none when the lease is free or rests.
    pub owner: Option<OwnerId>,
    /// The token of the last acquisition.
    pub token: i64,
    /// When the last acquisition was made.
    pub acquired_at: i64,
    /// When the lease runs out.
    pub expires_at: i64,
    /// When somebody asked the holder to hand over.
    pub hand_over_at: Option<i64>,
}

/// What ends a disturbance that a hook began. A lock or a stall must end as well, if later, when this is dropped.
#[must_use = "a disturbance lasts until it is undone"]
pub struct Undo(Pin<Box<dyn Future<Output = ()> + Send>>);

impl Undo {
    /// Ends the disturbance by running `future`.
    pub fn new(future: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(Box::pin(future))
    }

    /// Ends the disturbance, and returns once it has ended.
    pub async fn undo(self) {
        self.0.await;
    }
}

impl fmt::Debug for Undo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Undo").finish_non_exhaustive()
    }
}

/// The harness of `H` with each store behind an `Arc<dyn LeaseStore>`, as most services keep theirs.
#[derive(Debug)]
pub struct Dyn<H>(H);

#[async_trait]
impl<H: Harness> Harness for Dyn<H> {
    type Store = Arc<dyn LeaseStore>;

    async fn start() -> Self {
        Self(H::start().await)
    }

    async fn store(&self) -> Self::Store {
        Arc::new(self.0.store().await)
    }

    async fn expire(&self, name: &LeaseName) {
        self.0.expire(name).await;
    }

    fn precision(&self) -> Duration {
        self.0.precision()
    }

    fn runtime() -> Runtime {
        H::runtime()
    }

    fn operation_timeout(&self) -> Duration {
        self.0.operation_timeout()
    }

    fn rounds(&self) -> u32 {
        self.0.rounds()
    }

    async fn elapse(&self, duration: Duration) {
        self.0.elapse(duration).await;
    }

    async fn row(&self, name: &LeaseName) -> Option<Row> {
        self.0.row(name).await
    }

    async fn set_row(&self, name: &LeaseName, row: Row) {
        self.0.set_row(name, row).await;
    }

    async fn clock(&self) -> i64 {
        self.0.clock().await
    }

    async fn delete_row(&self, name: &LeaseName) {
        self.0.delete_row(name).await;
    }

    async fn force_release(&self, name: &LeaseName, mode: ForceRelease) -> Result<Option<ForcedRelease>, StoreError> {
        self.0.force_release(name, mode).await
    }

    async fn request_hand_over(&self, name: &LeaseName) {
        self.0.request_hand_over(name).await;
    }

    async fn drop_table(&self) -> Undo {
        self.0.drop_table().await
    }

    async fn lock_row(&self, name: &LeaseName) -> Undo {
        self.0.lock_row(name).await
    }

    async fn stall(&self) -> Undo {
        self.0.stall().await
    }
}

fn unsupported(hook: &str) -> ! {
    panic!("this harness has no hook `{hook}`: write it, or name it under `without` in `suite!` with the reason")
}
