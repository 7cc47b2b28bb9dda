//! Tasks that acquire, renew, release and pause at random.

use std::{sync::Arc, time::Duration};

use fastrand::Rng;
use futures::future::join_all;
use lease_core::{Acquisition, LeaseDuration, LeaseName, LeaseStore, OwnerId, Renewal, StoreError};

use super::{Outcome, Record, Verb, clock::HostClock};
use crate::{
    kit::{lasting, name, owner},
    poll::drop_after,
};

/// What one process does.
#[derive(Clone, Debug)]
pub struct Load {
    operations: u64,
    tasks: u32,
    names: u32,
    durations: (Duration, Duration),
    pause: Duration,
    seed: u64,
}

impl Default for Load {
    /// 1,000 operations by 8 tasks on 3 names, leases of 5 to 50 ms, pauses of up to 4 ms.
    fn default() -> Self {
        Self {
            operations: 1000,
            tasks: 8,
            names: 3,
            durations: (Duration::from_millis(5), Duration::from_millis(50)),
            pause: Duration::from_millis(4),
            seed: 0,
        }
    }
}

impl Load {
    /// How many calls are made in all.
    #[must_use]
    pub fn operations(mut self, operations: u64) -> Self {
        self.operations = operations;
        self
    }

    /// How many tasks make them, each with owners of its own.
    #[must_use]
    pub fn tasks(mut self, tasks: u32) -> Self {
        self.tasks = tasks.max(1);
        self
    }

    /// How many names they contend for.
    #[must_use]
    pub fn names(mut self, names: u32) -> Self {
        self.names = names.max(1);
        self
    }

    /// The shortest and the longest lease; all calls of one term carry the same duration.
    #[must_use]
    pub fn durations(mut self, shortest: Duration, longest: Duration) -> Self {
        self.durations = (shortest, longest);
        self
    }

    /// The longest pause between two calls of a task. Some pauses of a holder are as long as its lease.
    #[must_use]
    pub fn pause(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }

    /// What the random choices are derived from.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// How many calls each of several processes makes.
    #[cfg(unix)]
    pub(super) fn share(&self, processes: u32) -> Self {
        Self { operations: self.operations.div_ceil(u64::from(processes.max(1))), ..self.clone() }
    }
}

/// Runs the load on `store` and answers its history. `process` tells the histories of several processes apart.
///
/// # Cancel safety
///
/// Dropping the future loses the history.
pub async fn record<S: LeaseStore>(store: &Arc<S>, load: &Load, process: u32) -> Vec<Record> {
    let clock = HostClock::new();
    let tasks = (0..load.tasks).map(|number| {
        let calls = load.operations / u64::from(load.tasks)
            + u64::from(u64::from(number) < load.operations % u64::from(load.tasks));
        let rng = Rng::with_seed(load.seed.wrapping_add((u64::from(process) << 32) | u64::from(number)));
        let task = Task { store: Arc::clone(store), load: load.clone(), clock, rng, process, number, owners: 0 };
        tokio::spawn(task.run(calls))
    });
    join_all(tasks).await.into_iter().flat_map(|records| records.expect("no task panics")).collect()
}

struct Task<S> {
    store: Arc<S>,
    load: Load,
    clock: HostClock,
    rng: Rng,
    process: u32,
    number: u32,
    owners: u64,
}

/// What a task believes to have.
struct Held {
    name: LeaseName,
    duration: LeaseDuration,
}

impl<S: LeaseStore> Task<S> {
    async fn run(mut self, calls: u64) -> Vec<Record> {
        let mut records = Vec::new();
        let mut held: Option<Held> = None;
        let mut owner = self.next_owner();
        for _ in 0..calls {
            let verb = match (&held, self.rng.u32(0..100)) {
                (None, _) | (Some(_), 0..5) => Verb::Acquire,
                (Some(_), 5..60) => Verb::Renew,
                (Some(_), 60..) => Verb::Release,
            };
            let Held { name, duration } = held.take().unwrap_or_else(|| self.any_lease());
            let record = self.call(verb, &name, &owner, duration).await;
            let outcome = record.outcome;
            records.push(record);
            match outcome {
                Outcome::Done if verb != Verb::Release => held = Some(Held { name, duration }),
                Outcome::Done | Outcome::Refused => {}
                // The call may take effect yet, so nothing else may be done under its owner.
                Outcome::Dropped | Outcome::Failed => owner = self.next_owner(),
            }
            self.pause(held.as_ref()).await;
        }
        records
    }

    async fn call(&mut self, verb: Verb, name: &LeaseName, owner: &OwnerId, duration: LeaseDuration) -> Record {
        // Some calls are dropped before they are answered.
        let polls = if self.rng.u32(0..50) == 0 { self.rng.usize(1..4) } else { usize::MAX };
        let called = self.clock.now();
        let answer = match verb {
            Verb::Acquire => {
                drop_after(polls, self.store.try_acquire(name, owner, duration)).await.as_ref().map(acquired)
            }
            Verb::Renew => drop_after(polls, self.store.renew(name, owner, duration)).await.as_ref().map(renewed),
            Verb::Release => drop_after(polls, self.store.release(name, owner)).await.as_ref().map(released),
        };
        let (outcome, token) = answer.unwrap_or((Outcome::Dropped, None));
        Record {
            process: self.process,
            task: self.number,
            owner: owner.to_string(),
            name: name.to_string(),
            verb,
            called,
            returned: self.clock.now(),
            duration_millis: if verb == Verb::Release { 0 } else { duration.as_millis().unsigned_abs() },
            outcome,
            token,
        }
    }

    fn next_owner(&mut self) -> OwnerId {
        self.owners += 1;
        owner(&format!("{}:{}:{}", self.process, self.number, self.owners))
    }

    fn any_lease(&mut self) -> Held {
        let name = name(&format!("job-{}", self.rng.u32(0..self.load.names)));
        let (shortest, longest) = self.load.durations;
        Held { name, duration: lasting(self.between(shortest, longest)) }
    }

    /// Pauses a little, and a holder at times for so long that its lease runs out.
    async fn pause(&mut self, held: Option<&Held>) {
        let pause = match held {
            Some(held) if self.rng.u32(0..4) == 0 => self.between(Duration::ZERO, held.duration.as_duration() * 2),
            _ => self.between(Duration::ZERO, self.load.pause),
        };
        tokio::time::sleep(pause).await;
    }

    fn between(&mut self, shortest: Duration, longest: Duration) -> Duration {
        shortest + longest.saturating_sub(shortest).mul_f64(self.rng.f64())
    }
}

fn acquired(answer: &Result<Acquisition, StoreError>) -> (Outcome, Option<i64>) {
    match answer {
        Ok(Acquisition::Acquired(token)) => (Outcome::Done, Some(token.value())),
        Ok(_) => (Outcome::Refused, None),
        Err(_) => (Outcome::Failed, None),
    }
}

fn renewed(answer: &Result<Renewal, StoreError>) -> (Outcome, Option<i64>) {
    match answer {
        Ok(Renewal::Renewed { token, .. }) => (Outcome::Done, Some(token.value())),
        Ok(_) => (Outcome::Refused, None),
        Err(_) => (Outcome::Failed, None),
    }
}

fn released(answer: &Result<bool, StoreError>) -> (Outcome, Option<i64>) {
    match answer {
        Ok(true) => (Outcome::Done, None),
        Ok(false) => (Outcome::Refused, None),
        Err(_) => (Outcome::Failed, None),
    }
}
