//! Many contenders at the same moment.

use std::sync::Arc;

use futures::future::join_all;
use lease_core::{Acquisition, LeaseName, LeaseStore};
use tokio::sync::Barrier;

use crate::{
    Harness,
    history::{self, Load},
    kit::{grant, long, name, owner},
};

/// How many owners try at once.
const CONTENDERS: usize = 64;

/// S1, S8, RC-01, RC-07: of many that try for a name that has no row, one is granted it, and the others are refused without an error.
pub async fn one_of_many_wins_a_new_name(harness: &impl Harness) {
    let stores = stores(harness).await;
    for round in 0..harness.rounds() {
        contend(&stores, &name(&format!("job-{round}"))).await;
    }
}

/// S1, S8, RC-01, RC-02: of many that try for a lease that has run out, one is granted it, and the others are refused without an
/// error.
pub async fn one_of_many_wins_an_expired_lease(harness: &impl Harness) {
    let stores = stores(harness).await;
    let job = name("job");
    grant(&stores[0], &job, &owner("former"), long()).await;
    for _ in 0..harness.rounds() {
        harness.expire(&job).await;
        contend(&stores, &job).await;
    }
}

/// S1, S6: tasks that acquire, renew, release and pause at random never have a lease at the same time, and see tokens that rise.
pub async fn random_history_is_sound(harness: &impl Harness) {
    let store = Arc::new(harness.store().await);
    let load = Load::default().operations(u64::from(harness.rounds()) * 50).tasks(8).names(2);
    let records = history::record(&store, &load, 0).await;
    let summary = history::check(&records, harness.precision()).unwrap_or_else(|violation| panic!("{violation}"));
    assert_eq!(summary.failed, 0, "contention is no error");
    assert!(summary.grants > 0 && summary.refusals > 0 && summary.renewals > 0, "too little happened: {summary:?}");
}

async fn stores<H: Harness>(harness: &H) -> Vec<Arc<H::Store>> {
    let mut stores = Vec::new();
    for _ in 0..4 {
        stores.push(Arc::new(harness.store().await));
    }
    stores
}

async fn contend<S: LeaseStore>(stores: &[Arc<S>], name: &LeaseName) {
    let start = Arc::new(Barrier::new(CONTENDERS));
    let contenders = (0..CONTENDERS).map(|number| {
        let (store, name, start) = (Arc::clone(&stores[number % stores.len()]), name.clone(), Arc::clone(&start));
        tokio::spawn(async move {
            let owner = owner(&format!("contender-{number}"));
            start.wait().await;
            store.try_acquire(&name, &owner, long()).await
        })
    });
    let mut winners = 0;
    for answer in join_all(contenders).await {
        match answer.expect("no contender panics") {
            Ok(Acquisition::Acquired(_)) => winners += 1,
            Ok(_) => {}
            Err(error) => panic!("losing a race is no error: {error:?}"),
        }
    }
    assert_eq!(winners, 1, "{winners} of {CONTENDERS} were granted {name:?}");
}
