//! The connection that listens: it begins with the first watcher, finds its way back, and ends with the store.

use std::time::Duration;

use futures::FutureExt;
use lease_conformance::servers::PostgresServer;
use lease_postgres::{
    PostgresLeaseStore,
    deadpool_postgres::{Manager, Pool},
    lease_core::{ForceRelease, LeaseAdmin, LeaseStore, Wakeup, clock::LocalInstant},
    tokio_postgres::NoTls,
};
use tokio::time::timeout;

use crate::{
    server::PATIENCE,
    support::{Schema, granted, name, owner, seconds},
};

const LISTENERS: &str = "FROM pg_stat_activity WHERE query LIKE '%LISTEN %' AND pid <> pg_backend_pid()";

async fn wakes(wakeup: Wakeup) {
    timeout(PATIENCE, wakeup).await.expect("nobody was woken");
}

/// Waits until the store listens, which wakes whoever watches already.
async fn listening(store: &PostgresLeaseStore) {
    wakes(store.watch(&name("anything"))).await;
}

/// S3: a release wakes its own name's watchers and no others, within milliseconds; so does a lease that an operator frees.
#[tokio::test]
#[cfg_attr(
    lease_no_postgres,
    ignore = "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
async fn a_release_wakes_its_watchers() {
    let schema = Schema::new().await;
    let (store, replica) = (schema.store().await, schema.store().await);
    listening(&store).await;
    let mut longest = Duration::ZERO;
    for round in 0..20 {
        granted(&replica, "job", "a", seconds(600)).await;
        let (wakeup, mut other) = (store.watch(&name("job")), store.watch(&name("other")));
        assert!((&mut other).now_or_never().is_none());
        if round % 2 == 0 {
            assert!(replica.release(&name("job"), &owner("a")).await.unwrap());
        } else {
            replica.force_release(&name("job"), ForceRelease::Now).await.unwrap().unwrap();
        }
        let released = LocalInstant::now();
        wakes(wakeup).await;
        longest = longest.max(LocalInstant::now().saturating_duration_since(released));
        assert!((&mut other).now_or_never().is_none(), "another name's watcher was woken");
    }
    println!("the longest wait for a wake-up was {longest:?}");
    assert!(!replica.release(&name("job"), &owner("a")).await.unwrap());
    let wakeup = store.watch(&name("job"));
    assert!(timeout(Duration::from_millis(100), wakeup).await.is_err(), "a release that did nothing woke somebody");
}

/// CL-09: a listener whose connection was ended finds its way back, and wakes whoever may have missed something.
#[tokio::test]
#[cfg_attr(
    lease_no_postgres,
    ignore = "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
async fn a_listener_finds_its_way_back() {
    let server = PostgresServer::local("").unwrap();
    let schema = Schema::on(&server).await;
    let store = schema.store().await;
    listening(&store).await;
    for _ in 0..5 {
        granted(&store, "job", "a", seconds(600)).await;
        let wakeup = store.watch(&name("job"));
        schema.foreign.until(&format!("SELECT count(*) = 1 {LISTENERS}"), &[]).await;
        schema.foreign.execute(&format!("SELECT pg_terminate_backend(pid) {LISTENERS}")).await;
        // Whether it was released before the listener was back or after, its watcher is woken.
        assert!(store.release(&name("job"), &owner("a")).await.unwrap());
        wakes(wakeup).await;
    }
    server.cluster().unwrap().stop().unwrap();
    let wakeup = store.watch(&name("job"));
    server.cluster().unwrap().start_again().unwrap();
    wakes(wakeup).await;
}

/// S13: nobody listens until somebody watches, and nobody does any more when the store is gone; its watchers just sleep on.
#[tokio::test]
#[cfg_attr(
    lease_no_postgres,
    ignore = "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
async fn a_listener_comes_and_goes_with_its_store() {
    let server = PostgresServer::local("").unwrap();
    let schema = Schema::on(&server).await;
    let store = schema.store().await;
    granted(&store, "job", "a", seconds(600)).await;
    assert_eq!(schema.foreign.one::<i64>(&format!("SELECT count(*) {LISTENERS}"), &[]).await, 0);
    listening(&store).await;
    let clone = store.clone();
    let mut orphan = clone.watch(&name("job"));
    drop(store);
    assert_eq!(schema.foreign.one::<i64>(&format!("SELECT count(*) {LISTENERS}"), &[]).await, 1);
    drop(clone);
    schema.foreign.until(&format!("SELECT count(*) = 0 {LISTENERS}"), &[]).await;
    assert!((&mut orphan).now_or_never().is_none());
}

/// A pool of a service's own wakes nobody unless the store is told where to listen.
#[tokio::test]
#[cfg_attr(
    lease_no_postgres,
    ignore = "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
async fn a_pool_store_listens_where_it_is_told() {
    let schema = Schema::new().await;
    let pool = Pool::builder(Manager::new(schema.driver.clone(), NoTls)).build().unwrap();
    let deaf = PostgresLeaseStore::from_pool(pool.clone()).build().unwrap();
    let listening_one = PostgresLeaseStore::from_pool(pool).listen(schema.driver.clone()).build().unwrap();
    listening(&listening_one).await;
    granted(&deaf, "job", "a", seconds(600)).await;
    let (mut never, wakeup) = (deaf.watch(&name("job")), listening_one.watch(&name("job")));
    assert!(deaf.release(&name("job"), &owner("a")).await.unwrap());
    wakes(wakeup).await;
    assert!((&mut never).now_or_never().is_none());
}

/// SD-07: a runtime that ends with a listener in it takes nothing with it: the next runtime's first watcher begins anew.
#[test]
#[cfg_attr(
    lease_no_postgres,
    ignore = "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
fn a_listener_outlives_its_runtime() {
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let first = runtime();
    let (schema, store) = first.block_on(async {
        let schema = Schema::new().await;
        let store = PostgresLeaseStore::connect(schema.config()).await.unwrap();
        listening(&store).await;
        (schema, store)
    });
    drop((schema, first));
    runtime().block_on(listening(&store));
    // Outside of any runtime there is nothing that could wake.
    drop(store.watch(&name("job")));
}
