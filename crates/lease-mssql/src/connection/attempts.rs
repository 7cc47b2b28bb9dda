//! Attempts to open a connection, which outlive whoever asked for one.
//!
//! A connection may take longer to open than a call may last. Were the attempt to end with the call, each call would begin anew, and
//! none would ever have a connection. So an attempt runs on a task of its own, with a limit of its own; one that its caller has
//! abandoned goes on, and whoever needs a connection next takes it over.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use lease_core::ErrorKind;
use tokio_util::task::AbortOnDropHandle;

use super::{Connection, server::Server};
use crate::error::Failure;

type Attempt = AbortOnDropHandle<Result<Connection, Failure>>;

/// The attempts that nobody waits for. They end with this.
#[derive(Debug, Default)]
pub(super) struct Attempts(Mutex<VecDeque<Attempt>>);

impl Attempts {
    /// A connection by an attempt that was abandoned, if there is one that has not failed, else by a new one.
    ///
    /// There are never more of them than the pool has room for: it asks for as many connections as it lacks, and each asking takes
    /// over one that was abandoned before it begins another.
    pub(super) async fn connection(&self, server: &Arc<Server>) -> Result<Connection, Failure> {
        while let Some(attempt) = self.with(VecDeque::pop_front) {
            let is_old = attempt.is_finished();
            match self.end_of(attempt).await {
                Ok(connection) if connection.is_usable() => return Ok(connection),
                // A connection that has ended since; or what was in the way some time ago.
                Ok(_) => {}
                Err(_) if is_old => {}
                Err(failure) => return Err(failure),
            }
        }
        let server = Arc::clone(server);
        self.end_of(AbortOnDropHandle::new(tokio::spawn(async move { server.connect().await }))).await
    }

    /// How an attempt ends. It is kept when this is dropped before it has ended.
    async fn end_of(&self, attempt: Attempt) -> Result<Connection, Failure> {
        let mut waiting = Waiting { attempts: self, attempt: Some(attempt) };
        let ended = match &mut waiting.attempt {
            Some(attempt) => attempt.await,
            None => return Err(Failure::new(ErrorKind::Unexpected, "nobody opens a connection")),
        };
        waiting.attempt = None;
        ended.unwrap_or_else(|error| Err(Failure::of_task(&error)))
    }

    fn with<T>(&self, act: impl FnOnce(&mut VecDeque<Attempt>) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

struct Waiting<'a> {
    attempts: &'a Attempts,
    attempt: Option<Attempt>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(attempt) = self.attempt.take() {
            self.attempts.with(|attempts| attempts.push_back(attempt));
        }
    }
}
