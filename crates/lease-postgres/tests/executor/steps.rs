//! What guarded jobs did, in one record, and whether two terms of a lease ever overlapped in it.

use std::{collections::BTreeMap, time::Duration};

use lease_postgres::lease_core::{HeldLease, clock::LocalInstant};
use tokio::{sync::watch, time::timeout};

use crate::server::PATIENCE;

/// The steps that were taken under one name, by all instances.
#[derive(Debug)]
pub(crate) struct Steps {
    origin: LocalInstant,
    taken: watch::Sender<Vec<Step>>,
}

/// A step of a job, on a clock that all its instances share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) instance: usize,
    pub(crate) token: i64,
    pub(crate) at: Duration,
}

/// The steps of one term.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tenure {
    pub(crate) instance: usize,
    pub(crate) first: Duration,
    pub(crate) last: Duration,
}

impl Steps {
    pub(crate) fn new() -> Self {
        Self { origin: LocalInstant::now(), taken: watch::Sender::new(Vec::new()) }
    }

    /// Takes a step now, for an instance of this process.
    pub(crate) fn take(&self, instance: usize, lease: &HeldLease) {
        let at = LocalInstant::now().saturating_duration_since(self.origin);
        self.note(Step { instance, token: lease.token().unwrap().value(), at });
    }

    /// Notes a step that was taken elsewhere.
    pub(crate) fn note(&self, step: Step) {
        self.taken.send_modify(|steps| steps.push(step));
    }

    /// Waits for a step that answers to `is_it`, among those that were taken and those to come.
    pub(crate) async fn until(&self, what: &str, is_it: impl Fn(&Step) -> bool) -> Step {
        let mut taken = self.taken.subscribe();
        let mut seen = 0;
        let mut found = None;
        let waiting = taken.wait_for(|steps| {
            found = steps[seen..].iter().copied().find(&is_it);
            seen = steps.len();
            found.is_some()
        });
        drop(timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("never {what}; so far {:?}", self.tenures())));
        found.unwrap()
    }

    /// The terms, in the order of their tokens.
    pub(crate) fn tenures(&self) -> BTreeMap<i64, Tenure> {
        let mut tenures = BTreeMap::new();
        for Step { instance, token, at } in self.taken.borrow().iter().copied() {
            let tenure = tenures.entry(token).or_insert(Tenure { instance, first: at, last: at });
            assert_eq!(tenure.instance, instance, "two instances had the token {token}");
            (tenure.first, tenure.last) = (tenure.first.min(at), tenure.last.max(at));
        }
        tenures
    }

    /// The pauses from the last step of each term to the first of the next one, or the first two terms that overlapped.
    pub(crate) fn gaps(&self) -> Result<Vec<Duration>, String> {
        let tenures: Vec<_> = self.tenures().into_iter().collect();
        // A term's last step must precede every later term's first one, and does when it precedes the next one's: that one's own steps
        // are in order.
        let gaps = tenures.windows(2).map(|pair| {
            let [(_, former), (_, latter)] = pair else { return Err(String::new()) };
            latter.first.checked_sub(former.last).ok_or_else(|| format!("{:?} overlaps {:?}", pair[0], pair[1]))
        });
        gaps.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(steps: &[(usize, i64, u64)]) -> Steps {
        let record = Steps::new();
        for &(instance, token, millis) in steps {
            record.note(Step { instance, token, at: Duration::from_millis(millis) });
        }
        record
    }

    /// E3: one step of a former term after the first of a later one is found, in whichever order they were noted.
    #[test]
    fn one_late_step_is_an_overlap() {
        let apart = [(0, 10, 1), (0, 10, 5), (1, 20, 7), (0, 30, 9), (1, 20, 8)];
        let millis = Duration::from_millis;
        assert_eq!(steps(&apart).gaps(), Ok(vec![millis(2), millis(1)]));
        let late = [(0, 10, 1), (1, 20, 7), (1, 20, 8), (0, 10, 9)];
        assert!(steps(&late).gaps().is_err());
        let falling = [(0, 20, 1), (1, 10, 7)];
        assert!(steps(&falling).gaps().is_err());
    }
}
