//! Attempts to open a connection, which outlive whoever asked for one.
//!
//! A connection may take longer to open than a call may last. Were the attempt to end with the call, each call would begin anew, and
//! none would ever have a connection. So an attempt runs on a task of its own, with a limit of its own, and whoever waits when it ends
//! has its connection; if nobody does, the next who asks.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use lease_core::{ErrorKind, clock::LocalInstant};
use tokio::{sync::oneshot, task::JoinSet};

use super::{Connection, server::Server};
use crate::error::Failure;

type Outcome = Result<Connection, Failure>;

/// The attempts that are under way. They end with this.
#[derive(Default)]
pub(super) struct Attempts(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// Who waits for a connection, the first first.
    waiting: VecDeque<oneshot::Sender<Outcome>>,
    /// Connections that nobody waited for any more.
    spare: VecDeque<Connection>,
    running: Vec<Running>,
    tasks: JoinSet<()>,
    begun: u64,
}

struct Running {
    number: u64,
    since: LocalInstant,
}

impl Attempts {
    /// A connection that was opened for nobody, else the next one that is opened.
    ///
    /// Where an attempt is under way that nobody waits for any more, no other is begun, unless that one has lasted for longer than a
    /// call: then it may be held up by something that is over, such as a network that swallowed its first packet.
    pub(super) async fn connection(&self, server: &Arc<Server>) -> Outcome {
        let outcome = {
            let mut state = lock(&self.0);
            while let Some(connection) = state.spare.pop_front() {
                if connection.is_usable() {
                    return Ok(connection);
                }
            }
            let (waiting, outcome) = oneshot::channel();
            state.waiting.retain(|waiting| !waiting.is_closed());
            state.waiting.push_back(waiting);
            if state.younger_than(server.operation_timeout) < state.waiting.len() {
                state.begin(server, &self.0);
            }
            outcome
        };
        outcome.await.unwrap_or_else(|_| Err(Failure::new(ErrorKind::Unavailable, "the store was dropped")))
    }
}

impl State {
    fn younger_than(&self, age: Duration) -> usize {
        let now = LocalInstant::now();
        self.running.iter().filter(|running| now.saturating_duration_since(running.since) < age).count()
    }

    fn begin(&mut self, server: &Arc<Server>, attempts: &Arc<Mutex<Self>>) {
        while self.tasks.try_join_next().is_some() {}
        self.begun += 1;
        let number = self.begun;
        self.running.push(Running { number, since: LocalInstant::now() });
        let attempt = Attempt { attempts: Arc::downgrade(attempts), number };
        let server = Arc::clone(server);
        self.tasks.spawn(async move {
            let outcome = server.connect().await;
            attempt.end(outcome);
        });
    }

    /// Gives what an attempt has come to to the first who waits. A failure is only theirs when there are fewer attempts left than callers.
    fn end(&mut self, number: u64, outcome: Outcome) {
        self.running.retain(|running| running.number != number);
        self.waiting.retain(|waiting| !waiting.is_closed());
        if outcome.is_err() && self.running.len() >= self.waiting.len() {
            return;
        }
        let mut outcome = outcome;
        while let Some(waiting) = self.waiting.pop_front() {
            match waiting.send(outcome) {
                Ok(()) => return,
                Err(returned) => outcome = returned,
            }
        }
        self.spare.extend(outcome);
    }
}

/// An attempt on its task. One that is dropped has failed.
struct Attempt {
    attempts: Weak<Mutex<State>>,
    number: u64,
}

impl Attempt {
    fn end(self, outcome: Outcome) {
        if let Some(attempts) = self.attempts.upgrade() {
            lock(&attempts).end(self.number, outcome);
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if let Some(attempts) = self.attempts.upgrade() {
            let mut state = lock(&attempts);
            if state.running.iter().any(|running| running.number == self.number) {
                state.end(self.number, Err(Failure::new(ErrorKind::Unavailable, "opening a connection was given up")));
            }
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Attempts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = lock(&self.0);
        f.debug_struct("Attempts").field("running", &state.running.len()).field("spare", &state.spare.len()).finish()
    }
}
