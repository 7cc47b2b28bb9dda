//! The file: where it may be, what becomes of a store whose file is deleted or replaced, and databases without one.

use std::{fs, path::Path};

use lease_sqlite::{
    SqliteConfig, SqliteLeaseStore,
    lease_core::{ErrorKind, LeaseStore, StoreError},
};

use crate::support::{Database, granted, migrated, name, owner, refused, seconds};

async fn connect_error(config: impl Into<SqliteConfig>) -> StoreError {
    SqliteLeaseStore::connect(config).await.unwrap_err()
}

/// SM-08: what would give every connection a database of its own is refused, whoever spells it.
#[tokio::test]
async fn a_private_database_is_refused() {
    for url in ["sqlite::memory:", "sqlite:", "sqlite:file::memory:?cache=shared", "sqlite:file:a.db"] {
        assert_eq!(connect_error(url).await.kind(), ErrorKind::InvalidConfig, "{url}");
    }
    assert_eq!(connect_error(SqliteConfig::new(":memory:")).await.kind(), ErrorKind::InvalidConfig);
}

/// S1, SM-08: in memory the clones of a store share its leases.
#[tokio::test]
async fn a_store_in_memory_is_one_store() {
    let store = migrated(SqliteConfig::in_memory()).await;
    let clone = store.clone();
    granted(&store, "job", "a", seconds(30)).await;
    assert_eq!(refused(&clone, "job", "b").await.owner, Some(owner("a")));
    drop(store);
    assert!(clone.release(&name("job"), &owner("a")).await.unwrap());
    granted(&clone, "job", "b", seconds(30)).await;
}

/// S1, S14: a store whose file was deleted says so, and then shares the leases of the file that took its place.
#[tokio::test]
async fn a_deleted_file_is_noticed_and_its_successor_used() {
    let database = Database::new();
    let old = database.store().await;
    granted(&old, "job", "a", seconds(30)).await;
    for suffix in ["", "-wal", "-shm"] {
        fs::remove_file(format!("{}{suffix}", database.path().display())).unwrap();
    }
    let gone = old.renew(&name("job"), &owner("a"), seconds(30)).await.unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::Unavailable, "{gone}");
    assert!(gone.to_string().contains("does not exist"), "{gone}");
    assert!(!database.path().exists(), "only connect and migrate create files");

    let new = database.store().await;
    granted(&new, "job", "b", seconds(30)).await;
    assert_eq!(refused(&old, "job", "c").await.owner, Some(owner("b")));
    assert!(!old.renew(&name("job"), &owner("a"), seconds(30)).await.unwrap().is_renewed());
}

/// S14: `migrate` makes a new file where one was deleted.
#[tokio::test]
async fn migrating_makes_a_deleted_file_anew() {
    let database = Database::new();
    let store = database.store().await;
    fs::remove_file(database.path()).unwrap();
    store.migrate().await.unwrap();
    granted(&store, "job", "a", seconds(30)).await;
}

/// A missing directory is named, or created when the configuration says so.
#[tokio::test]
async fn a_missing_directory_is_named_or_created() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state").join("lease").join("leases.db");
    let error = connect_error(SqliteConfig::new(&path)).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("its directory does not exist"), "{error}");
    let store = migrated(SqliteConfig::new(&path).create_parent(true)).await;
    granted(&store, "job", "a", seconds(30)).await;
}

#[tokio::test]
async fn a_missing_file_is_not_created_against_the_configuration() {
    let database = Database::new();
    let error = connect_error(database.config().create(false)).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(!database.path().exists());
    database.store().await;
    granted(&migrated(database.config().create(false)).await, "job", "a", seconds(30)).await;
}

/// What is no database is refused, and left as it was.
#[tokio::test]
async fn what_is_no_database_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notes.txt");
    let text = "these are notes and no database\n".repeat(100);
    fs::write(&path, &text).unwrap();
    for path in [path.as_path(), directory.path()] {
        let error = connect_error(SqliteConfig::new(path)).await;
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
}

/// A path is taken as it stands.
#[tokio::test]
async fn a_path_may_hold_any_character() {
    let directory = tempfile::tempdir().unwrap();
    for file in ["with space.db", "ünïcödé.db", "100%25.db", "what?.db", "#hash&.db"] {
        let path = directory.path().join(file);
        let store = migrated(SqliteConfig::new(&path)).await;
        granted(&store, "job", "a", seconds(30)).await;
        assert!(path.exists(), "{file}");
    }
}

/// Two paths to one file lead to the same leases.
#[cfg(unix)]
#[tokio::test]
async fn a_link_leads_to_the_same_leases() {
    let database = Database::new();
    let store = database.store().await;
    let link = database.path().with_file_name("link.db");
    std::os::unix::fs::symlink(Path::new("leases.db"), &link).unwrap();
    let linked = migrated(SqliteConfig::new(link)).await;
    granted(&store, "job", "a", seconds(30)).await;
    assert_eq!(refused(&linked, "job", "b").await.owner, Some(owner("a")));
}

/// The debug output names the file and the table.
#[tokio::test]
async fn the_debug_output_names_the_file() {
    let database = Database::new();
    let text = format!("{:?}", database.store().await);
    assert!(text.contains("leases.db") && text.contains("singleton_leases"), "{text}");
}
