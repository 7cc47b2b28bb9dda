//! One call's use of a connection: until when it waits for what, and what becomes of a connection whose call was given up.

use std::{fmt, pin::pin, time::Duration};

use deadpool_postgres::{Client, Object, Pool};
use futures::TryStreamExt;
use lease_core::{ErrorKind, clock::LocalInstant};
use tokio::{
    runtime::Handle,
    task::yield_now,
    time::{sleep, timeout},
};
use tokio_postgres::{Error, Row, RowStream, types::ToSql};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::{
    connection::Pooler,
    error::{Failure, Remedy},
    sql::Statement,
};

pub(crate) type Parameters<'a> = [&'a (dyn ToSql + Sync)];

/// The store's way to the server.
#[derive(Clone)]
pub(crate) struct Link {
    pool: Pool,
    /// What cancel requests are sent with.
    tls: MakeRustlsConnect,
    pooler: Pooler,
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
    pub(crate) fn new(pool: Pool, tls: MakeRustlsConnect, pooler: Pooler) -> Self {
        Self { pool, tls, pooler }
    }

    /// Runs one statement, in a transaction of its own.
    ///
    /// It is sent again only when the server has refused it, when it was not sent at all, or when that does no harm: because another
    /// transaction was in the way, which happens under a role's own isolation level and lock timeout; because the session does not
    /// know the prepared statement; or because the connection was dead. Each dead one is thrown away, so that this ends with one that
    /// was just opened.
    pub(crate) async fn query(
        &self,
        limit: Limit,
        statement: &Statement,
        parameters: &Parameters<'_>,
    ) -> Result<Vec<Row>, Failure> {
        let mut pause = FIRST_PAUSE;
        loop {
            let mut lent = self.lend(limit).await?;
            let unnamed = self.pooler.is_known() || !statement.is_prepared;
            let is_new = lent.is_new();
            let failure = match lent.query(limit, statement, parameters, unnamed).await {
                Ok(rows) => return Ok(rows),
                Err(failure) => failure,
            };
            drop(lent);
            match failure.remedy() {
                Remedy::Reconnect if !is_new => {}
                Remedy::Resend if !is_new && statement.is_repeatable => {}
                Remedy::Unnamed if !unnamed => self.pooler.learn(),
                Remedy::Repeat if limit.allows_a_repetition() => {
                    sleep(pause.mul_f64(0.5 + fastrand::f64())).await;
                    pause = LONGEST_PAUSE.min(pause * 2);
                }
                _ => return Err(failure),
            }
        }
    }

    /// Runs a script of several statements in one transaction.
    pub(crate) async fn run(&self, limit: Limit, script: &str) -> Result<(), Failure> {
        let mut lent = self.lend(limit).await?;
        lent.run(limit, script).await
    }

    async fn lend(&self, limit: Limit) -> Result<Lent, Failure> {
        // A connection that ended while it was idle is known for it once the runtime has looked at its socket, which is now.
        yield_now().await;
        if let Ok(client) = timeout(limit.deadline.remaining(), self.pool.get()).await {
            let (tls, pooler) = (self.tls.clone(), self.pooler.clone());
            return Ok(Lent { client: Some(client?), state: State::Idle, tls, pooler });
        }
        let status = self.pool.status();
        // Short of the whole number, some of the pool's connections are being opened, and do not come about.
        Err(if status.size >= status.max_size {
            Failure::new(ErrorKind::PoolTimeout, format!("all {} connections were in use", status.max_size))
        } else {
            Failure::new(ErrorKind::Unavailable, "no connection was opened within the operation timeout")
        })
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("pool", &self.pool.status()).field("pooler", &self.pooler).finish_non_exhaustive()
    }
}

/// A connection on loan from the pool.
struct Lent {
    /// Present until it is dropped.
    client: Option<Client>,
    state: State,
    tls: MakeRustlsConnect,
    pooler: Pooler,
}

/// What is known of the session at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It waits for a statement.
    Idle,
    /// It prepares a statement, and has done nothing.
    Preparing,
    /// It may run a statement.
    Running,
    /// It has ended, or must not be used again.
    Spoilt,
}

impl Lent {
    /// Whether the connection was opened for this call.
    fn is_new(&self) -> bool {
        self.client.as_ref().is_some_and(|client| Object::metrics(client).recycle_count == 0)
    }

    async fn query(
        &mut self,
        limit: Limit,
        statement: &Statement,
        parameters: &Parameters<'_>,
        unnamed: bool,
    ) -> Result<Vec<Row>, Failure> {
        let answer = timeout(limit.deadline.remaining(), self.send(statement, parameters, unnamed)).await;
        self.settle(answer.ok())
    }

    async fn run(&mut self, limit: Limit, script: &str) -> Result<(), Failure> {
        let answer = timeout(limit.deadline.remaining(), async {
            let client = open(self.client.as_ref())?;
            self.state = State::Running;
            client.batch_execute(script).await.map_err(|error| Failure::from(error).at_answer())
        });
        let answer = answer.await;
        self.settle(answer.ok())
    }

    async fn send(
        &mut self,
        statement: &Statement,
        parameters: &Parameters<'_>,
        unnamed: bool,
    ) -> Result<Vec<Row>, Failure> {
        let client = open(self.client.as_ref())?;
        let values = parameters.iter().copied();
        let begun: Result<RowStream, Error> = if unnamed {
            self.state = State::Running;
            client.query_typed_raw(&statement.text, values.zip(statement.types.iter().cloned())).await
        } else {
            self.state = State::Preparing;
            let prepared = client.prepare_typed_cached(&statement.text, statement.types).await;
            let prepared = prepared.map_err(|error| Failure::from(error).unsent())?;
            self.state = State::Running;
            client.query_raw(&prepared, values).await
        };
        let rows = begun.map_err(|error| match error.as_db_error() {
            // An error in the place of the first message: the server ended the session, or refused the statement, before it ran.
            Some(_) => Failure::from(error).unsent(),
            None => Failure::from(error).at_answer(),
        })?;
        pin!(rows).try_collect().await.map_err(|error| Failure::from(error).at_answer())
    }

    /// Learns from the answer, or from there being none, what state the session is in.
    fn settle<T>(&mut self, answer: Option<Result<T, Failure>>) -> Result<T, Failure> {
        match answer {
            Some(answer) => {
                let is_spoilt = answer.as_ref().is_err_and(Failure::spoils_connection);
                self.state = if is_spoilt { State::Spoilt } else { State::Idle };
                answer
            }
            None if self.state == State::Running => {
                Err(Failure::new(ErrorKind::Indeterminate, "the server did not answer within the operation timeout"))
            }
            None => Err(Failure::new(
                ErrorKind::Unavailable,
                "the server did not prepare the statement within the operation timeout",
            )),
        }
    }
}

/// The connection, unless it has ended already: then nothing is sent.
fn open(client: Option<&Client>) -> Result<&Client, Failure> {
    let ended = || Failure::new(ErrorKind::Unavailable, "the connection has ended").spoilt().unsent();
    client.filter(|client| !client.is_closed()).ok_or_else(ended)
}

/// A call that was dropped or ran out of time leaves a statement behind whose answer nobody will read. Its connection leaves the pool,
/// and the server is asked to end the statement, which may be waiting for a lock.
impl Drop for Lent {
    fn drop(&mut self) {
        let Some(client) = self.client.take() else {
            return;
        };
        match self.state {
            State::Idle => drop(client),
            State::Spoilt => drop(Object::take(client)),
            // PgBouncer 1.18 ends itself, "bad client state", over a cancel request whose sender does not stay to hear of it, as the
            // driver does not: through a pooler, none is sent.
            State::Preparing | State::Running => abandon(client, (!self.pooler.is_known()).then(|| self.tls.clone())),
        }
    }
}

/// How long the server may take to end a statement that nobody waits for.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

fn abandon(client: Client, cancel_with: Option<MakeRustlsConnect>) {
    let client = Object::take(client);
    // Without a runtime nothing can be sent; the connection closes, and the server finds out by itself.
    if let Ok(runtime) = Handle::try_current() {
        runtime.spawn(async move {
            let ending = async {
                if let Some(tls) = cancel_with {
                    drop(client.cancel_token().cancel_query(tls).await);
                }
                // This is answered after the statement. Until then the connection stays open, for the request names its session,
                // which serves nobody else meanwhile.
                drop(client.simple_query("").await);
            };
            drop(timeout(CANCEL_TIMEOUT, ending).await);
        });
    }
}
