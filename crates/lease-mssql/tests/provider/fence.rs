//! Fenced transactions: what they keep out, and what they let pass.

use std::time::Duration;

use futures::future::join_all;
use lease_mssql::{
    MssqlLeaseStore,
    lease_core::{
        Acquisition, ErrorKind, FenceError, FenceReason, ForceRelease, LeaseAdmin, LeaseName, LeaseStore, LossReason,
        OwnerId, Term, clock::LocalInstant,
    },
};

use crate::{
    server::{Address, Driver, Session},
    support::{Schema, granted, millis, name, owner, refused, renewed, rounds, seconds},
};

/// While a transaction has verified a lease, its holder's renewals go on, and nobody else is granted it, forces it out, or waits for it;
/// when the transaction has ended, the lease is a lease like any.
#[tokio::test]
#[cfg_attr(
    lease_no_mssql,
    ignore = "no SQL Server: `LEASE_MSSQL_URL=mssql://USER:PASSWORD@HOST/DATABASE cargo xtask test`"
)]
async fn a_verified_lease_is_kept_and_renewed() {
    let schema = Schema::new().await;
    let (store, other) = (schema.store().await, schema.store().await);
    let term = Term::new(name("job"), owner("a"), granted(&store, "job", "a", seconds(600)).await);
    refused(&other, "job", "b").await;
    schema.expire("job").await;
    renewed(&store, "job", "a", seconds(600)).await;
    let session = schema.database.address.session().await;
    session.execute("BEGIN TRANSACTION").await;
    store.verify(&mut *session.0.lock().await, &term).await.unwrap();
    schema.expire("job").await;
    let mut quickest = Duration::MAX;
    for _ in 0..20 {
        let started = LocalInstant::now();
        assert_eq!(refused(&other, "job", "b").await.remaining, Duration::ZERO);
        quickest = quickest.min(LocalInstant::now().saturating_duration_since(started));
        assert_eq!(
            other.force_release(&name("job"), ForceRelease::Now).await.unwrap_err().kind(),
            ErrorKind::Contended
        );
        assert_eq!(renewed(&store, "job", "a", seconds(600)).await, term.token);
        schema.expire("job").await;
    }
    assert!(quickest < Duration::from_millis(100), "a contender was refused after {quickest:?} at best");
    session.execute("ROLLBACK TRANSACTION").await;
    granted(&other, "job", "b", seconds(600)).await;
}

/// Why a transaction may not commit is told, and what it wrote is gone.
#[tokio::test]
#[cfg_attr(
    lease_no_mssql,
    ignore = "no SQL Server: `LEASE_MSSQL_URL=mssql://USER:PASSWORD@HOST/DATABASE cargo xtask test`"
)]
async fn a_stale_term_commits_nothing_and_learns_why() {
    let schema = Schema::new().await;
    let store = schema.store().await;
    schema.foreign.execute("CREATE TABLE ledger (token bigint NOT NULL)").await;
    let session = schema.database.address.session().await;
    let first = Term::new(name("it's"), owner("o'a"), granted(&store, "it's", "o'a", seconds(600)).await);
    assert!(write(&store, &session, &first).await.is_ok());

    schema.expire("it's").await;
    assert!(matches!(write(&store, &session, &first).await, Err(FenceError::Fenced(FenceReason::Expired))));
    let second = Term::new(name("it's"), owner("o'a"), granted(&store, "it's", "o'a", seconds(600)).await);
    let superseded = FenceReason::Lost(LossReason::Superseded(second.token));
    assert_eq!(reason(write(&store, &session, &first).await), superseded);
    schema.expire("it's").await;
    granted(&store, "it's", "b", seconds(600)).await;
    let taken = FenceReason::Lost(LossReason::TakenOver(owner("b")));
    assert_eq!(reason(write(&store, &session, &second).await), taken);
    store.force_release(&name("it's"), ForceRelease::Now).await.unwrap();
    assert_eq!(reason(write(&store, &session, &second).await), FenceReason::Lost(LossReason::ForcedOut));
    schema.foreign.execute("DELETE FROM singleton_leases").await;
    assert_eq!(reason(write(&store, &session, &second).await), FenceReason::Lost(LossReason::Deleted));
    assert_eq!(schema.foreign.one::<i32>("SELECT COUNT(*) FROM ledger", &[]).await, 1);
    assert_eq!(session.one::<i32>("SELECT @@TRANCOUNT", &[]).await, 0);
}

/// A transaction that is not there, or is not the outermost, is refused; `verify_sql` is the same statement for other drivers.
#[tokio::test]
#[cfg_attr(
    lease_no_mssql,
    ignore = "no SQL Server: `LEASE_MSSQL_URL=mssql://USER:PASSWORD@HOST/DATABASE cargo xtask test`"
)]
async fn verify_needs_a_transaction_and_commit_the_outermost() {
    let schema = Schema::new().await;
    let store = schema.store().await;
    let term = Term::new(name("job"), owner("a"), granted(&store, "job", "a", seconds(600)).await);
    let session = schema.database.address.session().await;
    for depth in [0, 2] {
        session.execute(&"BEGIN TRANSACTION; ".repeat(depth)).await;
        let mut client = session.0.lock().await;
        if depth == 0 {
            assert_restart(store.verify(&mut client, &term).await);
        }
        assert_restart(store.commit(&mut client, &term).await);
        drop(client);
        assert_eq!(session.one::<i32>("SELECT @@TRANCOUNT", &[]).await, 0);
    }
    session.execute("BEGIN TRANSACTION").await;
    let rows = |sql: String| {
        let session = &session;
        async move { session.batch(&sql).await.unwrap().len() }
    };
    assert_eq!(rows(store.verify_sql(&term)).await, 1);
    let stale = Term::new(term.name.clone(), owner("b"), term.token);
    assert_eq!(rows(store.verify_sql(&stale)).await, 0);
    refused(&store, "job", "b").await;
    session.execute("ROLLBACK TRANSACTION").await;
}

/// S1, RC-10: random steps of takeovers, forced releases, renewals and fenced writes by holders who do not know whether they still are.
/// Each write notes whose write it follows: a term that is over never follows a later one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(
    lease_no_mssql,
    ignore = "no SQL Server: `LEASE_MSSQL_URL=mssql://USER:PASSWORD@HOST/DATABASE cargo xtask test`"
)]
async fn no_stale_row_is_committed() {
    const WRITERS: usize = 8;
    let steps = rounds(800, 10_000);
    let schema = Schema::new().await;
    let setup = "CREATE TABLE latest (token bigint NOT NULL, former bigint NOT NULL); INSERT INTO latest VALUES (0, 0); \
                 CREATE TABLE ledger (token bigint NOT NULL, former bigint NOT NULL)";
    schema.foreign.execute(setup).await;
    let store = schema.store().await;
    let writers = (0..WRITERS).map(|number| {
        let (store, address) = (store.clone(), schema.database.address.clone());
        tokio::spawn(async move {
            let mut writer = Writer::new(number, store, address).await;
            for _ in 0..steps / WRITERS {
                writer.step().await;
            }
            (writer.committed, writer.refused)
        })
    });
    let (mut committed, mut refused) = (0, 0);
    for counts in join_all(writers).await {
        let counts = counts.unwrap();
        committed += counts.0;
        refused += counts.1;
    }
    let stale = "SELECT COUNT(*) FROM ledger WHERE former > token";
    assert_eq!(schema.foreign.one::<i32>(stale, &[]).await, 0, "rows of stale terms were committed");
    let rows = schema.foreign.one::<i32>("SELECT COUNT(*) FROM ledger", &[]).await;
    assert!(rows >= committed, "{rows} rows of {committed} commits");
    let enough = i32::try_from(steps / 100).unwrap();
    assert!(committed > enough && refused > enough, "{committed} committed and {refused} refused prove little");
}

struct Writer {
    store: MssqlLeaseStore,
    address: Address,
    client: Driver,
    job: LeaseName,
    me: OwnerId,
    /// The last term, over or not.
    term: Option<Term>,
    committed: i32,
    refused: i32,
}

impl Writer {
    async fn new(number: usize, store: MssqlLeaseStore, address: Address) -> Self {
        let client = address.connect().await.unwrap();
        let (job, me) = (name("job"), owner(&format!("writer-{number}")));
        Self { store, address, client, job, me, term: None, committed: 0, refused: 0 }
    }

    async fn step(&mut self) {
        // As short as a step, so that terms end everywhere in the steps of others; or longer, for a machine whose steps take long.
        let lasting = millis(fastrand::u64(if fastrand::bool() { 1..100 } else { 200..2_000 }));
        match (fastrand::u32(0..20), self.term.clone()) {
            (0..4, _) | (_, None) => {
                if let Ok(Acquisition::Acquired(token)) = self.store.try_acquire(&self.job, &self.me, lasting).await {
                    self.term = Some(Term::new(self.job.clone(), self.me.clone(), token));
                }
            }
            (4, _) => drop(self.store.force_release(&self.job, ForceRelease::Now).await),
            (5, _) => drop(self.store.renew(&self.job, &self.me, lasting).await),
            (_, Some(term)) => match self.write(&term).await {
                Ok(()) => self.committed += 1,
                Err(FenceError::Fenced(_)) => self.refused += 1,
                // The connection is of no use any more, nor is the transaction.
                Err(_) => self.client = self.address.connect().await.unwrap(),
            },
        }
    }

    /// Writes a row and commits it under the lease.
    async fn write(&mut self, term: &Term) -> Result<(), FenceError> {
        run(&mut self.client, "BEGIN TRANSACTION").await;
        // Who writes waits here for whoever wrote before, until that one has committed or not.
        let insert = format!(
            "UPDATE latest SET former = token, token = {}; INSERT INTO ledger SELECT token, former FROM latest",
            term.token
        );
        if fastrand::bool() {
            run(&mut self.client, &insert).await;
            return self.store.commit(&mut self.client, term).await;
        }
        if let Err(error) = self.store.verify(&mut self.client, term).await {
            run(&mut self.client, "ROLLBACK TRANSACTION").await;
            return Err(error);
        }
        run(&mut self.client, &insert).await;
        // Whoever is verified may take his time.
        tokio::time::sleep(Duration::from_millis(fastrand::u64(0..20))).await;
        run(&mut self.client, "COMMIT TRANSACTION").await;
        Ok(())
    }
}

async fn run(client: &mut Driver, batch: &str) {
    client.simple_query(batch).await.unwrap().into_results().await.unwrap();
}

/// Writes the term's token into the ledger in a transaction that commits in that term.
async fn write(store: &MssqlLeaseStore, session: &Session, term: &Term) -> Result<(), FenceError> {
    session.execute("BEGIN TRANSACTION").await;
    session.execute(&format!("INSERT INTO ledger VALUES ({})", term.token)).await;
    store.commit(&mut *session.0.lock().await, term).await
}

fn reason(result: Result<(), FenceError>) -> FenceReason {
    match result {
        Err(FenceError::Fenced(reason)) => reason,
        other => panic!("it should be fenced off: {other:?}"),
    }
}

fn assert_restart(result: Result<(), FenceError>) {
    match result {
        Err(FenceError::Store(error)) => assert_eq!(error.kind(), ErrorKind::RestartTransaction, "{error:?}"),
        other => panic!("there is no such transaction: {other:?}"),
    }
}
