//! Many contenders at the same moment, over many connections.

use std::sync::Arc;

use futures::future::join_all;
use lease_mssql::{
    MssqlLeaseStore,
    lease_core::{Acquisition, LeaseStore},
};
use tokio::sync::Barrier;

use crate::support::{Schema, name, owner, rounds, seconds};

const CONTENDERS: usize = 64;

/// S1, S8, RC-01: of 64 that try for a name that has no row, one is granted it each time, and nobody gets an error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(
    lease_no_mssql,
    ignore = "no SQL Server: `LEASE_MSSQL_URL=mssql://USER:PASSWORD@HOST/DATABASE cargo xtask test`"
)]
async fn one_of_many_wins_a_new_name_each_time() {
    let schema = Schema::new().await;
    let stores = stores(&schema).await;
    for round in 0..rounds(20, 500) {
        contend(&stores, &format!("job-{round}")).await;
    }
}

/// S1, S8, RC-02: as above, with a lease that has run out, whose former owner renews and releases meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(
    lease_no_mssql,
    ignore = "no SQL Server: `LEASE_MSSQL_URL=mssql://USER:PASSWORD@HOST/DATABASE cargo xtask test`"
)]
async fn one_of_many_wins_an_expired_lease_each_time() {
    let schema = Schema::new().await;
    let stores = stores(&schema).await;
    for round in 0..rounds(10, 200) {
        let job = format!("job-{round}");
        schema
            .foreign
            .query(
                "INSERT INTO singleton_leases (name, owner, token, acquired_at, expires_at) \
             VALUES (@P1, N'former', 1, SYSUTCDATETIME(), SYSUTCDATETIME())",
                &[&job.as_str()],
            )
            .await;
        let (lease, former) = (name(&job), owner("stranger"));
        let ((), renewed, released) = tokio::join!(
            contend(&stores, &job),
            stores[0].renew(&lease, &former, seconds(600)),
            stores[1].release(&lease, &former),
        );
        assert!(!renewed.unwrap().is_renewed());
        assert!(!released.unwrap());
    }
}

async fn stores(schema: &Schema) -> Vec<MssqlLeaseStore> {
    join_all((0..4).map(|_| schema.store())).await
}

async fn contend(stores: &[MssqlLeaseStore], job: &str) {
    let barrier = Arc::new(Barrier::new(CONTENDERS));
    let contenders = (0..CONTENDERS).map(|index| {
        let (store, barrier, job) = (stores[index % stores.len()].clone(), Arc::clone(&barrier), name(job));
        tokio::spawn(async move {
            barrier.wait().await;
            store.try_acquire(&job, &owner(&format!("contender-{index}")), seconds(600)).await
        })
    });
    let mut winners = 0;
    for contender in contenders.collect::<Vec<_>>() {
        match contender.await.unwrap().unwrap() {
            Acquisition::Acquired(_) => winners += 1,
            Acquisition::Held(_) => {}
            other => panic!("neither a grant nor a refusal: {other:?}"),
        }
    }
    assert_eq!(winners, 1, "{job}");
}
