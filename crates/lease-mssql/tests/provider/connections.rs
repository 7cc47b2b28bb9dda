//! Sessions as the server sees them: what they are told, that they die, and what dropped calls leave behind.

use std::time::Duration;

use futures::future::join_all;
use lease_conformance::faults::{Held, Proxy};
use lease_mssql::{
    MssqlConfig, MssqlLeaseStore,
    lease_core::{Acquisition, ErrorKind, LeaseDuration, LeaseName, LeaseStore, OwnerId, clock::LocalInstant},
};
use tokio::time::timeout;

use crate::server::{Address, Database, PATIENCE, Session};

/// A database with the table, and a session that looks at the store's.
struct Watched {
    session: Session,
    application: &'static str,
    database: Database,
}

impl Watched {
    async fn new(application: &'static str) -> Self {
        let database = Database::create(Address::shared(), "").await;
        let session = database.address.session().await;
        Self { session, application, database }
    }

    fn config(&self) -> MssqlConfig {
        self.database.address.config().application_name(self.application).operation_timeout(PATIENCE)
    }

    async fn store(&self) -> MssqlLeaseStore {
        let store = MssqlLeaseStore::connect(self.config()).await.unwrap();
        store.migrate().await.unwrap();
        store
    }

    /// The numbers of the store's sessions.
    async fn sessions(&self) -> Vec<i32> {
        let sql = "SELECT CAST(session_id AS int) FROM sys.dm_exec_sessions WHERE program_name = @P1";
        let rows = self.session.query(sql, &[&self.application]).await;
        rows.iter().filter_map(|row| row.get(0)).collect()
    }

    /// Waits until no more sessions than these are left.
    async fn until_at_most(&self, count: usize) {
        let waiting = async {
            while self.sessions().await.len() > count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("there are more than {count} sessions"));
    }

    async fn kill(&self) -> usize {
        let sessions = self.sessions().await;
        for session in &sessions {
            self.session.execute(&format!("KILL {session}")).await;
        }
        sessions.len()
    }
}

fn name() -> LeaseName {
    LeaseName::new("job").unwrap()
}

fn owner(text: &str) -> OwnerId {
    OwnerId::new(text).unwrap()
}

fn duration() -> LeaseDuration {
    LeaseDuration::new(Duration::from_secs(600)).unwrap()
}

async fn renews(store: &MssqlLeaseStore) {
    assert!(store.renew(&name(), &owner("a"), duration()).await.unwrap().is_renewed());
}

async fn renewed_or_lost(store: &MssqlLeaseStore) {
    drop(store.renew(&name(), &owner("a"), duration()).await.unwrap());
}

/// S8: whatever the login's and the server's defaults are.
#[tokio::test]
#[cfg_attr(
    lease_no_mssql,
    ignore = "no SQL Server: `LEASE_MSSQL_URL=mssql://USER:PASSWORD@HOST/DATABASE cargo xtask test`"
)]
async fn sessions_are_told_what_the_statements_need() {
    const READ_COMMITTED: i32 = 2;
    const LONGEST_WAIT: i32 = 1_250;
    let watched = Watched::new("lease-told").await;
    let store = watched.store().await;
    assert!(store.try_acquire(&name(), &owner("a"), duration()).await.unwrap().is_acquired());
    assert!(matches!(store.try_acquire(&name(), &owner("b"), duration()).await.unwrap(), Acquisition::Held(_)));
    let sql = "SELECT CAST(transaction_isolation_level AS int), CAST(lock_timeout AS int), \
               CAST(open_transaction_count AS int), CAST(quoted_identifier AS int) + CAST(ansi_nulls AS int) \
               FROM sys.dm_exec_sessions WHERE program_name = @P1";
    let rows = watched.session.query(sql, &[&watched.application]).await;
    assert!(!rows.is_empty());
    for row in rows {
        let told = [0, 1, 2, 3].map(|column| row.get::<i32, _>(column).unwrap());
        assert_eq!(told, [READ_COMMITTED, LONGEST_WAIT, 0, 2]);
    }
}

/// CL-01, CL-09: with every idle connection of the store ended by the server, the next call succeeds, whichever it is.
#[tokio::test]
#[cfg_attr(
    lease_no_mssql,
    ignore = "no SQL Server: `LEASE_MSSQL_URL=mssql://USER:PASSWORD@HOST/DATABASE cargo xtask test`"
)]
async fn killed_connections_are_replaced() {
    let watched = Watched::new("lease-killed").await;
    drop(watched.store().await);
    let store = MssqlLeaseStore::connect(watched.config().pool_size(2)).await.unwrap();
    assert!(store.try_acquire(&name(), &owner("a"), duration()).await.unwrap().is_acquired());
    for _ in 0..3 {
        join_all((0..2).map(|_| renews(&store))).await;
        assert!(watched.kill().await > 0);
        // Some are still on their way out, and some have not been noticed: any of them may be lent.
        renews(&store).await;

        join_all((0..2).map(|_| renews(&store))).await;
        assert!(watched.kill().await > 0);
        watched.until_at_most(0).await;
        // All are gone, and each verb finds that out before it sends anything.
        let refused = store.try_acquire(&name(), &owner("b"), duration()).await.unwrap();
        assert!(matches!(refused, Acquisition::Held(holder) if holder.owner == Some(owner("a"))));
    }
    watched.kill().await;
    watched.until_at_most(0).await;
    assert!(store.release(&name(), &owner("a")).await.unwrap());
}

/// S11, CX-02, CX-08: calls that are dropped at whatever moment leave no session at the server, and no transaction open.
#[tokio::test]
#[cfg_attr(
    lease_no_mssql,
    ignore = "no SQL Server: `LEASE_MSSQL_URL=mssql://USER:PASSWORD@HOST/DATABASE cargo xtask test`"
)]
async fn dropped_calls_leave_nothing_at_the_server() {
    let watched = Watched::new("lease-dropped").await;
    let store = watched.store().await;
    for step in 0_u64..60 {
        let pause = Duration::from_micros(step * step * 5);
        // Whether it ends in time is chance.
        drop(timeout(pause, store.try_acquire(&name(), &owner("a"), duration())).await);
        drop(timeout(pause, store.renew(&name(), &owner("a"), duration())).await);
        drop(timeout(pause, store.release(&name(), &owner("a"))).await);
    }
    watched.until_at_most(4).await;
    let open =
        "SELECT CAST(ISNULL(SUM(open_transaction_count), 0) AS int) FROM sys.dm_exec_sessions WHERE program_name = @P1";
    let waiting = async {
        while watched.session.one::<i32>(open, &[&watched.application]).await > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, waiting).await.expect("no transaction stays open");
    assert!(store.try_acquire(&name(), &owner("a"), duration()).await.unwrap().is_acquired());
    renews(&store).await;
    drop(store);
    watched.until_at_most(0).await;
}

/// CX-01, CX-04, CL-03: an answer that does not come through leaves open what happened, and its connection serves nobody any more.
#[tokio::test]
#[cfg_attr(
    lease_no_mssql,
    ignore = "no SQL Server: `LEASE_MSSQL_URL=mssql://USER:PASSWORD@HOST/DATABASE cargo xtask test`"
)]
async fn an_answer_that_is_lost_is_no_refusal() {
    let watched = Watched::new("lease-lost").await;
    drop(watched.store().await);
    let proxy = Proxy::start(watched.database.address.place()).await.unwrap();
    let through = watched.database.address.through(proxy.address().port());
    let config = through.config().application_name(watched.application).pool_size(1);
    // A connection, and the first batch on it, may take their time: that is no silence.
    let begun = LocalInstant::now();
    renewed_or_lost(&MssqlLeaseStore::connect(config.clone().operation_timeout(PATIENCE)).await.unwrap()).await;
    let usual = LocalInstant::now().saturating_duration_since(begun);
    let config = config.operation_timeout(usual * 4 + Duration::from_millis(200));
    let store = MssqlLeaseStore::connect(config).await.unwrap();
    renewed_or_lost(&store).await;
    proxy.hold(Held { requests: false, responses: true });
    let error = store.try_acquire(&name(), &owner("a"), duration()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error:?}");
    // Nor does a new connection come about.
    let error = store.renew(&name(), &owner("a"), duration()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    proxy.hold(Held::default());
    // It was granted, unheard.
    let healed = async {
        loop {
            match store.renew(&name(), &owner("a"), duration()).await {
                Ok(renewal) if renewal.is_renewed() => return,
                Ok(_) => tokio::time::sleep(Duration::from_millis(5)).await,
                Err(error) => assert!(error.is_retryable(), "{error:?}"),
            }
        }
    };
    timeout(PATIENCE, healed).await.unwrap();
    watched.until_at_most(1).await;
}

/// A login or a database that is not there has its kind, and nothing shows the password.
#[tokio::test]
#[cfg_attr(
    lease_no_mssql,
    ignore = "no SQL Server: `LEASE_MSSQL_URL=mssql://USER:PASSWORD@HOST/DATABASE cargo xtask test`"
)]
async fn a_login_that_fails_says_why() {
    let server = Address::shared();
    let mut stranger = server.clone();
    (stranger.user, stranger.password) = ("lease_stranger".into(), "Hunter2-and-co".into());
    let stranger = stranger.config();
    let error = MssqlLeaseStore::connect(stranger).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
    assert!(error.to_string().contains("lease_stranger"), "{error}");
    assert!(!format!("{error} {error:?}").contains("Hunter2"), "{error:?}");
    let error = MssqlLeaseStore::connect(server.of("lease_no_such_database").config()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error:?}");
    assert!(error.to_string().contains("lease_no_such_database"), "{error}");
}
