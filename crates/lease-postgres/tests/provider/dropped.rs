//! Calls that are dropped at every poll, as the server sees what they leave.

use lease_conformance::poll::drop_after;
use lease_postgres::{
    PostgresLeaseStore,
    deadpool_postgres::{Manager, Pool},
    lease_core::{FencingToken, ForceRelease, LeaseAdmin, LeaseStore, Term},
    tokio_postgres::NoTls,
};

use crate::support::{Schema, granted, name, owner, refused, seconds};

/// S11, S13, CX-02, CX-08: after each verb was dropped at each of its polls, no session is in a transaction or runs a statement, the
/// pool has no more connections than it may, all of them at hand, and each answers.
#[tokio::test]
#[cfg_attr(
    lease_no_postgres,
    ignore = "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
async fn no_transaction_and_no_connection_is_left_behind() {
    let schema = Schema::new().await;
    let mut driver = schema.driver.clone();
    driver.application_name(&schema.name);
    let pool = Pool::builder(Manager::new(driver, NoTls)).max_size(2).build().unwrap();
    let store = PostgresLeaseStore::from_pool(pool.clone()).build().unwrap();
    let (job, a, duration) = (name("job"), owner("a"), seconds(600));
    let terms = [Term::new(job.clone(), a.clone(), FencingToken::new(1))];
    for verb in 0..6 {
        for polls in 0..40 {
            let finished = match verb {
                0 => drop_after(polls, store.try_acquire(&job, &a, duration)).await.is_some(),
                1 => drop_after(polls, store.renew(&job, &a, duration)).await.is_some(),
                2 => drop_after(polls, store.renew_many(&terms, duration)).await.is_some(),
                3 => drop_after(polls, store.release(&job, &a)).await.is_some(),
                4 => drop_after(polls, store.release_after(&job, &a, duration)).await.is_some(),
                _ => drop_after(polls, store.force_release(&job, ForceRelease::Now)).await.is_some(),
            };
            let status = pool.status();
            assert!(status.size <= 2 && status.available == status.size, "verb {verb}, {polls} polls: {status:?}");
            if finished {
                break;
            }
            assert!(polls < 39, "verb {verb} needs more polls");
        }
    }
    let busy = "SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = $1 AND state <> 'idle'";
    schema.foreign.until(busy, &[&schema.name]).await;
    let few = "SELECT count(*) <= 2 FROM pg_stat_activity WHERE application_name = $1";
    schema.foreign.until(few, &[&schema.name]).await;
    granted(&store, "other", "a", duration).await;
    assert_eq!(refused(&store, "other", "b").await.owner, Some(a));
}
