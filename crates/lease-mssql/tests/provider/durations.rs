//! Durations up to the ends of their range, to the microsecond.

use std::time::Duration;

use lease_mssql::lease_core::{LeaseDuration, LeaseStore, Term};

use crate::support::{Schema, granted, millis, name, owner, renewed};

const DAY: u64 = 24 * 60 * 60 * 1_000;

/// OV-01, OV-07: beyond what a 32-bit number of milliseconds holds, a grant, a renewal, a renewal of many and a rest end exactly when they
/// should, by the row's own times and by the clock.
#[tokio::test]
#[cfg_attr(
    lease_no_mssql,
    ignore = "no SQL Server: `LEASE_MSSQL_URL=mssql://USER:PASSWORD@HOST/DATABASE cargo xtask test`"
)]
async fn durations_beyond_32_bits_are_exact() {
    let schema = Schema::new().await;
    let store = schema.store().await;
    let exact = "SELECT DATEDIFF_BIG(microsecond, acquired_at, expires_at) FROM singleton_leases WHERE name = @P1";
    let left = "SELECT DATEDIFF_BIG(millisecond, SYSUTCDATETIME(), expires_at) FROM singleton_leases WHERE name = @P1";
    for milliseconds in [1, 2_147_483_647, 2_147_483_648, 25 * DAY, 365 * DAY - 1, 365 * DAY] {
        let (duration, whole) = (millis(milliseconds), i64::try_from(milliseconds).unwrap());
        let job = format!("job-{milliseconds}");
        let token = granted(&store, &job, "a", duration).await;
        assert_eq!(schema.foreign.one::<i64>(exact, &[&job.as_str()]).await, whole * 1_000);

        for many in [false, true] {
            let before = schema
                .foreign
                .one::<i64>("SELECT DATEDIFF_BIG(millisecond, '2020-01-01', SYSUTCDATETIME())", &[])
                .await;
            if many {
                let terms = [Term::new(name(&job), owner("a"), token)];
                assert!(store.renew_many(&terms, duration).await[0].as_ref().unwrap().is_renewed());
            } else {
                assert_eq!(renewed(&store, &job, "a", duration).await, token);
            }
            let remaining = schema.foreign.one::<i64>(left, &[&job.as_str()]).await;
            let after = schema
                .foreign
                .one::<i64>("SELECT DATEDIFF_BIG(millisecond, '2020-01-01', SYSUTCDATETIME())", &[])
                .await;
            assert!(
                (whole - (after - before) - 2..=whole + 2).contains(&remaining),
                "{milliseconds}: {remaining} left"
            );
        }
        assert!(store.release_after(&name(&job), &owner("a"), duration).await.unwrap());
        assert_eq!(schema.foreign.one::<i64>(exact, &[&job.as_str()]).await, whole * 1_000);
    }
    assert!(LeaseDuration::new(Duration::from_millis(365 * DAY + 1)).is_err());
}
