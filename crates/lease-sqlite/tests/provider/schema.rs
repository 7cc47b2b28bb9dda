//! The table: who creates it, what it has to be, and what happens without it.

use std::sync::Arc;

use lease_sqlite::{
    SqliteLeaseStore,
    lease_core::{ErrorKind, FencingToken, LeaseStore, StoreError, Term},
    rusqlite::Connection,
};
use tokio::sync::Barrier;

use crate::support::{Database, granted, migrated, name, owner, refused, seconds};

/// SM-01: two dozen starters create the table at the same moment, and all of them may go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_dozen_starters_may_migrate_at_once() {
    for _ in 0..10 {
        let database = Arc::new(Database::new());
        let barrier = Arc::new(Barrier::new(24));
        let starters = (0..24).map(|index| {
            let (database, barrier) = (Arc::clone(&database), Arc::clone(&barrier));
            tokio::spawn(async move {
                let store = SqliteLeaseStore::connect(database.config()).await.unwrap();
                barrier.wait().await;
                store.migrate().await.unwrap();
                granted(&store, &format!("job-{index}"), "a", seconds(30)).await;
            })
        });
        for starter in starters.collect::<Vec<_>>() {
            starter.await.unwrap();
        }
        assert_eq!(database.foreign().one::<i64>("SELECT count(*) FROM singleton_leases", []), 24);
    }
}

/// The six columns of the design, strict and without a second index.
#[tokio::test]
async fn the_table_is_the_one_of_the_design() {
    let database = Database::new();
    database.store().await;
    let foreign = database.foreign();
    let columns = "SELECT group_concat(name || ' ' || type || ' ' || \"notnull\", ', ') FROM pragma_table_info('singleton_leases')";
    assert_eq!(
        foreign.one::<String>(columns, []),
        "name TEXT 1, owner TEXT 0, token INTEGER 1, acquired_at INTEGER 1, expires_at INTEGER 1, hand_over_at INTEGER 0"
    );
    let shape = "SELECT wr AND strict FROM pragma_table_list('singleton_leases')";
    assert!(foreign.one::<bool>(shape, []));
    assert_eq!(foreign.one::<i64>("SELECT count(*) FROM pragma_index_list('singleton_leases')", []), 1);
}

async fn every_verb(store: &SqliteLeaseStore) -> Vec<Result<(), StoreError>> {
    let (name, owner, duration) = (name("job"), owner("a"), seconds(30));
    let token = FencingToken::new(1);
    let terms = [Term::new(name.clone(), owner.clone(), token), Term::new(name.clone(), owner.clone(), token)];
    let mut results = vec![
        store.try_acquire(&name, &owner, duration).await.map(drop),
        store.renew(&name, &owner, duration).await.map(drop),
        store.release(&name, &owner).await.map(drop),
        store.release_after(&name, &owner, duration).await.map(drop),
    ];
    results.extend(store.renew_many(&terms, duration).await.into_iter().map(|renewal| renewal.map(drop)));
    results
}

/// S14, SM-02: without the table every verb says so, and the same store works as soon as the table is there again.
#[tokio::test]
async fn a_missing_table_is_named_and_heals() {
    let database = Database::new();
    let store = SqliteLeaseStore::connect(database.config()).await.unwrap();
    for _ in 0..2 {
        for result in every_verb(&store).await {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotMigrated, "{error}");
            assert!(error.to_string().contains("singleton_leases: call `migrate`"), "{error}");
        }
        store.migrate().await.unwrap();
        for result in every_verb(&store).await {
            result.unwrap();
        }
        // Dropped and created anew by somebody else, under a store that has prepared its statements.
        database.foreign().execute("DROP TABLE singleton_leases");
    }
}

/// SM-04: a table that will not do is refused with the name of the column, and is left as it was.
#[tokio::test]
async fn a_wrong_table_is_refused_by_the_name_of_its_column() {
    let right = "name TEXT NOT NULL PRIMARY KEY, owner TEXT, token INTEGER NOT NULL, acquired_at INTEGER NOT NULL, \
                 expires_at INTEGER NOT NULL, hand_over_at INTEGER";
    let replaced = |from: &str, to: &str| {
        assert!(right.contains(from));
        format!("({}) STRICT", right.replace(from, to))
    };
    for (columns, complaint) in [
        (replaced(", hand_over_at INTEGER", ""), "column \"hand_over_at\" is missing"),
        (replaced("expires_at INTEGER NOT NULL", "expires_at INTEGER"), "column \"expires_at\" must be NOT NULL"),
        (replaced("expires_at INTEGER", "expires_at REAL"), "column \"expires_at\" is REAL: it must be INTEGER"),
        (replaced("owner TEXT", "owner TEXT NOT NULL"), "column \"owner\" must be nullable"),
        (replaced(" PRIMARY KEY", ""), "column \"name\" must be the primary key"),
        (
            replaced("hand_over_at INTEGER", "hand_over_at INTEGER, shard INTEGER NOT NULL"),
            "column \"shard\" must be nullable",
        ),
        (format!("({right})"), "it must be STRICT"),
    ] {
        let database = Database::new();
        let store = SqliteLeaseStore::connect(database.config()).await.unwrap();
        let foreign = database.foreign();
        foreign.execute(&["CREATE TABLE singleton_leases ", &columns].concat());
        let schema = foreign.one::<String>("SELECT sql FROM sqlite_schema", []);
        let error = store.migrate().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotMigrated, "{columns}");
        assert!(error.to_string().contains(complaint), "{columns}: {error}");
        assert_eq!(foreign.one::<String>("SELECT sql FROM sqlite_schema", []), schema);
    }
}

/// SM-04: columns of somebody else's may stand beside ours, as long as they need no value.
#[tokio::test]
async fn extra_columns_do_no_harm() {
    let database = Database::new();
    let store = database.store().await;
    database.foreign().execute(
        "ALTER TABLE singleton_leases ADD COLUMN note TEXT;
         ALTER TABLE singleton_leases ADD COLUMN shard INTEGER NOT NULL DEFAULT 7;
         ALTER TABLE singleton_leases ADD COLUMN seconds INTEGER NOT NULL AS (expires_at / 1000000)",
    );
    store.migrate().await.unwrap();
    for result in every_verb(&store).await {
        result.unwrap();
    }
}

/// SM-04: a table with another name, be it a word of SQL or of our statements, is a table like any other.
#[tokio::test]
async fn a_custom_table_works_under_any_plain_name() {
    for table in ["order", "clock", "lease", "excluded", "shape", "Found", "job_leases"] {
        let database = Database::new();
        let store = migrated(database.config().table(table)).await;
        granted(&store, "job", "a", seconds(30)).await;
        assert_eq!(refused(&store, "job", "b").await.owner, Some(owner("a")));
        assert!(store.renew(&name("job"), &owner("a"), seconds(30)).await.unwrap().is_renewed());
        assert!(!store.renew(&name("job"), &owner("b"), seconds(30)).await.unwrap().is_renewed());
        assert!(store.release(&name("job"), &owner("a")).await.unwrap());
        for result in every_verb(&store).await {
            result.unwrap();
        }
        let count = database.foreign().one::<i64>("SELECT count(*) FROM sqlite_schema WHERE name = ?1", [table]);
        assert_eq!(count, 1, "{table}");
    }
}

/// SM-04: with its table in place, `migrate` needs no right to write, nor the write lock.
#[tokio::test]
async fn migrating_what_is_there_only_reads() {
    let database = Database::new();
    let (store, foreign) = (database.store().await, database.foreign());
    foreign.lock();
    store.migrate().await.unwrap();
    foreign.unlock();
}

/// The rest of the file is the service's own.
#[tokio::test]
async fn what_else_is_in_the_file_stays_untouched() {
    let database = Database::new();
    let service = Connection::open(database.path()).unwrap();
    service.execute_batch("PRAGMA user_version = 42; PRAGMA application_id = 7; CREATE TABLE orders (id)").unwrap();
    let store = database.store().await;
    granted(&store, "job", "a", seconds(30)).await;
    let foreign = database.foreign();
    assert_eq!(foreign.one::<i64>("PRAGMA user_version", []), 42);
    assert_eq!(foreign.one::<i64>("PRAGMA application_id", []), 7);
    assert_eq!(foreign.one::<i64>("SELECT count(*) FROM sqlite_schema WHERE type = 'table'", []), 2);
}
