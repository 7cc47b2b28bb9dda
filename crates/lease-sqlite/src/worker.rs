//! A thread that owns a connection and serves one command after another.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
};

use lease_core::{ErrorKind, clock::LocalInstant};
use tokio::{sync::oneshot, time::timeout};

use crate::{
    claim::{Caller, Claim},
    connection::Slot,
    error::Failure,
    session::{Patience, Session},
};

type Command = Box<dyn FnOnce(&mut Slot) + Send>;

/// A handle to the thread. With the last handle the thread ends, after it has closed its connection, and nobody waits for that.
#[derive(Clone, Debug)]
pub(crate) struct Worker {
    /// Locked for as long as it takes to look whether the thread is idle and to put a command in.
    queue: Arc<Mutex<mpsc::Sender<Command>>>,
    unfinished: Arc<AtomicUsize>,
}

impl Worker {
    /// Starts the thread.
    pub(crate) fn spawn(name: &str, mut slot: Slot) -> io::Result<Self> {
        let (queue, commands) = mpsc::channel::<Command>();
        thread::Builder::new().name(name.into()).spawn(move || {
            for command in commands {
                // A panic ends its command alone: its caller sees the channel of the answer closed, its transaction was rolled
                // back on the way here, and the connection is not used again.
                if catch_unwind(AssertUnwindSafe(|| command(&mut slot))).is_err() {
                    slot.discard();
                }
            }
        })?;
        Ok(Self { queue: Arc::new(Mutex::new(queue)), unfinished: Arc::default() })
    }

    /// Has the thread do `work`, and waits for the answer until the deadline.
    ///
    /// Dropping the future gives the call up: what has not begun to write never will.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        deadline: LocalInstant,
        work: impl FnOnce(&mut Session<'_>) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let call = self.enqueue(&self.queue(), deadline, work);
        call.answer().await
    }

    /// As [`call`](Self::call), if the thread would begin at once; none if it has something else to do.
    pub(crate) async fn call_if_idle<T: Send + 'static>(
        &self,
        deadline: LocalInstant,
        work: impl FnOnce(&mut Session<'_>) -> Result<T, Failure> + Send + 'static,
    ) -> Option<Result<T, Failure>> {
        let call = {
            let queue = self.queue();
            let is_idle = self.unfinished.load(Ordering::Acquire) == 0;
            is_idle.then(|| self.enqueue(&queue, deadline, work))
        };
        Some(call?.answer().await)
    }

    fn enqueue<T: Send + 'static>(
        &self,
        queue: &mpsc::Sender<Command>,
        deadline: LocalInstant,
        work: impl FnOnce(&mut Session<'_>) -> Result<T, Failure> + Send + 'static,
    ) -> Call<T> {
        let claim = Claim::default();
        let caller = claim.caller();
        let (reply, answer) = oneshot::channel();
        let unfinished = Unfinished::new(&self.unfinished);
        let command = move |slot: &mut Slot| {
            if !claim.is_given_up() {
                let result = work(&mut Session::new(slot, Patience::new(claim, deadline)));
                drop(unfinished);
                // When nobody takes the answer, a grant that was made expires by itself.
                let _ = reply.send(result);
            }
        };
        // Without its thread the command is dropped, and the caller sees the channel of the answer closed.
        let _ = queue.send(Box::new(command));
        Call { deadline, caller, answer }
    }

    fn queue(&self) -> MutexGuard<'_, mpsc::Sender<Command>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The caller's end of a command.
struct Call<T> {
    deadline: LocalInstant,
    caller: Caller,
    answer: oneshot::Receiver<Result<T, Failure>>,
}

impl<T> Call<T> {
    async fn answer(self) -> Result<T, Failure> {
        match timeout(self.deadline.remaining(), self.answer).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(Failure::new(ErrorKind::Unexpected, "the call panicked in the database's thread")),
            Err(_) => Err(self.caller.time_out()),
        }
    }
}

/// Counts a command, from before it is queued until before it is answered.
struct Unfinished(Arc<AtomicUsize>);

impl Unfinished {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(count))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::mpsc::{Receiver, channel},
        time::Duration,
    };

    use rusqlite::functions::FunctionFlags;

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

    /// S3: whoever must not wait is told when he would have to, and not otherwise.
    #[tokio::test]
    async fn an_idle_thread_is_told_from_a_busy_one() {
        let (_directory, worker) = file().await;
        let deadline = LocalInstant::now() + LONG;
        let (resume, paused) = channel::<()>();
        let mut stuck = Box::pin(worker.call(deadline, move |session| session.read(|_| Ok(paused.recv().is_ok()))));
        assert!(futures::poll!(stuck.as_mut()).is_pending());
        assert!(worker.call_if_idle(deadline, |_| Ok(())).await.is_none());
        resume.send(()).unwrap();
        assert!(stuck.await.unwrap());
        assert!(worker.call_if_idle(deadline, |_| Ok(())).await.is_some_and(|result| result.is_ok()));
        let panicked = worker.call_if_idle::<()>(deadline, |_| panic!("this ends too")).await;
        assert!(panicked.is_some_and(|result| result.is_err()));
        // The count is back at zero, if not at once: a panic is answered while the thread unwinds.
        while worker.call_if_idle(deadline, |_| Ok(())).await.is_none() {
            tokio::task::yield_now().await;
        }
    }

    /// CX-07: the thread closes its connection when the last handle is gone.
    #[tokio::test]
    async fn the_thread_ends_with_its_last_handle() {
        let (alive, ended) = channel::<()>();
        let worker = worker(&SqliteConfig::in_memory());
        let clone = worker.clone();
        let kept = worker.call(LocalInstant::now() + LONG, move |session| {
            session.read(|connection| {
                // A function that owns the sender lives as long as the connection does.
                let alive = alive.clone();
                let flags = FunctionFlags::SQLITE_UTF8;
                connection.create_scalar_function("alive", 0, flags, move |_| Ok(alive.send(()).is_ok()))
            })
        });
        kept.await.unwrap();
        drop(worker);
        assert!(
            ended.recv_timeout(Duration::from_millis(50)).is_err_and(|error| error == mpsc::RecvTimeoutError::Timeout)
        );
        drop(clone);
        assert_eq!(ended.recv_timeout(LONG), Err(mpsc::RecvTimeoutError::Disconnected));
    }
}
