//! Random histories of fenced writes, which must leave no row of a stale term.

use std::time::Duration;

use futures::future::join_all;
use lease_conformance::servers::PostgresServer;
use lease_postgres::{
    PostgresLeaseStore,
    lease_core::{Acquisition, ForceRelease, LeaseAdmin, LeaseName, LeaseStore, OwnerId, Term},
    tokio_postgres::{Client, Config, IsolationLevel},
};

use crate::{
    server::connect,
    support::{Schema, millis, name, owner},
};

/// S1, RC-10
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(
    lease_no_postgres,
    ignore = "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
async fn no_stale_row_is_committed_under_read_committed() {
    assert_no_stale_row(IsolationLevel::ReadCommitted).await;
}

/// S1, RC-10
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(
    lease_no_postgres,
    ignore = "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
async fn no_stale_row_is_committed_under_repeatable_read() {
    assert_no_stale_row(IsolationLevel::RepeatableRead).await;
}

/// Ten thousand random steps of takeovers, forced releases, renewals and fenced writes by holders who do not know whether they still are:
/// each row of the ledger was committed in its token's term, so that in the order of the commits the tokens never fall.
async fn assert_no_stale_row(level: IsolationLevel) {
    const WRITERS: usize = 8;
    const STEPS: usize = 10_000;
    let server = PostgresServer::local("track_commit_timestamp = on").unwrap();
    let schema = Schema::on(&server).await;
    schema.foreign.execute("CREATE TABLE ledger (token bigint NOT NULL)").await;
    let store = schema.store().await;
    let writers = (0..WRITERS).map(|number| {
        let (store, driver) = (store.clone(), schema.driver.clone());
        tokio::spawn(async move {
            let mut writer = Writer::new(number, store, driver, level).await;
            for _ in 0..STEPS / WRITERS {
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
    let stale = "SELECT count(*) FROM ( \
                     SELECT token, lag(token) OVER (ORDER BY pg_xact_commit_timestamp(xmin)) AS former FROM ledger \
                 ) AS pairs WHERE former > token";
    assert_eq!(schema.foreign.one::<i64>(stale, &[]).await, 0, "rows of stale terms were committed");
    let rows: i64 = schema.foreign.one("SELECT count(*) FROM ledger", &[]).await;
    assert!(rows >= committed, "{rows} rows of {committed} commits");
    assert!(committed > 100 && refused > 100, "{committed} committed and {refused} refused prove little");
}

struct Writer {
    store: PostgresLeaseStore,
    driver: Config,
    level: IsolationLevel,
    client: Client,
    job: LeaseName,
    me: OwnerId,
    /// The last term, over or not.
    term: Option<Term>,
    committed: i64,
    refused: i64,
}

impl Writer {
    async fn new(number: usize, store: PostgresLeaseStore, driver: Config, level: IsolationLevel) -> Self {
        let client = connect(&driver).await;
        let (job, me) = (name("job"), owner(&format!("writer-{number}")));
        Self { store, driver, level, client, job, me, term: None, committed: 0, refused: 0 }
    }

    async fn step(&mut self) {
        // As short as a step, so that terms end everywhere in the steps of others; or longer, for a machine whose steps take long.
        let lasting = millis(fastrand::u64(if fastrand::bool() { 1..60 } else { 60..400 }));
        match (fastrand::u32(0..20), self.term.clone()) {
            (0..4, _) | (_, None) => {
                if let Ok(Acquisition::Acquired(token)) = self.store.try_acquire(&self.job, &self.me, lasting).await {
                    self.term = Some(Term::new(self.job.clone(), self.me.clone(), token));
                }
            }
            (4, _) => drop(self.store.force_release(&self.job, ForceRelease::Now).await),
            (5, _) => drop(self.store.renew(&self.job, &self.me, lasting).await),
            (_, Some(term)) => match self.write(&term).await {
                Some(()) => self.committed += 1,
                None => self.refused += 1,
            },
        }
    }

    /// Writes a row and commits it under the lease; none when that was refused.
    async fn write(&mut self, term: &Term) -> Option<()> {
        if self.client.is_closed() {
            // The server ended the session when a transaction idled past its term.
            self.client = connect(&self.driver).await;
        }
        let transaction = self.client.build_transaction().isolation_level(self.level).start().await.ok()?;
        let insert = "INSERT INTO ledger VALUES ($1)";
        if fastrand::bool() {
            transaction.execute(insert, &[&term.token.value()]).await.ok()?;
            return self.store.commit(transaction, term).await.ok();
        }
        self.store.verify(&transaction, term).await.ok()?;
        transaction.execute(insert, &[&term.token.value()]).await.ok()?;
        // Whoever is verified may take his time, or what is left of the term.
        tokio::time::sleep(Duration::from_millis(fastrand::u64(0..60))).await;
        transaction.commit().await.ok()
    }
}
