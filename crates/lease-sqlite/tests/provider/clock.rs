//! The clock and the integers: short leases, steps of the clock, and rows that nobody should have written.

use std::time::Duration;

use lease_sqlite::{
    lease_core::{Acquisition, ErrorKind, FencingToken, LeaseDuration, LeaseStore},
    rusqlite::Connection,
};

use crate::support::{Database, granted, millis, name, owner, refused, seconds};

const HOUR: i64 = 3_600_000_000;

/// CT-14, OV-07: a lease of 30 ms ends after 30 ms to the microsecond, time after time.
#[tokio::test]
async fn a_short_lease_lasts_exactly_as_long() {
    let database = Database::new();
    let (store, foreign) = (database.store().await, database.foreign());
    let lease = name("job");
    granted(&store, "job", "a", millis(30)).await;
    let mut refusals = 0;
    for round in 0..20 {
        let before = foreign.row(&lease).unwrap();
        assert_eq!(before.expires_at, before.acquired_at + 30_000);
        let next = owner(["b", "a"][round % 2]);
        while let Acquisition::Held(holder) = store.try_acquire(&lease, &next, millis(30)).await.unwrap() {
            assert!(holder.remaining <= Duration::from_millis(30), "{holder:?}");
            refusals += 1;
        }
        assert!(foreign.row(&lease).unwrap().acquired_at >= before.expires_at);
    }
    assert!(refusals > 0, "nothing was seen while a lease was held");
}

/// S2, CT-01, CT-18: what decides is this host's clock now, which an independent client reads as well.
#[tokio::test]
async fn the_columns_are_unix_microseconds() {
    let database = Database::new();
    let (store, foreign) = (database.store().await, database.foreign());
    let token = granted(&store, "job", "a", seconds(30)).await;
    let row = foreign.row(&name("job")).unwrap();
    let now = foreign.one::<i64>("SELECT unixepoch('now')", []) * 1_000_000;
    assert!((now - row.acquired_at).abs() < 60_000_000);
    assert_eq!(token, FencingToken::new(row.acquired_at));
}

/// CT-17: a clock that steps forward ends leases, and the former holder is told.
///
/// The statements compare the clock with the columns and with nothing else, so moving the columns is moving the clock.
#[tokio::test]
async fn a_clock_that_steps_forward_ends_leases() {
    let database = Database::new();
    let (store, foreign) = (database.store().await, database.foreign());
    let first = granted(&store, "job", "a", seconds(30)).await;
    step(&foreign.0, HOUR);
    let second = granted(&store, "job", "b", seconds(30)).await;
    assert!(second.value() > first.value() - HOUR);
    assert!(!store.renew(&name("job"), &owner("a"), seconds(30)).await.unwrap().is_renewed());
}

/// S1, S6, CT-17: a clock that steps back makes no second grant, the holder mends its lease by renewing it, and tokens still rise.
#[tokio::test]
async fn a_clock_that_steps_back_grants_nothing_twice() {
    let database = Database::new();
    let (store, foreign) = (database.store().await, database.foreign());
    let first = granted(&store, "job", "a", seconds(30)).await;
    step(&foreign.0, -HOUR);
    let left = refused(&store, "job", "b").await.remaining;
    assert!(left > Duration::from_secs(3600));
    assert!(store.renew(&name("job"), &owner("a"), seconds(30)).await.unwrap().is_renewed());
    assert!(refused(&store, "job", "b").await.remaining <= Duration::from_secs(30));
    assert!(store.release(&name("job"), &owner("a")).await.unwrap());
    let second = granted(&store, "job", "b", seconds(30)).await;
    assert_eq!(second.value(), first.value() + HOUR + 1);
}

fn step(connection: &Connection, by: i64) {
    let sql =
        "UPDATE singleton_leases SET token = token - ?1, acquired_at = acquired_at - ?1, expires_at = expires_at - ?1";
    assert_eq!(connection.execute(sql, [by]).unwrap(), 1);
}

/// S10, OV-02, OV-05: times at the end of the range are compared and written without becoming floating point.
#[tokio::test]
async fn times_at_the_end_of_the_range_do_not_overflow() {
    let database = Database::new();
    let (store, foreign) = (database.store().await, database.foreign());
    granted(&store, "job", "a", LeaseDuration::MAX).await;
    for value in [i64::MAX, i64::MAX - 1, i64::MIN] {
        let sql = "UPDATE singleton_leases SET acquired_at = ?1, expires_at = ?1, hand_over_at = ?1";
        foreign.0.execute(sql, [value]).unwrap();
        if value > 0 {
            assert!(refused(&store, "job", "b").await.remaining > Duration::from_secs(1 << 40));
        }
        assert!(store.renew(&name("job"), &owner("a"), LeaseDuration::MAX).await.unwrap().is_renewed());
        assert!(store.release_after(&name("job"), &owner("a"), LeaseDuration::MAX).await.unwrap());
        let types = "SELECT typeof(token) || typeof(acquired_at) || typeof(expires_at) FROM singleton_leases";
        assert_eq!(foreign.one::<String>(types, []), "integerintegerinteger");
        foreign.execute("UPDATE singleton_leases SET owner = 'a'");
    }
}

/// S6, OV-05: a token that cannot rise any more is an error, never a smaller token.
#[tokio::test]
async fn a_token_at_the_end_of_the_range_is_not_granted_again() {
    let database = Database::new();
    let (store, foreign) = (database.store().await, database.foreign());
    granted(&store, "job", "a", seconds(30)).await;
    foreign.0.execute("UPDATE singleton_leases SET token = ?1, expires_at = 0", [i64::MAX]).unwrap();
    let before = foreign.row(&name("job"));
    let error = store.try_acquire(&name("job"), &owner("b"), seconds(30)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(foreign.row(&name("job")), before);
}

/// SL-03: a backup that holds an expired lease and a live one hinders nobody and says who has the other.
#[tokio::test]
async fn a_restored_row_is_judged_by_its_times() {
    let database = Database::new();
    let (store, foreign) = (database.store().await, database.foreign());
    foreign.execute(
        "INSERT INTO singleton_leases VALUES
             ('past', 'old', 1, 0, unixepoch('now', '-1 hour') * 1000000, NULL),
             ('ahead', 'old', 1, 0, unixepoch('now', '+1 hour') * 1000000, NULL),
             ('edited', '', 1, 0, unixepoch('now', '+1 hour') * 1000000, NULL)",
    );
    granted(&store, "past", "a", seconds(30)).await;
    let holder = refused(&store, "ahead", "a").await;
    assert_eq!(holder.owner, Some(owner("old")));
    assert!(holder.remaining > Duration::from_secs(3590));
    assert_eq!(refused(&store, "edited", "a").await.owner, None);
}
