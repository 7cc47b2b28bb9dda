//! One call's use of a connection: until when it waits for what, and what becomes of a connection whose call was given up.

use std::{fmt, sync::Arc, time::Duration};

use deadpool::managed::{Object, PoolError, TimeoutType};
use lease_core::{ErrorKind, clock::LocalInstant};
use tiberius::Row;
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    connection::{Manager, Pool},
    error::{Failure, Remedy},
    sql::Statement,
};

/// A parameter.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Text(String),
    Int(i32),
}

/// The store's way to the server.
#[derive(Clone)]
pub(crate) struct Link {
    pool: Pool,
}

/// The time in which one call has to end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    deadline: LocalInstant,
    whole: Duration,
}

impl Limit {
    pub(crate) fn new(operation_timeout: Duration) -> Self {
        Self { deadline: LocalInstant::now() + operation_timeout, whole: operation_timeout }
    }

    /// Whether there is time to repeat a statement and to hear of it: half of it is left.
    fn allows_a_repetition(&self) -> bool {
        self.deadline.remaining() > self.whole / 2
    }
}

const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

impl Link {
    pub(crate) fn new(pool: Pool) -> Self {
        Self { pool }
    }

    /// Runs one statement, and returns the set of rows that begins with the column `outcome`.
    ///
    /// It is sent again only when the server has refused it, when it was not sent at all, or when that does no harm: because another
    /// transaction was in the way, as the victim of a deadlock or of a conflict of snapshots is told; or because the connection was
    /// dead. Each dead one is thrown away, so that this ends with one that was just opened.
    pub(crate) async fn query(
        &self,
        limit: Limit,
        statement: &Statement,
        parameters: &[Value],
    ) -> Result<Vec<Row>, Failure> {
        let mut pause = FIRST_PAUSE;
        loop {
            let lent = self.lend(limit).await?;
            let is_new = lent.is_new();
            let request = Request::Query(Arc::clone(&statement.text), parameters.to_vec());
            let failure = match lent.ask(limit, request).await {
                Ok(rows) => return Ok(rows),
                Err(failure) => failure,
            };
            match failure.remedy() {
                Remedy::Reconnect if !is_new => {}
                Remedy::Resend if !is_new && statement.is_repeatable => {}
                Remedy::Repeat if limit.allows_a_repetition() => {
                    sleep(pause.mul_f64(0.5 + fastrand::f64())).await;
                    pause = LONGEST_PAUSE.min(pause * 2);
                }
                _ => return Err(failure),
            }
        }
    }

    /// Runs a batch without parameters, whatever it answers.
    pub(crate) async fn run(&self, limit: Limit, batch: &str) -> Result<(), Failure> {
        let lent = self.lend(limit).await?;
        lent.ask(limit, Request::Batch(batch.into())).await.map(drop)
    }

    async fn lend(&self, limit: Limit) -> Result<Lent, Failure> {
        if let Ok(connection) = timeout(limit.deadline.remaining(), self.pool.get()).await {
            return Ok(Lent { connection: Some(connection.map_err(of_pool)?) });
        }
        let status = self.pool.status();
        // Short of the whole number, some of the pool's connections are being opened, and do not come about.
        Err(if status.size >= status.max_size {
            Failure::new(ErrorKind::PoolTimeout, format!("all {} connections were in use", status.max_size))
        } else {
            let stands = self.pool.manager().server.where_it_stands();
            Failure::new(ErrorKind::Unavailable, format!("{stands} within the operation timeout, {:?}", limit.whole))
        })
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("pool", &self.pool.status()).finish_non_exhaustive()
    }
}

fn of_pool(error: PoolError<Failure>) -> Failure {
    match error {
        PoolError::Backend(failure) => failure,
        PoolError::Timeout(TimeoutType::Wait) => Failure::new(ErrorKind::PoolTimeout, "the pool did not wait"),
        PoolError::NoRuntimeSpecified => Failure::new(ErrorKind::InvalidConfig, error.to_string()),
        error => Failure::new(ErrorKind::Unavailable, error.to_string()),
    }
}

/// What is sent.
enum Request {
    Query(Arc<str>, Vec<Value>),
    Batch(String),
}

/// A connection on loan from the pool.
struct Lent {
    /// Present until it is dropped.
    connection: Option<Object<Manager>>,
}

impl Lent {
    /// Whether the connection was opened for this call.
    fn is_new(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| Object::metrics(connection).recycle_count == 0)
    }

    /// Sends a request and waits for the whole answer, on a task of its own.
    ///
    /// The task owns the connection. Whatever becomes of the caller, the connection is not kept for longer than the limit: it goes back
    /// to the pool when the answer is there, and is closed when the caller is dropped or the time is over.
    async fn ask(self, limit: Limit, request: Request) -> Result<Vec<Row>, Failure> {
        let task = AbortOnDropHandle::new(tokio::spawn(self.exchange(limit, request)));
        task.await.unwrap_or_else(|error| Err(Failure::of_task(&error).after_a_grant()))
    }

    async fn exchange(mut self, limit: Limit, request: Request) -> Result<Vec<Row>, Failure> {
        let Some(connection) = &mut self.connection else {
            return Err(Failure::new(ErrorKind::Unexpected, "there is no connection"));
        };
        let answering = async {
            match request {
                Request::Query(text, values) => connection.query(&text, values).await,
                Request::Batch(batch) => connection.run(&batch).await.map(|()| Vec::new()),
            }
        };
        match timeout(limit.deadline.remaining(), answering).await {
            Ok(Ok(rows)) => Ok(rows),
            Ok(Err(failure)) if connection.has_sent() => Err(failure.at_answer()),
            Ok(Err(failure)) => Err(failure.unsent()),
            Err(_) if connection.has_sent() => {
                Err(Failure::new(ErrorKind::Indeterminate, "the server did not answer within the operation timeout"))
            }
            Err(_) => Err(Failure::new(
                ErrorKind::Unavailable,
                "the network did not take the statement within the operation timeout",
            )),
        }
    }
}

/// A call that was dropped, ran out of time or met an error leaves an answer behind that nobody will read. Its connection leaves the
/// pool and closes, which also ends a transaction that is open.
impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take_if(|connection| !connection.is_clean()) {
            drop(Object::take(connection));
        }
    }
}

#[cfg(test)]
mod wire;
