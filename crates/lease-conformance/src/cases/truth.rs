//! Answers that are proof.

use crate::{
    Harness,
    kit::{assert_time_left, extend, grant, long, millis, name, owner, refusal, release, rest},
};

/// S8, S13: what a verb answered is committed when the answer arrives: the next call, over another store's connection, sees it.
pub async fn answer_is_committed_when_it_arrives(harness: &impl Harness) {
    let (store, replica) = (harness.store().await, harness.store().await);
    let (job, a, b) = (name("job"), owner("a"), owner("b"));
    for _ in 0..harness.rounds() {
        grant(&store, &job, &a, millis(60_000)).await;
        assert_eq!(refusal(&replica, &job, &b).await.value.owner.as_ref(), Some(&a));
        let renewed = extend(&store, &job, &a, long()).await;
        assert_time_left(harness, &renewed, long(), &refusal(&replica, &job, &b).await);
        release(&store, &job, &a, true).await;
        grant(&replica, &job, &b, long()).await;
        release(&replica, &job, &b, true).await;
    }
}

/// S8: each answer is what the row says, as an independent reader sees it.
pub async fn grant_is_proof(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, a, b) = (name("job"), owner("a"), owner("b"));
    for holder in [&a, &b] {
        let token = grant(&store, &job, holder, long()).await.value;
        let row = harness.row(&job).await.expect("a held lease has a row");
        assert_eq!((row.owner.as_ref(), row.token), (Some(holder), token.value()));
        assert!(row.expires_at > harness.clock().await, "a grant that has run out is none");
        assert_eq!(row.hand_over_at, None);
        extend(&store, &job, holder, long()).await;
        let renewed = harness.row(&job).await.expect("a held lease has a row");
        assert!(renewed.expires_at >= row.expires_at, "a renewal took time away");
        assert_eq!((renewed.owner, renewed.token, renewed.acquired_at), (row.owner, row.token, row.acquired_at));
        release(&store, &job, holder, true).await;
        assert_eq!(harness.row(&job).await.and_then(|row| row.owner), None);
    }
    grant(&store, &job, &a, long()).await;
    rest(&store, &job, &a, long()).await;
    let row = harness.row(&job).await.expect("a resting lease has a row");
    assert!(row.owner.is_none() && row.expires_at > harness.clock().await, "{row:?} does not rest");
}

/// S1, S8: over whichever store an owner asks, its lease is the same.
pub async fn replicas_agree(harness: &impl Harness) {
    let mut replicas = Vec::new();
    for _ in 0..4 {
        replicas.push(harness.store().await);
    }
    let (job, a, b) = (name("job"), owner("a"), owner("b"));
    let granted = grant(&replicas[0], &job, &a, long()).await;
    for replica in &replicas {
        assert_eq!(extend(replica, &job, &a, long()).await.value.token, granted.value);
        assert_eq!(refusal(replica, &job, &b).await.value.owner.as_ref(), Some(&a));
    }
    release(&replicas[3], &job, &a, true).await;
    for replica in &replicas {
        release(replica, &job, &a, false).await;
    }
}
