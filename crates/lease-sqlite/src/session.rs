//! One call's use of a connection: it waits for the database's lock itself, within what is left of the call's time.

use std::{thread, time::Duration};

use lease_core::{ErrorKind, clock::LocalInstant};
use rusqlite::{Connection, Transaction, TransactionBehavior};

use crate::{
    claim::Claim,
    connection::Slot,
    error::{Failure, classify},
};

/// What a command may do with its thread's connection.
#[derive(Debug)]
pub(crate) struct Session<'a> {
    slot: &'a mut Slot,
    patience: Patience,
}

impl<'a> Session<'a> {
    pub(crate) fn new(slot: &'a mut Slot, patience: Patience) -> Self {
        Self { slot, patience }
    }

    /// Opens the database, and creates its file when that is missing and the configuration allows it.
    pub(crate) fn create(&mut self) -> Result<(), Failure> {
        let result = self.slot.connection(true, &self.patience).map(|_| ());
        self.slot.settle(result)
    }

    /// Reads, outside any transaction: in a write-ahead log that never waits for a writer.
    pub(crate) fn read<T>(&mut self, work: impl Fn(&Connection) -> rusqlite::Result<T>) -> Result<T, Failure> {
        let Self { slot, patience } = self;
        let connection = slot.connection(false, patience)?;
        let result = patience.retry(|| work(connection));
        slot.settle(result)
    }

    /// Writes, in a transaction that holds the write lock from its start.
    ///
    /// `BEGIN IMMEDIATE`, because a transaction that begins as a reader cannot wait for the lock (RC-18), and because between the
    /// lock and the first write the caller can still call it off. Every early return rolls back.
    pub(crate) fn write<T>(&mut self, work: impl FnOnce(&Connection) -> Result<T, Failure>) -> Result<T, Failure> {
        let Self { slot, patience } = self;
        let connection = slot.connection(false, patience)?;
        let result = patience.write(connection, work);
        slot.settle(result)
    }
}

/// How long a command goes on trying while somebody else has the database's lock: until its deadline, or until its caller is gone.
#[derive(Debug)]
pub(crate) struct Patience {
    claim: Claim,
    deadline: LocalInstant,
}

/// The first pause between two tries. The longest is a thousand times shorter than a short lease, and costs a waiter a few percent
/// of a core; longer ones, such as SQLite's own of up to 100 ms, starve a waiter among many.
const FIRST_PAUSE: Duration = Duration::from_micros(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(1);

impl Patience {
    pub(crate) fn new(claim: Claim, deadline: LocalInstant) -> Self {
        Self { claim, deadline }
    }

    /// Tries at least once, and again for as long as the answer is that the database is busy and somebody waits for a better one.
    pub(crate) fn retry<T>(&self, mut attempt: impl FnMut() -> rusqlite::Result<T>) -> Result<T, Failure> {
        let mut pause = FIRST_PAUSE;
        loop {
            match attempt() {
                Err(error) if classify(&error) == ErrorKind::Busy && self.lasts() => {
                    thread::sleep(pause.min(self.deadline.remaining()));
                    pause = LONGEST_PAUSE.min(pause * 2);
                }
                result => return Ok(result?),
            }
        }
    }

    fn write<T>(
        &self,
        connection: &Connection,
        work: impl FnOnce(&Connection) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let begin = || Transaction::new_unchecked(connection, TransactionBehavior::Immediate);
        let transaction = self.retry(begin)?;
        self.claim.begin_write()?;
        let value = work(&transaction)?;
        self.retry(|| transaction.execute_batch("COMMIT")).map_err(Failure::at_commit)?;
        Ok(value)
    }

    fn lasts(&self) -> bool {
        !self.claim.is_given_up() && !self.deadline.has_passed()
    }
}
