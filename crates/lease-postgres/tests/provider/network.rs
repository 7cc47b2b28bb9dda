//! Connections that die, servers that restart or take no writes, and a network that swallows packets.

use std::time::Duration;

use lease_conformance::{
    faults::{Held, Proxy},
    servers::PostgresServer,
};
use lease_postgres::{
    PostgresConfig, PostgresLeaseStore,
    lease_core::{ErrorKind, FencingToken, LeaseStore, StoreError, Term, clock::LocalInstant},
};
use tokio::{io::AsyncReadExt, net::TcpListener, time::timeout};

use crate::{
    server::{PATIENCE, address, connect, driver, elsewhere},
    support::{Schema, granted, name, owner, refused, renewed, seconds},
};

/// Fills a store's pool of four with idle connections.
async fn fill(store: &PostgresLeaseStore, schema: &Schema) {
    let blocking = schema.client().await;
    granted(store, "filler", "a", seconds(600)).await;
    blocking.execute("BEGIN; SELECT FROM singleton_leases WHERE name = 'filler' FOR UPDATE").await;
    let renewals: Vec<_> = (0..4)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move { renewed(&store, "filler", "a", seconds(600)).await })
        })
        .collect();
    let waiting =
        "SELECT count(*) = 4 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%' || $1 || '%'";
    schema.foreign.until(waiting, &[&"singleton_leases"]).await;
    blocking.execute("ROLLBACK").await;
    for renewal in renewals {
        renewal.await.unwrap();
    }
}

const OTHERS: &str = "FROM pg_stat_activity WHERE application_name = 'lease'";

/// CL-01, CL-09: with every idle connection of the store ended by the server, the next call succeeds.
#[tokio::test]
#[cfg_attr(
    lease_no_postgres,
    ignore = "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
async fn terminated_connections_are_replaced() {
    let server = PostgresServer::local("").unwrap();
    let schema = Schema::on(&server).await;
    let store = schema.store().await;
    let token = granted(&store, "job", "a", seconds(600)).await;
    for _ in 0..20 {
        fill(&store, &schema).await;
        schema.foreign.until(&format!("SELECT count(*) = 4 {OTHERS}"), &[]).await;
        schema.foreign.execute(&format!("SELECT pg_terminate_backend(pid) {OTHERS}")).await;
        // Some are still on their way out, and some have not been noticed: any of them may be lent.
        assert_eq!(renewed(&store, "job", "a", seconds(600)).await, token);

        fill(&store, &schema).await;
        schema.foreign.execute(&format!("SELECT pg_terminate_backend(pid) {OTHERS}")).await;
        schema.foreign.until(&format!("SELECT count(*) = 0 {OTHERS}"), &[]).await;
        // All are gone, and each verb finds that out before it sends anything.
        assert_eq!(refused(&store, "job", "b").await.owner, Some(owner("a")));
    }
}

/// CL-02, S14: a server that is gone for a while is `Unavailable` at once, and comes back without our help; the lease is still its
/// owner's.
#[tokio::test]
#[cfg_attr(
    lease_no_postgres,
    ignore = "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
async fn a_restart_is_survived() {
    let server = PostgresServer::local("").unwrap();
    let schema = Schema::on(&server).await;
    let store = PostgresLeaseStore::connect(schema.config().operation_timeout(Duration::from_secs(5))).await.unwrap();
    let token = granted(&store, "job", "a", seconds(600)).await;
    let cluster = server.cluster().unwrap();
    cluster.stop().unwrap();
    let mut attempts = 0;
    let started = LocalInstant::now();
    while LocalInstant::now().saturating_duration_since(started) < Duration::from_secs(1) {
        let error = store.renew(&name("job"), &owner("a"), seconds(600)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
        assert!(error.proves_nothing_happened());
        attempts += 1;
    }
    assert!(attempts > 2, "each call waited for the server: {attempts} in a second");
    cluster.start_again().unwrap();
    let healed = async {
        loop {
            match store.renew(&name("job"), &owner("a"), seconds(600)).await {
                Ok(renewal) => return renewal,
                Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}"),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(timeout(PATIENCE, healed).await.unwrap().is_renewed());
    assert_eq!(renewed(&store, "job", "a", seconds(600)).await, token);
}

/// CL-06: a server that was made read-only is an error of its own kind, for refusals too, and its connections are not kept: the
/// store works again as soon as the server does.
#[tokio::test]
#[cfg_attr(
    lease_no_postgres,
    ignore = "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
async fn a_read_only_server_is_named_and_comes_back() {
    let server = PostgresServer::local("").unwrap();
    let schema = Schema::on(&server).await;
    let store = schema.store().await;
    let token = granted(&store, "job", "a", seconds(600)).await;
    fill(&store, &schema).await;
    let admin = connect(&driver(&server)).await;
    for _ in 0..3 {
        admin.batch_execute("ALTER SYSTEM SET default_transaction_read_only = on").await.unwrap();
        admin.batch_execute("SELECT pg_reload_conf()").await.unwrap();
        schema.foreign.until("SELECT current_setting('default_transaction_read_only') = 'on'", &[]).await;
        let error = loop {
            match store.renew(&name("job"), &owner("a"), seconds(600)).await {
                Err(error) => break error,
                // Not every session has heard of it yet.
                Ok(_) => tokio::task::yield_now().await,
            }
        };
        assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error:?}");
        let error = store.try_acquire(&name("job"), &owner("b"), seconds(9)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error:?}");
        let reset = "SET default_transaction_read_only = off; ALTER SYSTEM RESET default_transaction_read_only";
        for statement in reset.split("; ") {
            admin.batch_execute(statement).await.unwrap();
        }
        admin.batch_execute("SELECT pg_reload_conf(); RESET default_transaction_read_only").await.unwrap();
        schema.foreign.until("SELECT current_setting('default_transaction_read_only') = 'off'", &[]).await;
        let healed = async {
            while store.renew(&name("job"), &owner("a"), seconds(600)).await.is_err() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(PATIENCE, healed).await.unwrap();
        assert_eq!(renewed(&store, "job", "a", seconds(600)).await, token);
    }
}

/// Every verb once, each with what it took.
async fn every_verb(store: &PostgresLeaseStore) -> Vec<(&'static str, Result<(), StoreError>, Duration)> {
    let (job, a, b) = (name("job"), owner("a"), owner("b"));
    let token = FencingToken::new(1);
    let terms = [Term::new(job.clone(), a.clone(), token)];
    let mut results = Vec::new();
    for verb in ["acquire", "renew", "release", "release_after", "renew_many", "migrate"] {
        let started = LocalInstant::now();
        let result = match verb {
            "acquire" => store.try_acquire(&job, &b, seconds(9)).await.map(drop),
            "renew" => store.renew(&job, &a, seconds(9)).await.map(drop),
            "release" => store.release(&job, &b).await.map(drop),
            "release_after" => store.release_after(&job, &b, seconds(9)).await.map(drop),
            "renew_many" => store.renew_many(&terms, seconds(9)).await.remove(0).map(drop),
            _ => store.migrate().await,
        };
        results.push((verb, result, LocalInstant::now().saturating_duration_since(started)));
    }
    results
}

/// S12, CL-03, CX-04: a network that swallows what is sent, what is answered, or both: every call ends within the operation timeout,
/// the first with a connection that was open and the later ones while they connect; and afterwards the store works.
#[tokio::test]
#[cfg_attr(
    lease_no_postgres,
    ignore = "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
async fn a_black_hole_bounds_every_call() {
    let limit = Duration::from_millis(500);
    let schema = Schema::new().await;
    let proxy = Proxy::start(address(&schema.driver)).await.unwrap();
    let config = PostgresConfig::new(schema.through(proxy.address().port())).operation_timeout(limit).pool_size(1);
    let store = PostgresLeaseStore::connect(config).await.unwrap();
    for held in [
        Held { requests: true, responses: false },
        Held { requests: false, responses: true },
        Held { requests: true, responses: true },
    ] {
        let job = async {
            while granting(&store).await.is_err() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(PATIENCE, job).await.expect("the store works again");
        proxy.hold(held);
        for (index, (verb, result, took)) in every_verb(&store).await.into_iter().enumerate() {
            let error = result.unwrap_err();
            assert!(took < limit * 4, "{verb} took {took:?} with {held:?}");
            let expected = if index == 0 { ErrorKind::Indeterminate } else { ErrorKind::Unavailable };
            assert_eq!(error.kind(), expected, "{verb} with {held:?}: {error:?}");
        }
        proxy.hold(Held::default());
    }
}

async fn granting(store: &PostgresLeaseStore) -> Result<(), StoreError> {
    store.try_acquire(&name("job"), &owner("a"), seconds(600)).await.map(drop)
}

/// CX-04: the answer to a grant is swallowed: the outcome is unknown, and the row says that it was made.
#[tokio::test]
#[cfg_attr(
    lease_no_postgres,
    ignore = "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
async fn a_lost_answer_is_indeterminate() {
    let limit = Duration::from_millis(500);
    let schema = Schema::new().await;
    let proxy = Proxy::start(address(&schema.driver)).await.unwrap();
    let config = PostgresConfig::new(schema.through(proxy.address().port())).operation_timeout(limit).pool_size(1);
    let store = PostgresLeaseStore::connect(config).await.unwrap();
    granted(&store, "prepared", "a", seconds(600)).await;
    proxy.hold(Held { requests: false, responses: true });
    let error = store.try_acquire(&name("job"), &owner("a"), seconds(600)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error:?}");
    assert!(!error.proves_nothing_happened());
    assert_eq!(schema.foreign.row("job").await.unwrap().owner.as_deref(), Some("a"));
    proxy.hold(Held::default());
    assert_eq!(refused(&schema.store().await, "job", "b").await.owner, Some(owner("a")));
}

/// CL-04, S12: a listener that accepts and says nothing, and one that hangs up: `Unavailable` in time, with the cause.
#[tokio::test]
#[cfg_attr(
    lease_no_postgres,
    ignore = "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
async fn a_peer_that_is_no_server_is_unavailable() {
    let limit = Duration::from_millis(300);
    let schema = Schema::new().await;
    for hangs_up in [false, true] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let driver = elsewhere(&schema.driver, listener.local_addr().unwrap().port());
        tokio::spawn(async move {
            let mut kept = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                if hangs_up {
                    drop(stream.read(&mut [0; 8]).await);
                } else {
                    kept.push(stream);
                }
            }
        });
        let started = LocalInstant::now();
        let connecting = PostgresLeaseStore::connect(PostgresConfig::new(driver).operation_timeout(limit));
        let error = connecting.await.unwrap_err();
        let took = LocalInstant::now().saturating_duration_since(started);
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
        assert!(took < limit * 4, "{took:?}");
    }
}
