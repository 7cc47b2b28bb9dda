//! What one call costs, against what the driver's own statements cost. Both sides of a ratio take turns, so that whatever slows the
//! machine down slows both down.

use lease_postgres::{
    PostgresLeaseStore,
    lease_core::{FencingToken, LeaseDuration, LeaseName, LeaseStore, OwnerId, StoreError, Term},
    tokio_postgres::{Client, Statement},
};

use crate::{Place, Result, report, samples::Samples};

const READS: usize = 2000;
const WRITES: usize = 500;
const LEASES: usize = 1000;
/// Enough for the server to have come to a plan that it keeps.
const HEARTBEATS: usize = 12;
const ONE_BY_ONE: usize = 2;

const REFUSAL_BUDGET: f64 = 1.8;
const WRITE_BUDGET: f64 = 1.25;
const HEARTBEAT_BUDGET: f64 = 30.0;

/// Somebody else's table, with room for a row to be updated in its page, as ours has.
const OTHER: &str =
    "CREATE TABLE other (id int PRIMARY KEY, value bigint) WITH (fillfactor = 50); INSERT INTO other VALUES (1, 0)";

pub(crate) async fn measure(place: &Place) -> Result<bool> {
    let (store, client) = (place.store().await?, place.client().await?);
    client.batch_execute(OTHER).await?;
    let kept = [refusals(&store, &client).await?, writes(&store, &client).await?, heartbeats(&store).await?];
    Ok(kept == [true; 3])
}

/// A refusal costs little more than any read of one row.
async fn refusals(store: &PostgresLeaseStore, client: &Client) -> Result<bool> {
    let (job, a, b) = (LeaseName::new("refused")?, OwnerId::new("a")?, OwnerId::new("b")?);
    assert!(store.try_acquire(&job, &a, LeaseDuration::MAX).await?.is_acquired());
    let select = client.prepare("SELECT 1").await?;
    let (mut bare, mut refusal) = (Samples::default(), Samples::default());
    for _ in 0..READS {
        bare.time(client.query_one(&select, &[])).await?;
        assert!(!refusal.time(store.try_acquire(&job, &b, LeaseDuration::MAX)).await?.is_acquired());
    }
    Ok(compare("refused attempt / prepared SELECT 1", &mut refusal, &mut bare, REFUSAL_BUDGET))
}

/// A grant and a renewal cost little more than one durable write of one row.
async fn writes(store: &PostgresLeaseStore, client: &Client) -> Result<bool> {
    let (job, owner) = (LeaseName::new("granted")?, OwnerId::new("a")?);
    let update = client.prepare("UPDATE other SET value = value + 1 WHERE id = 1").await?;
    let (mut bare, mut acquire, mut renew) = (Samples::default(), Samples::default(), Samples::default());
    for _ in 0..WRITES {
        bare.time(durable(client, &update)).await?;
        assert!(acquire.time(store.try_acquire(&job, &owner, LeaseDuration::MAX)).await?.is_acquired());
        assert!(renew.time(store.renew(&job, &owner, LeaseDuration::MAX)).await?.is_renewed());
    }
    let acquire = compare("acquire / durable UPDATE of one row", &mut acquire, &mut bare, WRITE_BUDGET);
    Ok(compare("renew / durable UPDATE of one row", &mut renew, &mut bare, WRITE_BUDGET) && acquire)
}

async fn durable(client: &Client, update: &Statement) -> Result<()> {
    assert_eq!(client.execute(update, &[]).await?, 1);
    Ok(())
}

/// A heartbeat costs one round trip and one wait for the disk, for however many leases.
async fn heartbeats(store: &PostgresLeaseStore) -> Result<bool> {
    let owner = OwnerId::new("a")?;
    let mut terms = Vec::new();
    for index in 0..LEASES {
        let name = LeaseName::new(format!("beat-{index}"))?;
        assert!(store.try_acquire(&name, &owner, LeaseDuration::MAX).await?.is_acquired());
        terms.push(Term::new(name, owner.clone(), FencingToken::new(0)));
    }
    let (mut together, mut one_by_one) = (Samples::default(), Samples::default());
    for heartbeat in 0..HEARTBEATS {
        for renewal in together.time(store.renew_many(&terms, LeaseDuration::MAX)).await {
            assert!(renewal?.is_renewed());
        }
        if heartbeat >= ONE_BY_ONE {
            continue;
        }
        let all = async {
            for term in &terms {
                assert!(store.renew(&term.name, &term.owner, LeaseDuration::MAX).await?.is_renewed());
            }
            Ok::<_, StoreError>(())
        };
        one_by_one.time(all).await?;
    }
    let (together, one_by_one) = (together.median(), one_by_one.median());
    let ratio = one_by_one.as_secs_f64() / together.as_secs_f64();
    let measured = format!("{ratio:.0} times faster ({together:?} / {one_by_one:?}), budget {HEARTBEAT_BUDGET}");
    Ok(report(&format!("{LEASES} renewals in one call / one by one"), &measured, ratio >= HEARTBEAT_BUDGET))
}

fn compare(what: &str, ours: &mut Samples, bare: &mut Samples, budget: f64) -> bool {
    let (ours, bare) = (ours.median(), bare.median());
    let ratio = ours.as_secs_f64() / bare.as_secs_f64();
    report(what, &format!("{ratio:.2} ({ours:?} / {bare:?}, medians), budget {budget}"), ratio <= budget)
}
