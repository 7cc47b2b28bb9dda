//! The write-ahead log stays small.

use std::fs;

use lease_sqlite::{
    SqliteLeaseStore,
    lease_core::{LeaseStore, Term},
};

use crate::support::{Database, granted, name, owner, seconds};

/// PB-04: a hundred thousand renewals fill the log while a foreign reader keeps it; once he has left, it shrinks to its limit, for
/// the store keeps no transaction open.
#[tokio::test]
async fn the_log_is_bounded_once_a_foreign_reader_has_left() {
    const LIMIT: u64 = 4 << 20;
    let database = Database::new();
    let (store, reader) = (database.store().await, database.foreign());
    let mut terms = Vec::new();
    for index in 0..100 {
        let lease = format!("job-{index}");
        let token = granted(&store, &lease, "a", seconds(30)).await;
        terms.push(Term::new(name(&lease), owner("a"), token));
    }
    let length = || fs::metadata(database.log_path()).unwrap().len();
    reader.execute("BEGIN");
    reader.one::<i64>("SELECT count(*) FROM singleton_leases", []);
    renew(&store, &terms).await;
    let kept = length();
    assert!(kept > LIMIT, "the reader should have kept the log: {kept} bytes");
    reader.execute("COMMIT");
    renew(&store, &terms).await;
    let bounded = length();
    assert!(bounded <= LIMIT, "{bounded} bytes");
}

/// A hundred thousand renewals.
async fn renew(store: &SqliteLeaseStore, terms: &[Term]) {
    for _ in 0..1000 {
        for renewal in store.renew_many(terms, seconds(30)).await {
            assert!(renewal.unwrap().is_renewed());
        }
    }
}
