//! A database with the table, and verbs that must go one way.

use std::{env, time::Duration};

use lease_mssql::{
    MssqlConfig, MssqlLeaseStore,
    lease_core::{Acquisition, FencingToken, Holder, LeaseDuration, LeaseName, LeaseStore, OwnerId, Renewal},
};

use crate::server::{Address, Database, PATIENCE, Session};

/// A database with the table, and a session there that knows nothing of leases.
pub(crate) struct Schema {
    /// It ends before the database.
    pub(crate) foreign: Session,
    pub(crate) database: Database,
}

impl Schema {
    pub(crate) async fn new() -> Self {
        Self::on(Address::shared()).await
    }

    pub(crate) async fn on(server: Address) -> Self {
        let database = Database::with_table(server).await;
        Self { foreign: database.address.session().await, database }
    }

    /// A database that is empty yet.
    pub(crate) async fn without_table() -> Self {
        let database = Database::create(Address::shared(), "").await;
        Self { foreign: database.address.session().await, database }
    }

    pub(crate) fn config(&self) -> MssqlConfig {
        self.database.address.config().operation_timeout(PATIENCE)
    }

    pub(crate) async fn store(&self) -> MssqlLeaseStore {
        MssqlLeaseStore::connect(self.config()).await.unwrap()
    }

    /// Makes a lease run out now.
    pub(crate) async fn expire(&self, name: &str) {
        let sql = "UPDATE singleton_leases SET expires_at = SYSUTCDATETIME() WHERE name = @P1";
        self.foreign.query(sql, &[&name]).await;
    }
}

/// How often a test repeats what needs luck to go wrong: `all` when `LEASE_TEST_FULL` is set, else `some`.
pub(crate) fn rounds(some: usize, all: usize) -> usize {
    if env::var_os("LEASE_TEST_FULL").is_some() { all } else { some }
}

pub(crate) fn name(text: &str) -> LeaseName {
    LeaseName::new(text).unwrap()
}

pub(crate) fn owner(text: &str) -> OwnerId {
    OwnerId::new(text).unwrap()
}

pub(crate) fn seconds(seconds: u64) -> LeaseDuration {
    LeaseDuration::new(Duration::from_secs(seconds)).unwrap()
}

pub(crate) fn millis(millis: u64) -> LeaseDuration {
    LeaseDuration::new(Duration::from_millis(millis)).unwrap()
}

/// Acquires a lease that must be free.
pub(crate) async fn granted(store: &MssqlLeaseStore, lease: &str, to: &str, duration: LeaseDuration) -> FencingToken {
    match store.try_acquire(&name(lease), &owner(to), duration).await.unwrap() {
        Acquisition::Acquired(token) => token,
        other => panic!("{lease} should be free: {other:?}"),
    }
}

/// Is refused a lease, and learns by whom.
pub(crate) async fn refused(store: &MssqlLeaseStore, lease: &str, to: &str) -> Holder {
    match store.try_acquire(&name(lease), &owner(to), seconds(30)).await.unwrap() {
        Acquisition::Held(holder) => holder,
        other => panic!("{lease} should be held: {other:?}"),
    }
}

/// Renews a lease that its owner must have.
pub(crate) async fn renewed(store: &MssqlLeaseStore, lease: &str, of: &str, duration: LeaseDuration) -> FencingToken {
    match store.renew(&name(lease), &owner(of), duration).await.unwrap() {
        Renewal::Renewed { token, .. } => token,
        other => panic!("{lease} should be {of}'s: {other:?}"),
    }
}
