//! The table: who creates it, what it has to be, what rights it takes, and what happens without it.

use std::sync::Arc;

use lease_conformance::servers::PostgresServer;
use lease_postgres::{
    PostgresConfig, PostgresLeaseStore,
    lease_core::{ErrorKind, FencingToken, ForceRelease, LeaseAdmin, LeaseStore, StoreError, Term},
};
use tokio::sync::Barrier;

use crate::{
    server::{PATIENCE, connect},
    support::{Schema, granted, name, owner, refused, renewed, seconds},
};

/// SM-01: two dozen starters create the table at the same moment, and all of them may go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(
    lease_no_postgres,
    ignore = "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
async fn two_dozen_starters_may_migrate_at_once() {
    for _ in 0..10 {
        let schema = Arc::new(Schema::without_table(PostgresServer::shared()).await);
        let barrier = Arc::new(Barrier::new(24));
        let starters = (0..24).map(|index| {
            let (schema, barrier) = (Arc::clone(&schema), Arc::clone(&barrier));
            tokio::spawn(async move {
                let store = PostgresLeaseStore::connect(schema.config().pool_size(1)).await.unwrap();
                barrier.wait().await;
                store.migrate().await.unwrap();
                granted(&store, &format!("job-{index}"), "a", seconds(600)).await;
            })
        });
        for starter in starters.collect::<Vec<_>>() {
            starter.await.unwrap();
        }
        assert_eq!(schema.foreign.one::<i64>("SELECT count(*) FROM singleton_leases", &[]).await, 24);
    }
}

/// The six columns of the design, compared by code point, half of each page free, and one index.
#[tokio::test]
#[cfg_attr(
    lease_no_postgres,
    ignore = "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
async fn the_table_is_the_one_of_the_design() {
    let schema = Schema::new().await;
    let columns = "SELECT string_agg(concat_ws(' ', attname, format_type(atttypid, atttypmod), attnotnull, collname), ', ' ORDER BY attnum) \
                   FROM pg_attribute LEFT JOIN pg_collation ON pg_collation.oid = attcollation \
                   WHERE attrelid = 'singleton_leases'::regclass AND attnum > 0";
    assert_eq!(
        schema.foreign.one::<String>(columns, &[]).await,
        "name text t C, owner text f C, token bigint t, acquired_at timestamp with time zone t, \
         expires_at timestamp with time zone t, hand_over_at timestamp with time zone f"
    );
    let options = "SELECT reloptions::text FROM pg_class WHERE oid = 'singleton_leases'::regclass";
    assert_eq!(schema.foreign.one::<String>(options, &[]).await, "{fillfactor=50}");
    let indexes = "SELECT count(*) FROM pg_index WHERE indrelid = 'singleton_leases'::regclass";
    assert_eq!(schema.foreign.one::<i64>(indexes, &[]).await, 1);
}

async fn every_verb(store: &PostgresLeaseStore) -> Vec<Result<(), StoreError>> {
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
    lease_no_postgres,
    ignore = "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
async fn a_missing_table_is_named_and_heals() {
    let schema = Schema::without_table(PostgresServer::shared()).await;
    let store = schema.store().await;
    for _ in 0..2 {
        for result in every_verb(&store).await {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotMigrated, "{error}");
            assert!(error.to_string().contains("\"singleton_leases\" does not exist: call `migrate`"), "{error}");
        }
        store.migrate().await.unwrap();
        for result in every_verb(&store).await {
            result.unwrap();
        }
        // Dropped by somebody else, under a store that has prepared its statements.
        schema.foreign.execute("DROP TABLE singleton_leases").await;
    }
    let elsewhere = PostgresLeaseStore::connect(schema.config().schema("no_such_schema")).await.unwrap();
    assert_eq!(elsewhere.migrate().await.unwrap_err().kind(), ErrorKind::NotMigrated);
    assert_eq!(every_verb(&elsewhere).await.remove(0).unwrap_err().kind(), ErrorKind::NotMigrated);
}

/// SM-04: a table that will not do is refused with the name of the column, and is left as it was.
#[tokio::test]
#[cfg_attr(
    lease_no_postgres,
    ignore = "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
async fn a_wrong_table_is_refused_by_the_name_of_its_column() {
    let right = "name text PRIMARY KEY, owner text, token bigint NOT NULL, acquired_at timestamptz NOT NULL, \
                 expires_at timestamptz NOT NULL, hand_over_at timestamptz";
    let replaced = |from: &str, to: &str| {
        assert!(right.contains(from));
        format!("CREATE TABLE singleton_leases ({})", right.replace(from, to))
    };
    let schema = Schema::without_table(PostgresServer::shared()).await;
    let store = schema.store().await;
    schema
        .foreign
        .execute("CREATE COLLATION fold (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
        .await;
    for (table, complaint) in [
        (replaced(", hand_over_at timestamptz", ""), "column \"hand_over_at\" is missing"),
        (
            replaced("expires_at timestamptz NOT NULL", "expires_at timestamptz"),
            "column \"expires_at\" must be NOT NULL",
        ),
        (
            replaced("expires_at timestamptz", "expires_at timestamp"),
            "column \"expires_at\" is timestamp without time zone: it must be timestamp with time zone",
        ),
        (replaced("owner text", "owner text NOT NULL"), "column \"owner\" must be nullable"),
        (
            replaced("owner text", "owner text COLLATE fold"),
            "column \"owner\" is text with a nondeterministic collation",
        ),
        (replaced("owner text", "owner varchar(9)"), "column \"owner\" is character varying(9)"),
        (replaced("text PRIMARY KEY", "text NOT NULL UNIQUE"), "column \"name\" must be the primary key"),
        (
            replaced("hand_over_at timestamptz", "hand_over_at timestamptz, shard int NOT NULL"),
            "column \"shard\" must be nullable",
        ),
        (replaced("", "").replace("CREATE", "CREATE UNLOGGED"), "neither temporary nor unlogged"),
        ("CREATE VIEW singleton_leases AS SELECT 1 AS name".into(), "it must be a table"),
    ] {
        schema.foreign.execute(&table).await;
        let error = store.migrate().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotMigrated, "{table}");
        assert!(error.to_string().contains(complaint), "{table}: {error}");
        let kind = if table.contains("VIEW") { "VIEW" } else { "TABLE" };
        schema.foreign.execute(&format!("DROP {kind} singleton_leases")).await;
    }
}

/// SM-04, CL-08: columns of somebody else's may stand beside ours, as long as they need no value; and they may come while a store has
/// its statements prepared.
#[tokio::test]
#[cfg_attr(
    lease_no_postgres,
    ignore = "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
async fn extra_columns_do_no_harm() {
    let schema = Schema::new().await;
    let store = schema.store().await;
    for result in every_verb(&store).await {
        result.unwrap();
    }
    for column in [
        "note text",
        "shard int NOT NULL DEFAULT 7",
        "number bigserial",
        "length int GENERATED ALWAYS AS (length(name)) STORED",
    ] {
        schema.foreign.execute(&format!("ALTER TABLE singleton_leases ADD COLUMN {column}")).await;
        for result in every_verb(&store).await {
            result.unwrap();
        }
        store.migrate().await.unwrap();
    }
}

/// CL-08: a change of a column's type under prepared statements is answered by sending them unnamed.
#[tokio::test]
#[cfg_attr(
    lease_no_postgres,
    ignore = "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
async fn a_lost_plan_is_made_anew() {
    let schema = Schema::new().await;
    let store = PostgresLeaseStore::connect(schema.config().pool_size(1)).await.unwrap();
    granted(&store, "job", "a", seconds(600)).await;
    renewed(&store, "job", "a", seconds(600)).await;
    schema.foreign.execute("ALTER TABLE singleton_leases ALTER COLUMN owner TYPE varchar(300)").await;
    assert_eq!(refused(&store, "job", "b").await.owner, Some(owner("a")));
    renewed(&store, "job", "a", seconds(600)).await;
    schema.foreign.execute("ALTER TABLE singleton_leases ALTER COLUMN owner TYPE text").await;
    assert_eq!(refused(&store, "job", "b").await.owner, Some(owner("a")));
}

/// CL-08: sessions that forget their prepared statements, as those behind a pooler do.
#[tokio::test]
#[cfg_attr(
    lease_no_postgres,
    ignore = "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
async fn lost_statements_are_sent_unnamed() {
    use lease_postgres::{
        deadpool_postgres::{Manager, Pool},
        tokio_postgres::NoTls,
    };
    let schema = Schema::new().await;
    let pool = Pool::builder(Manager::new(schema.driver.clone(), NoTls)).max_size(2).build().unwrap();
    let store = PostgresLeaseStore::from_pool(pool.clone()).build().unwrap();
    granted(&store, "job", "a", seconds(600)).await;
    pool.get().await.unwrap().batch_execute("DEALLOCATE ALL").await.unwrap();
    assert_eq!(refused(&store, "job", "a2").await.owner, Some(owner("a")));
    granted(&store, "job", "a", seconds(600)).await;
    renewed(&store, "job", "a", seconds(600)).await;
}

/// SM-04: a table with another name, be it a word of SQL or of our statements, is a table like any other, in any schema.
#[tokio::test]
#[cfg_attr(
    lease_no_postgres,
    ignore = "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
async fn a_custom_table_works_under_any_plain_name() {
    let schema = Schema::without_table(PostgresServer::shared()).await;
    for table in ["order", "lease", "seen", "clock", "Locked", "excluded", "job_leases", &"t".repeat(63)] {
        let config = PostgresConfig::new(schema.driver.clone()).schema(&schema.name).table(table).pool_size(1);
        let store = PostgresLeaseStore::connect(config).await.unwrap();
        store.migrate().await.unwrap();
        store.migrate().await.unwrap();
        granted(&store, "job", "a", seconds(600)).await;
        assert_eq!(refused(&store, "job", "b").await.owner, Some(owner("a")));
        renewed(&store, "job", "a", seconds(600)).await;
        let wakeup = store.watch(&name("job"));
        assert!(store.release(&name("job"), &owner("a")).await.unwrap());
        tokio::time::timeout(PATIENCE, wakeup).await.unwrap();
        for result in every_verb(&store).await {
            result.unwrap();
        }
        let count = "SELECT count(*) FROM pg_tables WHERE schemaname = $1 AND tablename = $2";
        assert_eq!(schema.foreign.one::<i64>(count, &[&schema.name, &table]).await, 1, "{table}");
    }
}

/// The rights that the documentation lists are enough, and each of them is needed: proven by a role that has no other.
#[tokio::test]
#[cfg_attr(
    lease_no_postgres,
    ignore = "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
async fn the_listed_rights_are_enough() {
    let server = PostgresServer::local("").unwrap();
    let schema = Schema::on(&server).await;
    let admin = &schema.foreign;
    admin.execute("CREATE ROLE worker LOGIN; REVOKE ALL ON SCHEMA public FROM PUBLIC").await;
    let mut driver = schema.driver.clone();
    driver.user("worker");
    let store = PostgresLeaseStore::connect(PostgresConfig::new(driver).schema(&schema.name)).await.unwrap();

    for grant in ["USAGE ON SCHEMA", "SELECT ON", "INSERT ON", "UPDATE ON"] {
        let errors = every_verb(&store).await.into_iter().filter_map(Result::err).collect::<Vec<_>>();
        assert!(!errors.is_empty(), "{grant} is not needed");
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::Denied, "before {grant}: {error:?}");
            assert!(error.to_string().contains("permission denied"), "{error}");
        }
        let object = if grant.ends_with("SCHEMA") { schema.name.clone() } else { "singleton_leases".into() };
        admin.execute(&format!("GRANT {grant} {object} TO worker")).await;
    }
    for result in every_verb(&store).await {
        result.unwrap();
    }
    store.migrate().await.unwrap();
    let token = granted(&store, "fenced", "a", seconds(600)).await;
    let mut client = {
        let mut driver = schema.driver.clone();
        driver.user("worker");
        connect(&driver).await
    };
    let term = Term::new(name("fenced"), owner("a"), token);
    store.commit(client.transaction().await.unwrap(), &term).await.unwrap();

    admin.execute("DROP TABLE singleton_leases").await;
    assert_eq!(store.migrate().await.unwrap_err().kind(), ErrorKind::Denied);
    admin.execute(&format!("GRANT CREATE ON SCHEMA {} TO worker", schema.name)).await;
    store.migrate().await.unwrap();
    for result in every_verb(&store).await {
        result.unwrap();
    }
}

/// OV-05, SL-03: what somebody wrote by hand, to the ends of the range, neither panics nor wraps.
#[tokio::test]
#[cfg_attr(
    lease_no_postgres,
    ignore = "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
async fn values_at_the_end_of_their_range_are_no_trouble() {
    let schema = Schema::new().await;
    let store = schema.store().await;
    granted(&store, "job", "a", seconds(600)).await;
    for (time, is_held) in [("infinity", true), ("294276-01-01", true), ("-infinity", false), ("4713-01-01 BC", false)]
    {
        schema.foreign.execute(&format!("UPDATE singleton_leases SET owner = 'x', expires_at = '{time}'")).await;
        if is_held {
            let holder = refused(&store, "job", "b").await;
            assert_eq!(holder.owner, Some(owner("x")));
            assert!(holder.remaining > seconds(365 * 24 * 60 * 60).as_duration(), "{time}");
        } else {
            granted(&store, "job", "b", seconds(600)).await;
        }
    }
    let last = i64::MAX;
    schema
        .foreign
        .execute(&format!("UPDATE singleton_leases SET owner = NULL, expires_at = 'epoch', token = {last}"))
        .await;
    let error = store.try_acquire(&name("job"), &owner("b"), seconds(9)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error:?}");
    assert!(error.proves_nothing_happened());
    schema.foreign.execute("UPDATE singleton_leases SET owner = 'b', acquired_at = 'infinity', token = 1").await;
    assert!(store.release_after(&name("job"), &owner("b"), seconds(9)).await.unwrap());
    assert_eq!(refused(&store, "job", "b").await.owner, None);
}
