//! Wake-ups: none has to come, but one that a store promises must not be missed.

use futures::future::join_all;
use lease_core::{LeaseStore, Wakeup};
use tokio::time::timeout;

use crate::{
    Harness,
    kit::{extend, grant, long, name, owner, refusal, release},
    poll::drop_after,
};

/// S3, S11, S13: subscriptions that are dropped, polled or not, and that nobody polls, change nothing for anybody and use nothing up.
pub async fn watching_changes_nothing(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, a, b) = (name("job"), owner("a"), owner("b"));
    let free = store.watch(&job);
    let granted = grant(&store, &job, &a, long()).await;
    let mut kept = Vec::new();
    for _ in 0..64 {
        drop(store.watch(&job));
        drop_after(1, store.watch(&job)).await;
        kept.push(store.watch(&job));
    }
    assert_eq!(refusal(&store, &job, &b).await.value.owner.as_ref(), Some(&a));
    assert_eq!(extend(&store, &job, &a, long()).await.value.token, granted.value);
    release(&store, &job, &a, true).await;
    grant(&store, &job, &b, long()).await;
    drop((free, kept));
}

/// S3: a subscription begins when `watch` is called, so that a release before its first poll wakes it.
pub async fn release_before_the_first_poll_is_not_missed(harness: &impl Harness) {
    let (store, replica) = (harness.store().await, harness.store().await);
    let (job, a, b) = (name("job"), owner("a"), owner("b"));
    for _ in 0..harness.rounds() {
        grant(&replica, &job, &a, long()).await;
        let wakeup = store.watch(&job);
        refusal(&store, &job, &b).await;
        release(&replica, &job, &a, true).await;
        wakes(harness, wakeup).await;
        grant(&store, &job, &b, long()).await;
        release(&store, &job, &b, true).await;
    }
}

/// S3: a release wakes everybody who waits, for the one that gets the lease may be slow.
pub async fn release_wakes_every_watcher(harness: &impl Harness) {
    let (store, replica) = (harness.store().await, harness.store().await);
    let (job, a) = (name("job"), owner("a"));
    grant(&replica, &job, &a, long()).await;
    let (first, second, third) = (store.watch(&job), store.watch(&job), replica.watch(&job));
    let waiting = join_all([first, second, third].map(|wakeup| wakes(harness, wakeup)));
    let releasing = async {
        tokio::task::yield_now().await;
        release(&replica, &job, &a, true).await;
    };
    tokio::join!(waiting, releasing);
}

async fn wakes(harness: &impl Harness, wakeup: Wakeup) {
    let limit = harness.operation_timeout();
    assert!(timeout(limit, wakeup).await.is_ok(), "a release did not wake a watcher within {limit:?}");
}
