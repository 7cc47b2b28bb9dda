//! Foreign locks, triggers, and rows that somebody wrote by hand.

use std::time::Duration;

use lease_mssql::lease_core::{ErrorKind, ForceRelease, LeaseAdmin, LeaseStore, LossReason, Renewal, Term};

use crate::support::{Schema, granted, millis, name, owner, refused, renewed, seconds};

/// SM-06: triggers on the table that write elsewhere, and count or do not count, change no answer.
#[tokio::test]
#[cfg_attr(
    lease_no_mssql,
    ignore = "no SQL Server: `LEASE_MSSQL_URL=mssql://USER:PASSWORD@HOST/DATABASE cargo xtask test`"
)]
async fn triggers_change_no_answer() {
    let schema = Schema::new().await;
    let store = schema.store().await;
    schema.foreign.execute("CREATE TABLE audit (number int NOT NULL)").await;
    schema
        .foreign
        .execute("INSERT INTO audit VALUES (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11), (12)")
        .await;
    for (trigger, body) in [
        ("written", "AFTER INSERT, UPDATE AS UPDATE audit SET number = number + 1"),
        ("silent", "AFTER INSERT, UPDATE AS BEGIN SET NOCOUNT ON; DELETE FROM audit WHERE number < 0; END"),
    ] {
        schema.foreign.execute(&format!("CREATE TRIGGER {trigger} ON singleton_leases {body}")).await;
        let token = granted(&store, trigger, "a", seconds(600)).await;
        assert_eq!(refused(&store, trigger, "b").await.owner, Some(owner("a")));
        assert_eq!(renewed(&store, trigger, "a", seconds(600)).await, token);
        let terms = [Term::new(name(trigger), owner("a"), token), Term::new(name(trigger), owner("b"), token)];
        let many = store.renew_many(&terms, seconds(600)).await;
        assert!(many[0].as_ref().unwrap().is_renewed());
        assert_eq!(many[1].as_ref().unwrap(), &Renewal::Lost(LossReason::TakenOver(owner("a"))));
        assert!(store.release(&name(trigger), &owner("a")).await.unwrap());
        assert!(!store.release(&name(trigger), &owner("a")).await.unwrap());
        granted(&store, trigger, "b", seconds(600)).await;
        assert!(store.force_release(&name(trigger), ForceRelease::Now).await.unwrap().is_some());
        granted(&store, trigger, "b", seconds(600)).await;
        assert!(store.release_after(&name(trigger), &owner("b"), millis(1)).await.unwrap());
    }
    assert!(schema.foreign.one::<i32>("SELECT MIN(number) FROM audit", &[]).await > 1, "the triggers fired");
}

/// S7, CT-04, CT-06: a renewal that waited for a foreign lock, which committed or rolled back, lasts its whole duration.
#[tokio::test]
#[cfg_attr(
    lease_no_mssql,
    ignore = "no SQL Server: `LEASE_MSSQL_URL=mssql://USER:PASSWORD@HOST/DATABASE cargo xtask test`"
)]
async fn a_renewal_that_waited_lasts_in_full() {
    const LEASE: u64 = 700;
    let schema = Schema::new().await;
    let (store, blocking) = (schema.store().await, schema.database.address.session().await);
    granted(&store, "job", "a", seconds(600)).await;
    renewed(&store, "job", "a", seconds(600)).await;
    for end in ["COMMIT TRANSACTION", "ROLLBACK TRANSACTION"] {
        blocking.execute("BEGIN TRANSACTION; UPDATE singleton_leases SET token = token").await;
        let waiting = tokio::spawn({
            let store = store.clone();
            async move { store.renew(&name("job"), &owner("a"), millis(LEASE)).await.unwrap() }
        });
        tokio::time::sleep(Duration::from_millis(LEASE * 3 / 2)).await;
        assert!(!waiting.is_finished(), "the renewal did not wait");
        let unblocked =
            schema.foreign.one::<i64>("SELECT DATEDIFF_BIG(millisecond, '2020-01-01', SYSUTCDATETIME())", &[]).await;
        blocking.execute(end).await;
        assert!(waiting.await.unwrap().is_renewed());
        let expires =
            "SELECT DATEDIFF_BIG(millisecond, '2020-01-01', expires_at) FROM singleton_leases WHERE name = 'job'";
        let lasted = schema.foreign.one::<i64>(expires, &[]).await - unblocked;
        assert!(lasted >= i64::try_from(LEASE).unwrap() - 3, "{end}: only {lasted} ms");
    }
}

/// S8: a row that stays locked is an error that proves that nothing happened, in time; to an attempt it is a refusal.
#[tokio::test]
#[cfg_attr(
    lease_no_mssql,
    ignore = "no SQL Server: `LEASE_MSSQL_URL=mssql://USER:PASSWORD@HOST/DATABASE cargo xtask test`"
)]
async fn a_lock_that_outlasts_the_operation_is_answered() {
    let schema = Schema::new().await;
    let (store, blocking) = (schema.store().await, schema.database.address.session().await);
    granted(&store, "job", "a", seconds(600)).await;
    // As long as a session on a busy machine may need for its first statement; a lock is waited for a third of it.
    let limited = lease_mssql::MssqlLeaseStore::connect(schema.config().operation_timeout(Duration::from_secs(15)))
        .await
        .unwrap();
    blocking.execute("BEGIN TRANSACTION; UPDATE singleton_leases SET token = token").await;
    let error = limited.renew(&name("job"), &owner("a"), seconds(9)).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Busy | ErrorKind::Contended), "{error:?}");
    assert!(error.proves_nothing_happened());
    assert_eq!(limited.release(&name("job"), &owner("a")).await.unwrap_err().kind(), error.kind());
    assert_eq!(refused(&limited, "job", "a").await.remaining, Duration::ZERO);
    blocking.execute("ROLLBACK TRANSACTION").await;
    assert_eq!(refused(&limited, "job", "b").await.owner, Some(owner("a")));
    renewed(&limited, "job", "a", seconds(600)).await;
}

/// OV-05, SL-03: what somebody wrote by hand, to the ends of the range, neither panics nor wraps.
#[tokio::test]
#[cfg_attr(
    lease_no_mssql,
    ignore = "no SQL Server: `LEASE_MSSQL_URL=mssql://USER:PASSWORD@HOST/DATABASE cargo xtask test`"
)]
async fn values_at_the_end_of_their_range_are_no_trouble() {
    let schema = Schema::new().await;
    let store = schema.store().await;
    granted(&store, "job", "a", seconds(600)).await;
    for (time, is_held) in [("9999-12-31T23:59:59", true), ("0001-01-01T00:00:00", false)] {
        schema.foreign.execute(&format!("UPDATE singleton_leases SET owner = 'x', expires_at = '{time}'")).await;
        if is_held {
            let holder = refused(&store, "job", "b").await;
            assert_eq!(holder.owner, Some(owner("x")));
            assert!(holder.remaining > seconds(365 * 24 * 60 * 60).as_duration(), "{time}");
        } else {
            granted(&store, "job", "b", seconds(600)).await;
        }
    }
    let last = format!("UPDATE singleton_leases SET owner = NULL, expires_at = '1970-01-01', token = {}", i64::MAX);
    schema.foreign.execute(&last).await;
    let error = store.try_acquire(&name("job"), &owner("b"), seconds(9)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error:?}");
    granted(&store, "other", "b", seconds(600)).await;
}
