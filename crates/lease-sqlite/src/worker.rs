//! A thread that owns a connection and serves one command after another.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::mpsc,
    thread,
};

use lease_core::{ErrorKind, clock::LocalInstant};
use tokio::{sync::oneshot, time::timeout};

use crate::{
    claim::Claim,
    connection::Slot,
    error::Failure,
    session::{Patience, Session},
};

type Command = Box<dyn FnOnce(&mut Slot) + Send>;

/// A handle to the thread. With the last handle the thread ends, after it has closed its connection, and nobody waits for that.
#[derive(Clone, Debug)]
pub(crate) struct Worker {
    commands: mpsc::Sender<Command>,
}

impl Worker {
    /// Starts the thread.
    pub(crate) fn spawn(name: &str, mut slot: Slot) -> io::Result<Self> {
        let (commands, queue) = mpsc::channel::<Command>();
        thread::Builder::new().name(name.into()).spawn(move || {
            for command in queue {
                // A panic ends its command alone: its caller sees the channel of the answer closed, its transaction was rolled
                // back on the way here, and the connection is not used again.
                if catch_unwind(AssertUnwindSafe(|| command(&mut slot))).is_err() {
                    slot.discard();
                }
            }
        })?;
        Ok(Self { commands })
    }

    /// Has the thread do `work`, and waits for the answer until the deadline.
    ///
    /// Dropping the future gives the call up: what has not begun to write never will.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        deadline: LocalInstant,
        work: impl FnOnce(&mut Session<'_>) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let claim = Claim::default();
        let caller = claim.caller();
        let (reply, answer) = oneshot::channel();
        let command = move |slot: &mut Slot| {
            if !claim.is_given_up() {
                let result = work(&mut Session::new(slot, Patience::new(claim, deadline)));
                // When nobody takes the answer, a grant that was made expires by itself.
                let _ = reply.send(result);
            }
        };
        let ended = |_| Failure::new(ErrorKind::Unexpected, "the database's thread panicked");
        self.commands.send(Box::new(command)).map_err(ended)?;
        match timeout(deadline.remaining(), answer).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(Failure::new(ErrorKind::Unexpected, "the call panicked in the database's thread")),
            Err(_) => Err(caller.time_out()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::mpsc::{Receiver, channel},
        time::Duration,
    };

    use super::*;
    use crate::{SqliteConfig, connection::Role};

    const SECOND: Duration = Duration::from_secs(1);
    const LONG: Duration = Duration::from_secs(60);

    fn worker(config: &SqliteConfig) -> Worker {
        Worker::spawn("test", Slot::new(config.settings().unwrap(), Role::Writer)).unwrap()
    }

    async fn count(worker: &Worker) -> i64 {
        let counted = worker.call(LocalInstant::now() + LONG, |session| {
            session.read(|connection| connection.query_row("SELECT count(*) FROM t", [], |row| row.get(0)))
        });
        counted.await.unwrap()
    }

    async fn file() -> (tempfile::TempDir, Worker) {
        let directory = tempfile::tempdir().unwrap();
        let worker = worker(&SqliteConfig::new(directory.path().join("a.db")));
        let created = worker.call(LocalInstant::now() + LONG, |session| {
            session.create()?;
            session.write(|connection| Ok(connection.execute_batch("CREATE TABLE t (a)")?))
        });
        created.await.unwrap();
        (directory, worker)
    }

    /// CX-07, S11: a panic in the middle of a transaction is one call's error, and the write is gone.
    #[tokio::test]
    async fn a_panic_poisons_nothing() {
        let (_directory, worker) = file().await;
        let panicked = worker.call(LocalInstant::now() + LONG, |session| {
            session.write::<()>(|connection| {
                connection.execute_batch("INSERT INTO t VALUES (1)")?;
                panic!("in the middle of a transaction");
            })
        });
        assert_eq!(panicked.await.unwrap_err().kind(), ErrorKind::Unexpected);
        assert_eq!(count(&worker).await, 0);
    }

    /// S8, S12, CX-03: a write that has begun and does not return in time has an unknown outcome, and the next call works.
    #[tokio::test]
    async fn a_write_that_does_not_return_is_indeterminate() {
        let (_directory, worker) = file().await;
        let (resume, paused) = channel::<()>();
        let stuck = worker.call(LocalInstant::now() + SECOND / 10, move |session| {
            session.write(|connection| {
                let _ = paused.recv();
                Ok(connection.execute_batch("INSERT INTO t VALUES (1)")?)
            })
        });
        assert_eq!(stuck.await.unwrap_err().kind(), ErrorKind::Indeterminate);

        let behind = worker.call(LocalInstant::now() + SECOND / 10, |session| session.write(|_| Ok(())));
        assert_eq!(behind.await.unwrap_err().kind(), ErrorKind::Busy);

        resume.send(()).unwrap();
        assert_eq!(count(&worker).await, 1);
    }

    /// CX-07, S11: a call that is dropped while it is queued never runs.
    #[tokio::test]
    async fn a_dropped_call_that_is_queued_never_runs() {
        let (_directory, worker) = file().await;
        let (resume, paused): (_, Receiver<()>) = channel();
        let stuck = worker.call(LocalInstant::now() + LONG, move |session| session.read(|_| Ok(paused.recv().is_ok())));
        let queued = worker.call(LocalInstant::now() + LONG, |session| {
            session.write(|connection| Ok(connection.execute_batch("INSERT INTO t VALUES (1)")?))
        });
        let mut stuck = Box::pin(stuck);
        assert!(futures::poll!(stuck.as_mut()).is_pending());
        {
            let mut queued = Box::pin(queued);
            assert!(futures::poll!(queued.as_mut()).is_pending());
        }
        resume.send(()).unwrap();
        assert!(stuck.await.unwrap());
        assert_eq!(count(&worker).await, 0);
    }

    /// CX-07: the thread closes its connection when the last handle is gone.
    #[tokio::test]
    async fn the_thread_ends_with_its_last_handle() {
        let (alive, ended) = channel::<()>();
        let worker = worker(&SqliteConfig::in_memory());
        let clone = worker.clone();
        let kept = worker.call(LocalInstant::now() + LONG, move |session| {
            session.read(|connection| connection.create_scalar_function_holding(alive.clone()))
        });
        kept.await.unwrap();
        drop(worker);
        assert!(
            ended.recv_timeout(Duration::from_millis(50)).is_err_and(|error| error == mpsc::RecvTimeoutError::Timeout)
        );
        drop(clone);
        assert_eq!(ended.recv_timeout(LONG), Err(mpsc::RecvTimeoutError::Disconnected));
    }

    trait Holding {
        fn create_scalar_function_holding(&self, sender: mpsc::Sender<()>) -> rusqlite::Result<()>;
    }

    /// A function that owns the sender lives as long as the connection does.
    impl Holding for rusqlite::Connection {
        fn create_scalar_function_holding(&self, sender: mpsc::Sender<()>) -> rusqlite::Result<()> {
            let flags = rusqlite::functions::FunctionFlags::SQLITE_UTF8;
            self.create_scalar_function("holding", 0, flags, move |_| Ok(sender.send(()).is_ok()))
        }
    }
}
