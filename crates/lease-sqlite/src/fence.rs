//! Fenced transactions: those of a service's own that commit only in the term of a lease.

use std::path::Path;

use lease_core::{AsTerm, ErrorKind, FenceError, FenceReason, Operation, Term};
use rusqlite::{Connection, DropBehavior, MAIN_DB, Transaction, TransactionState};

use crate::{SqliteLeaseStore, error::Failure, file};

impl SqliteLeaseStore {
    /// Verifies on the caller's own open transaction that `lease` is held, and keeps it so: until the transaction ends, nobody else is
    /// granted the lease.
    ///
    /// The transaction is on a connection of the caller's own to the store's file. Begin it `IMMEDIATE`, or verify before it reads
    /// anything. Prefer [`commit`](Self::commit), which verifies last.
    ///
    /// This blocks, until the write lock is free or the connection's own [busy timeout](Connection::busy_timeout) has passed: in
    /// asynchronous code, run the whole transaction within `spawn_blocking`.
    ///
    /// Keep the transaction short. SQLite has one writer at a time, so that from its first write on, which is `verify` at the latest,
    /// every other writer of the file waits for its end: the holder's own renewals too, and any verb of a store that is awaited inside
    /// it in vain. A client that freezes meanwhile holds everybody up until it goes on or is ended.
    ///
    /// # Errors
    ///
    /// [`FenceError::Fenced`]: the term is over, or has run out; roll back. [`ErrorKind::RestartTransaction`]: roll back and begin again,
    /// for the transaction has read before and cannot become a writer any more, or SQLite has ended it after an earlier error.
    /// [`ErrorKind::Busy`]: another writer kept the file for the whole busy timeout; verify again, or roll back.
    /// [`ErrorKind::InvalidConfig`]: the connection is to another file than the store's, or the store is in memory. After any other
    /// error the transaction must not commit.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lease_sqlite::{SqliteLeaseStore, lease_core::{LeaseDuration, LeaseName, LeaseStore, OwnerId, Term}};
    /// use lease_sqlite::{lease_core::FenceError, rusqlite::{Connection, TransactionBehavior}};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("leases.db");
    /// # let store = SqliteLeaseStore::connect(lease_sqlite::SqliteConfig::new(&path)).await?;
    /// # store.migrate().await?;
    /// # let (name, owner) = (LeaseName::new("payments")?, OwnerId::new("web-1")?);
    /// # let duration = LeaseDuration::new(Duration::from_secs(30))?;
    /// # let token = store.try_acquire(&name, &owner, duration).await?.token().ok_or("held")?;
    /// # let lease = Term::new(name, owner, token);
    /// let mut connection = Connection::open(&path)?;
    /// # connection.execute_batch("CREATE TABLE ledger (entry TEXT)")?;
    /// let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    /// transaction.execute("INSERT INTO ledger (entry) VALUES ('paid')", [])?;
    /// match store.commit(transaction, &lease) {
    ///     Ok(()) => println!("paid, once"),
    ///     Err(FenceError::Fenced(reason)) => println!("another instance pays: {reason}"),
    ///     Err(error) => return Err(error.into()),
    /// }
    /// # assert_eq!(connection.query_row("SELECT count(*) FROM ledger", [], |row| row.get::<_, i64>(0))?, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn verify(&self, transaction: &Transaction<'_>, lease: &impl AsTerm) -> Result<(), FenceError> {
        let Some(term) = lease.as_term() else {
            return Ok(());
        };
        match self.verify_term(transaction, term) {
            Ok(None) => Ok(()),
            Ok(Some(reason)) => Err(FenceError::Fenced(reason)),
            Err(failure) => Err(failure.into_error(Operation::Verify).into()),
        }
    }

    /// Verifies that `lease` is held and commits the transaction in that term.
    ///
    /// This blocks, as [`verify`](Self::verify) does.
    ///
    /// # Errors
    ///
    /// As for [`verify`](Self::verify), and then the transaction is rolled back, whatever its drop behaviour was set to.
    /// [`ErrorKind::Unsupported`]: a constraint of the transaction's own, such as a deferred foreign key, kept it from being committed.
    /// [`ErrorKind::Indeterminate`]: the commit broke off. If it was made, it was made in the term.
    pub fn commit(&self, mut transaction: Transaction<'_>, lease: &impl AsTerm) -> Result<(), FenceError> {
        transaction.set_drop_behavior(DropBehavior::Rollback);
        self.verify(&transaction, lease)?;
        let committed = transaction.commit().map_err(Failure::from);
        committed.map_err(|failure| failure.at_commit().into_error(Operation::Commit).into())
    }

    /// The statement that [`verify`](Self::verify) executes, for users of another driver, with the parameters `?1` name, `?2` owner,
    /// both text, and `?3` token, an integer.
    ///
    /// Execute it in a transaction that was begun `IMMEDIATE`, on a connection whose main database is the store's file; it needs no
    /// function of the store's. One row: commit. No row, or an error: roll back.
    pub fn verify_sql(&self) -> &str {
        &self.sql.verify
    }

    /// Why the term is over; none when it was verified.
    fn verify_term(&self, transaction: &Transaction<'_>, term: &Term) -> Result<Option<FenceReason>, Failure> {
        self.check_file(transaction)?;
        if transaction.is_autocommit() {
            let over = "no transaction is open: it was committed or rolled back before";
            return Err(Failure::new(ErrorKind::RestartTransaction, over));
        }
        // SQLite lets a transaction that reads wait for no lock, lest two of them wait for each other for ever.
        let has_read = transaction.transaction_state(Some(MAIN_DB))? == TransactionState::Read;
        let verified = self.sql.verify(transaction, term).map_err(Failure::from);
        verified.map_err(|failure| if has_read { failure.after_a_read() } else { failure })
    }

    /// Refuses another file, which may well have a table and a row of the same names: a backup does.
    fn check_file(&self, connection: &Connection) -> Result<(), Failure> {
        let Some(own) = self.settings.location.path() else {
            let private = "the store is in memory, where no other connection can have a transaction";
            return Err(Failure::new(ErrorKind::InvalidConfig, private));
        };
        let theirs = connection.path().unwrap_or_default();
        if file::is_same(own, Path::new(theirs)) {
            return Ok(());
        }
        Err(Failure::new(
            ErrorKind::InvalidConfig,
            format!("the transaction is on {theirs:?}: it must be on the store's file, {}", own.display()),
        ))
    }
}
