//! The table: who creates it, what it has to be, and what happens without it.

use std::sync::Arc;

use lease_mssql::{
    MssqlLeaseStore,
    lease_core::{ErrorKind, FencingToken, ForceRelease, LeaseAdmin, LeaseStore, StoreError, Term},
};
use tokio::sync::Barrier;

use crate::support::{Schema, granted, name, owner, refused, renewed, seconds};

/// SM-01: many starters create the table at the same moment, and all of them may go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(
    lease_no_mssql,
    ignore = "no SQL Server: `LEASE_MSSQL_URL=mssql://USER:PASSWORD@HOST/DATABASE cargo xtask test`"
)]
async fn many_starters_may_migrate_at_once() {
    const STARTERS: usize = 24;
    let schema = Arc::new(Schema::without_table().await);
    let barrier = Arc::new(Barrier::new(STARTERS));
    let starters = (0..STARTERS).map(|_| {
        let (schema, barrier) = (Arc::clone(&schema), Arc::clone(&barrier));
        tokio::spawn(async move {
            let store = MssqlLeaseStore::connect(schema.config().pool_size(1)).await.unwrap();
            barrier.wait().await;
            store.migrate().await.unwrap();
        })
    });
    for starter in starters.collect::<Vec<_>>() {
        starter.await.unwrap();
    }
    granted(&schema.store().await, "job", "a", seconds(600)).await;
}

/// The six columns of the design, compared by code point, and one index.
#[tokio::test]
#[cfg_attr(
    lease_no_mssql,
    ignore = "no SQL Server: `LEASE_MSSQL_URL=mssql://USER:PASSWORD@HOST/DATABASE cargo xtask test`"
)]
async fn the_table_is_the_one_of_the_design() {
    let schema = Schema::new().await;
    let columns = "SELECT name, TYPE_NAME(system_type_id), CAST(max_length AS int), CAST(is_nullable AS int) \
                   FROM sys.columns WHERE object_id = OBJECT_ID(N'singleton_leases') ORDER BY column_id";
    let rows = schema.foreign.query(columns, &[]).await;
    let found: Vec<_> = rows
        .iter()
        .map(|row| {
            let text = |column| row.get::<&str, _>(column).unwrap().to_owned();
            (text(0), text(1), row.get::<i32, _>(2).unwrap(), row.get::<i32, _>(3).unwrap())
        })
        .collect();
    let expected = [
        ("name", "nvarchar", 510, 0),
        ("owner", "nvarchar", 510, 1),
        ("token", "bigint", 8, 0),
        ("acquired_at", "datetime2", 8, 0),
        ("expires_at", "datetime2", 8, 0),
        ("hand_over_at", "datetime2", 8, 1),
    ];
    assert_eq!(found, expected.map(|(name, kind, bytes, null)| (name.to_owned(), kind.to_owned(), bytes, null)));
    let indexes = "SELECT COUNT(*) FROM sys.indexes WHERE object_id = OBJECT_ID(N'singleton_leases') AND index_id > 0";
    assert_eq!(schema.foreign.one::<i32>(indexes, &[]).await, 1);
}

async fn every_verb(store: &MssqlLeaseStore) -> Vec<Result<(), StoreError>> {
    let (name, owner, duration) = (name("job"), owner("a"), seconds(600));
    let token = FencingToken::new(1);
    let terms = [Term::new(name.clone(), owner.clone(), token), Term::new(name.clone(), owner.clone(), token)];
    let mut results = vec![
        store.try_acquire(&name, &owner, duration).await.map(drop),
        store.renew(&name, &owner, duration).await.map(drop),
        store.release(&name, &owner).await.map(drop),
        store.release_after(&name, &owner, duration).await.map(drop),
        store.force_release(&name, ForceRelease::Now).await.map(drop),
    ];
    results.extend(store.renew_many(&terms, duration).await.into_iter().map(|renewal| renewal.map(drop)));
    results
}

/// S14, SM-02: without the table every verb says so, and the same store works as soon as the table is there again.
#[tokio::test]
#[cfg_attr(
    lease_no_mssql,
    ignore = "no SQL Server: `LEASE_MSSQL_URL=mssql://USER:PASSWORD@HOST/DATABASE cargo xtask test`"
)]
async fn a_missing_table_is_named_and_heals() {
    let schema = Schema::without_table().await;
    let store = schema.store().await;
    for _ in 0..2 {
        for result in every_verb(&store).await {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotMigrated, "{error:?}");
            assert!(
                error.to_string().contains("singleton_leases") && error.to_string().contains("call `migrate`"),
                "{error}"
            );
        }
        store.migrate().await.unwrap();
        store.migrate().await.unwrap();
        for result in every_verb(&store).await {
            result.unwrap();
        }
        schema.foreign.execute("DROP TABLE singleton_leases").await;
    }
    let elsewhere = MssqlLeaseStore::connect(schema.config().schema("no_such_schema")).await.unwrap();
    assert_eq!(elsewhere.migrate().await.unwrap_err().kind(), ErrorKind::NotMigrated);
    assert_eq!(every_verb(&elsewhere).await.remove(0).unwrap_err().kind(), ErrorKind::NotMigrated);
}

/// SM-04: a table that will not do is refused with the name of the column, and is left as it was.
#[tokio::test]
#[cfg_attr(
    lease_no_mssql,
    ignore = "no SQL Server: `LEASE_MSSQL_URL=mssql://USER:PASSWORD@HOST/DATABASE cargo xtask test`"
)]
async fn a_wrong_table_is_refused_by_the_name_of_its_column() {
    let right = "name nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY, \
                 owner nvarchar(255) COLLATE Latin1_General_100_BIN2 NULL, token bigint NOT NULL, \
                 acquired_at datetime2(6) NOT NULL, expires_at datetime2(6) NOT NULL, hand_over_at datetime2(6) NULL";
    let replaced = |from: &str, to: &str| {
        assert!(right.contains(from));
        format!("CREATE TABLE singleton_leases ({})", right.replace(from, to))
    };
    let schema = Schema::without_table().await;
    let store = schema.store().await;
    for (table, complaint) in [
        (replaced(", hand_over_at datetime2(6) NULL", ""), "column \"hand_over_at\" is missing"),
        (
            replaced("expires_at datetime2(6) NOT NULL", "expires_at datetime2(6) NULL"),
            "column \"expires_at\" must be NOT NULL",
        ),
        (
            replaced("expires_at datetime2(6)", "expires_at datetime"),
            "column \"expires_at\" is datetime: it must be datetime2(6)",
        ),
        (
            replaced(
                "owner nvarchar(255) COLLATE Latin1_General_100_BIN2",
                "owner nvarchar(255) COLLATE Latin1_General_CI_AS",
            ),
            "column \"owner\" is nvarchar(255) with the collation",
        ),
        (
            replaced(
                "owner nvarchar(255) COLLATE Latin1_General_100_BIN2",
                "owner nvarchar(9) COLLATE Latin1_General_100_BIN2",
            ),
            "column \"owner\" is nvarchar(9)",
        ),
        (replaced("NOT NULL PRIMARY KEY", "NOT NULL UNIQUE"), "column \"name\" must be the primary key"),
        (
            replaced("hand_over_at datetime2(6) NULL", "hand_over_at datetime2(6) NULL, shard int NOT NULL"),
            "column \"shard\"",
        ),
    ] {
        schema.foreign.execute(&table).await;
        let error = store.migrate().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotMigrated, "{table}");
        assert!(error.to_string().contains(complaint), "{table}: {error}");
        schema.foreign.execute("DROP TABLE singleton_leases").await;
    }
}

/// SM-04: a table with another name, be it a word of SQL, is a table like any other, in any schema; and columns of somebody else's may
/// stand beside ours, as long as they need no value.
#[tokio::test]
#[cfg_attr(
    lease_no_mssql,
    ignore = "no SQL Server: `LEASE_MSSQL_URL=mssql://USER:PASSWORD@HOST/DATABASE cargo xtask test`"
)]
async fn a_custom_table_works_under_any_plain_name() {
    let schema = Schema::without_table().await;
    schema.foreign.execute("CREATE SCHEMA jobs").await;
    for table in ["order", "lease", "Asked", &"t".repeat(60)] {
        let config = schema.config().schema("jobs").table(table).pool_size(1);
        let store = MssqlLeaseStore::connect(config).await.unwrap();
        store.migrate().await.unwrap();
        schema.foreign.execute(&format!("ALTER TABLE jobs.[{table}] ADD shard int NOT NULL DEFAULT 7")).await;
        store.migrate().await.unwrap();
        let token = granted(&store, "job", "a", seconds(600)).await;
        assert_eq!(refused(&store, "job", "b").await.owner, Some(owner("a")));
        assert_eq!(renewed(&store, "job", "a", seconds(600)).await, token);
        for result in every_verb(&store).await {
            result.unwrap();
        }
        let count = format!("SELECT COUNT(*) FROM jobs.[{table}]");
        assert_eq!(schema.foreign.one::<i32>(&count, &[]).await, 1, "{table}");
    }
}
