//! Fenced transactions: who is kept out, who is not, and what a stale term learns.

use std::time::Duration;

use lease_postgres::{
    PostgresLeaseStore,
    deadpool_postgres::{Manager, Pool},
    lease_core::{
        ErrorKind, FenceError, FenceReason, FencingToken, ForceRelease, LeaseAdmin, LeaseStore, LossReason, Term,
        clock::LocalInstant,
    },
    tokio_postgres::{IsolationLevel, NoTls},
};
use tokio::time::timeout;

use crate::{
    server::{PATIENCE, connect},
    support::{Schema, granted, millis, name, owner, refused, renewed, seconds},
};

const LEVELS: [IsolationLevel; 3] =
    [IsolationLevel::ReadCommitted, IsolationLevel::RepeatableRead, IsolationLevel::Serializable];

async fn term(store: &PostgresLeaseStore, to: &str, duration: u64) -> Term {
    let token = granted(store, "job", to, seconds(duration)).await;
    Term::new(name("job"), owner(to), token)
}

fn fenced(result: Result<(), FenceError>) -> FenceReason {
    match result {
        Err(FenceError::Fenced(reason)) => reason,
        other => panic!("it should be fenced off: {other:?}"),
    }
}

/// A term that stands is verified and committed, on the driver's transactions and on deadpool's; one that is over is fenced off for the
/// reason that the row gives.
#[tokio::test]
#[cfg_attr(
    lease_no_postgres,
    ignore = "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
async fn a_term_commits_and_a_stale_one_learns_why_not() {
    let schema = Schema::new().await;
    let store = schema.store().await;
    schema.foreign.execute("CREATE TABLE ledger (entry text)").await;
    let term = term(&store, "a", 600).await;
    let mut client = connect(&schema.driver).await;
    let pool = Pool::builder(Manager::new(schema.driver.clone(), NoTls)).build().unwrap();
    let mut pooled = pool.get().await.unwrap();

    let transaction = client.transaction().await.unwrap();
    transaction.batch_execute("INSERT INTO ledger VALUES ('driver')").await.unwrap();
    store.verify(&transaction, &term).await.unwrap();
    store.commit(transaction, &term).await.unwrap();
    let transaction = pooled.transaction().await.unwrap();
    transaction.batch_execute("INSERT INTO ledger VALUES ('deadpool')").await.unwrap();
    store.verify(&transaction, &term).await.unwrap();
    store.commit(transaction, &term).await.unwrap();

    let other_token = Term::new(name("job"), owner("a"), FencingToken::new(1));
    let stale = |reason| FenceReason::Lost(reason);
    for (stands, term, change, reason) in [
        (true, &other_token, "SELECT 1", stale(LossReason::Superseded(term.token))),
        (true, &term, "UPDATE singleton_leases SET expires_at = 'epoch'", FenceReason::Expired),
        (false, &term, "UPDATE singleton_leases SET owner = 'b'", stale(LossReason::TakenOver(owner("b")))),
        (false, &term, "UPDATE singleton_leases SET owner = NULL", stale(LossReason::ForcedOut)),
        (false, &term, "DELETE FROM singleton_leases", stale(LossReason::Deleted)),
    ] {
        schema.foreign.execute(change).await;
        let transaction = client.transaction().await.unwrap();
        transaction.batch_execute("INSERT INTO ledger VALUES ('stale')").await.unwrap();
        assert_eq!(fenced(store.commit(transaction, term).await), reason, "{change}, {stands}");
    }
    assert_eq!(schema.foreign.one::<i64>("SELECT count(*) FROM ledger", &[]).await, 2);
    assert!(store.verify_sql().contains("FOR KEY SHARE"));
}

/// While a transaction is verified nobody else is granted the lease, run out as it is, nor is it forced out; the holder renews, and
/// releases, without a wait.
#[tokio::test]
#[cfg_attr(
    lease_no_postgres,
    ignore = "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
async fn a_verified_transaction_keeps_everybody_else_out() {
    let schema = Schema::new().await;
    let store = schema.store().await;
    for level in LEVELS {
        let term = term(&store, "a", 600).await;
        let mut client = connect(&schema.driver).await;
        let transaction = client.build_transaction().isolation_level(level).start().await.unwrap();
        store.verify(&transaction, &term).await.unwrap();

        for _ in 0..20 {
            assert_eq!(renewed(&store, "job", "a", seconds(600)).await, term.token);
        }
        for mode in [ForceRelease::Rest, ForceRelease::Now] {
            let error = store.force_release(&name("job"), mode).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Contended);
        }
        schema.foreign.expire("job").await;
        for contender in ["a", "b"] {
            assert_eq!(refused(&store, "job", contender).await.remaining, Duration::ZERO);
        }
        assert!(store.release(&name("job"), &owner("a")).await.unwrap());
        assert_eq!(refused(&store, "job", "b").await.remaining, Duration::ZERO);
        transaction.commit().await.unwrap();
        granted(&store, "job", "b", seconds(600)).await;
        assert!(store.release(&name("job"), &owner("b")).await.unwrap());
    }
}

/// A transaction that began before the term ended learns of it from the lock, under each isolation level; one that began before a
/// renewal is not disturbed.
#[tokio::test]
#[cfg_attr(
    lease_no_postgres,
    ignore = "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
async fn an_old_snapshot_hides_no_takeover() {
    let schema = Schema::new().await;
    let store = schema.store().await;
    for level in LEVELS {
        for change in ["renewal", "takeover", "force", "grant to the same owner", "release and grant"] {
            let term = term(&store, "a", 600).await;
            let mut client = connect(&schema.driver).await;
            let transaction = client.build_transaction().isolation_level(level).start().await.unwrap();
            // The snapshot is taken with the first statement.
            transaction.batch_execute("SELECT FROM singleton_leases").await.unwrap();
            match change {
                "renewal" => drop(renewed(&store, "job", "a", seconds(600)).await),
                "takeover" => {
                    schema.foreign.expire("job").await;
                    granted(&store, "job", "b", seconds(600)).await;
                }
                "force" => drop(store.force_release(&name("job"), ForceRelease::Now).await.unwrap()),
                "release and grant" => {
                    assert!(store.release(&name("job"), &owner("a")).await.unwrap());
                    granted(&store, "job", "b", seconds(600)).await;
                }
                _ => drop(granted(&store, "job", "a", seconds(600)).await),
            }
            match (change, level, store.verify(&transaction, &term).await) {
                ("renewal", _, Ok(())) => {}
                ("renewal", _, other) => panic!("a renewal fenced its own holder off: {other:?}"),
                (_, IsolationLevel::ReadCommitted, Err(FenceError::Fenced(FenceReason::Lost(_)))) => {}
                (_, _, Err(FenceError::Store(error))) if error.kind() == ErrorKind::RestartTransaction => {}
                (.., other) => panic!("{change} under {level:?}: {other:?}"),
            }
            transaction.rollback().await.unwrap();
            schema.foreign.execute("UPDATE singleton_leases SET owner = NULL, expires_at = 'epoch'").await;
        }
    }
}

/// A holder that freezes inside a verified transaction is ended by the server when its term is over, and another takes the lease within
/// a second; without our help its session would have kept it.
#[tokio::test]
#[cfg_attr(
    lease_no_postgres,
    ignore = "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
async fn a_frozen_holder_keeps_nobody_waiting() {
    const ENOUGH: Duration = Duration::from_millis(2000);
    let schema = Schema::new().await;
    let store = schema.store().await;
    for level in LEVELS {
        let mut times = Vec::new();
        // A machine that does other things too may be late a few times.
        while times.last().is_none_or(|took| *took >= ENOUGH) && times.len() < 5 {
            times.push(takeover_from_frozen(&schema, &store, level).await);
        }
        assert!(times.iter().any(|took| *took < ENOUGH), "{level:?}: {times:?}");
    }
}

/// How long after the grant of a second another takes the lease of a holder that is frozen in a verified transaction.
async fn takeover_from_frozen(schema: &Schema, store: &PostgresLeaseStore, level: IsolationLevel) -> Duration {
    let mut client = connect(&schema.driver).await;
    let granted_at = LocalInstant::now();
    let token = granted(store, "job", "a", millis(1000)).await;
    let transaction = client.build_transaction().isolation_level(level).start().await.unwrap();
    store.verify(&transaction, &Term::new(name("job"), owner("a"), token)).await.unwrap();
    let taking = async {
        while !store.try_acquire(&name("job"), &owner("b"), seconds(600)).await.unwrap().is_acquired() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, taking).await.expect("a frozen holder kept the lease");
    let took = LocalInstant::now().saturating_duration_since(granted_at);
    assert!(took >= Duration::from_millis(990), "{level:?}: the lease was taken in its term, after {took:?}");
    assert!(transaction.commit().await.is_err());
    assert!(store.release(&name("job"), &owner("b")).await.unwrap());
    took
}

/// A session's own limit stands when it is shorter, and what is set is gone with the transaction.
#[tokio::test]
#[cfg_attr(
    lease_no_postgres,
    ignore = "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
async fn the_sessions_own_idle_limit_stands() {
    let schema = Schema::new().await;
    let store = schema.store().await;
    let term = term(&store, "a", 600).await;
    let mut client = connect(&schema.driver).await;
    for (own, inside) in [("0", None), ("45s", Some("45s")), ("1h", None), ("250ms", Some("250ms"))] {
        client.batch_execute(&format!("SET idle_in_transaction_session_timeout = '{own}'")).await.unwrap();
        let limit = "SELECT current_setting('idle_in_transaction_session_timeout')";
        let before: String = client.query_one(limit, &[]).await.unwrap().get(0);
        let transaction = client.transaction().await.unwrap();
        store.verify(&transaction, &term).await.unwrap();
        let verified: String = transaction.query_one(limit, &[]).await.unwrap().get(0);
        if let Some(inside) = inside {
            assert_eq!(verified, inside);
        } else {
            let millis: u64 = verified.trim_end_matches("ms").parse().unwrap_or(600_000);
            assert!((540_000..=600_000).contains(&millis), "{verified}");
        }
        transaction.rollback().await.unwrap();
        assert_eq!(client.query_one(limit, &[]).await.unwrap().get::<_, String>(0), before);
    }
}

/// Invariant: whatever ends another's term locks the row FOR UPDATE first, and only the holder's own renewals and releases do less. All
/// fencing rests on it. A statement that writes and is in neither list has to be thought about.
#[test]
#[cfg_attr(
    lease_no_postgres,
    ignore = "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
fn whatever_ends_a_term_locks_for_update_first() {
    const ENDS_A_TERM: [&str; 2] = ["acquire.sql", "force_release.sql"];
    const ITS_OWN: [&str; 4] = ["renew.sql", "renew_many.sql", "release.sql", "release_after.sql"];
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/sql");
    let mut writes = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let (file, text) = (entry.file_name().into_string().unwrap(), std::fs::read_to_string(entry.path()).unwrap());
        let code: Vec<_> = text.lines().filter(|line| !line.trim_start().starts_with("--")).collect();
        let line_of = |word: &str| code.iter().position(|line| line.contains(word));
        let Some(write) = line_of("UPDATE singleton_leases").or_else(|| line_of("DELETE FROM singleton_leases")) else {
            continue;
        };
        writes += 1;
        if ENDS_A_TERM.contains(&file.as_str()) {
            assert!(line_of("FOR UPDATE").is_some_and(|lock| lock < write), "{file} ends a term without a lock");
        } else {
            assert!(ITS_OWN.contains(&file.as_str()), "{file}: does it end another's term?");
            assert!(line_of("owner = $2").or_else(|| line_of("lease.owner = ANY ($2)")).is_some(), "{file}");
        }
    }
    assert_eq!(writes, ENDS_A_TERM.len() + ITS_OWN.len());
}
