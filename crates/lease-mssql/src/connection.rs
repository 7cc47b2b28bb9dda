//! The store's connections, and the pool that they are lent from.

use std::sync::Arc;

use deadpool::managed::{self, Metrics, RecycleError, RecycleResult};
use futures::TryStreamExt;
use lease_core::ErrorKind;
use tiberius::{Client, Query, QueryItem, Row};

use crate::{config::Settings, error::Failure, link::Value};

mod attempts;
mod server;
mod socket;

pub(crate) use server::Server;

use attempts::Attempts;
use socket::Socket;

/// The name of the first column of what a statement answers.
const OUTCOME: &str = "outcome";

pub(crate) type Pool = managed::Pool<Manager>;

/// A pool of connections of the store's own. None is opened yet.
pub(crate) fn pool(settings: &Settings) -> Result<Pool, Failure> {
    let manager = Manager { server: Arc::clone(&settings.server), attempts: Attempts::default() };
    let built = Pool::builder(manager).max_size(settings.pool_size).build();
    built.map_err(|error| Failure::new(ErrorKind::InvalidConfig, error.to_string()))
}

/// What a session is told when it is opened.
pub(crate) fn session(lock_timeout_milliseconds: u128) -> String {
    include_str!("sql/session.sql").replace("lock_timeout_milliseconds", &lock_timeout_milliseconds.to_string())
}

/// Opens connections, and says which of them may be lent again.
#[derive(Debug)]
pub(crate) struct Manager {
    pub(crate) server: Arc<Server>,
    attempts: Attempts,
}

impl managed::Manager for Manager {
    type Type = Connection;
    type Error = Failure;

    async fn create(&self) -> Result<Connection, Failure> {
        self.attempts.connection(&self.server).await
    }

    async fn recycle(&self, connection: &mut Connection, _: &Metrics) -> RecycleResult<Failure> {
        // To find out by a query would be a second round trip for each call.
        if connection.is_usable() { Ok(()) } else { Err(RecycleError::message("the connection has ended")) }
    }
}

/// One connection. It closes when it is dropped.
#[derive(Debug)]
pub(crate) struct Connection {
    client: Client<Socket>,
    socket: Socket,
    /// Whether the last answer was read to its end and had no error in it: only then is it known what the next bytes are.
    is_clean: bool,
}

impl Connection {
    fn new(client: Client<Socket>, socket: Socket) -> Self {
        Self { client, socket, is_clean: true }
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.is_clean
    }

    /// Whether a statement can be sent.
    pub(crate) fn is_usable(&self) -> bool {
        self.is_clean && self.socket.is_quiet()
    }

    /// Whether any byte of the last statement has gone out.
    pub(crate) fn has_sent(&self) -> bool {
        self.socket.has_sent()
    }

    /// Runs one statement, in whose answer one set of rows must be named for its first column, [`OUTCOME`]. Others are passed over, for
    /// somebody's trigger may send some.
    ///
    /// When this is dropped, or fails, the connection is not clean, and must be closed.
    pub(crate) async fn query(&mut self, text: &str, values: Vec<Value>) -> Result<Vec<Row>, Failure> {
        self.begin();
        let mut query = Query::new(text);
        for value in values {
            match value {
                Value::Text(text) => query.bind(text),
                Value::Int(number) => query.bind(number),
            }
        }
        let mut answer = query.query(&mut self.client).await?;
        let (mut rows, mut sets, mut is_outcome) = (Vec::new(), 0, false);
        while let Some(item) = answer.try_next().await? {
            match item {
                QueryItem::Metadata(set) => {
                    is_outcome = set.columns().first().is_some_and(|column| column.name() == OUTCOME);
                    sets += usize::from(is_outcome);
                }
                QueryItem::Row(row) if is_outcome => rows.push(row),
                QueryItem::Row(_) => {}
            }
        }
        drop(answer);
        if sets != 1 {
            let detail = format!(
                "the server answered with {sets} sets of rows that begin with {OUTCOME:?}, and a statement has one"
            );
            return Err(Failure::new(ErrorKind::Unexpected, detail));
        }
        self.is_clean = true;
        Ok(rows)
    }

    /// Runs a batch, whatever it answers.
    pub(crate) async fn run(&mut self, batch: &str) -> Result<(), Failure> {
        self.begin();
        let mut answer = self.client.simple_query(batch).await?;
        while answer.try_next().await?.is_some() {}
        drop(answer);
        self.is_clean = true;
        Ok(())
    }

    fn begin(&mut self) {
        self.is_clean = false;
        self.socket.begin();
    }
}
