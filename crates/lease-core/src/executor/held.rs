//! The lease in a job's hands.

use std::{error, fmt, ops::Deref, sync::Arc, time::Duration};

use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::{
    FencingToken, LeaseName, OwnerId, StopReason, StoreError, Term, clock::LocalInstant, executor::term::TermState,
};

/// The lease that a job runs under. A clone is cheap and speaks of the same term.
///
/// Its answers follow the clock, so they are true even when the executor's own tasks are starved of processor time.
///
/// # Examples
///
/// A job checks its lease right before each step that must not happen twice:
///
/// ```
/// use lease_core::{HeldLease, NotHeld};
///
/// async fn report(lease: HeldLease) -> Result<(), NotHeld> {
///     for page in 0..3 {
///         lease.check()?;
///         println!("page {page}, written under token {:?}", lease.token());
///     }
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
pub struct HeldLease(Arc<TermState>);

impl HeldLease {
    pub(crate) fn new(state: Arc<TermState>) -> Self {
        Self(state)
    }

    /// The protected job.
    pub fn name(&self) -> &LeaseName {
        self.0.name()
    }

    /// The id under which this instance owns the lease, for this one term.
    pub fn owner(&self) -> &OwnerId {
        self.0.owner()
    }

    /// The fencing token of the term; none while the executor is disabled.
    pub fn token(&self) -> Option<FencingToken> {
        self.0.token()
    }

    /// The term; none while the executor is disabled.
    pub fn term(&self) -> Option<&Term> {
        self.0.term()
    }

    /// Whether the job may go on: false from the stop point on, after a loss and after a request to stop. While the executor is
    /// disabled it is always true.
    pub fn is_held(&self) -> bool {
        self.0.is_held()
    }

    /// [`is_held`](Self::is_held) as a result, for use right before a guarded step.
    ///
    /// It narrows the window in which a paused process could still take a step, and cannot close it: only a fenced transaction, or a
    /// resource that compares [`token`](Self::token)s, does.
    ///
    /// # Errors
    ///
    /// [`NotHeld`] when the job must stop.
    pub fn check(&self) -> Result<(), NotHeld> {
        if self.is_held() { Ok(()) } else { Err(NotHeld { reason: self.stop_reason() }) }
    }

    /// A token that fires when the job must stop: at the stop point, or at once after a loss. Cancelling it affects nobody else.
    pub fn cancelled(&self) -> CancellationToken {
        self.0.stopping().child_token()
    }

    /// The local instant at which the job's future is dropped, as far as is known now; none while the executor is disabled.
    pub fn deadline(&self) -> Option<LocalInstant> {
        self.0.deadline()
    }

    /// A channel that tells each new [`deadline`](Self::deadline).
    pub fn deadlines(&self) -> watch::Receiver<Option<LocalInstant>> {
        self.0.deadlines()
    }

    /// The time left until the deadline, zero when it has passed; none while the executor is disabled.
    pub fn remaining(&self) -> Option<Duration> {
        self.deadline().map(LocalInstant::remaining)
    }

    /// Counts as the job's first turn.
    pub(crate) fn set_started(&self) {
        self.0.set_started();
    }

    /// Why the job was told to stop; none while it may go on.
    pub fn stop_reason(&self) -> Option<StopReason> {
        self.0.reason().cloned()
    }
}

/// A guarded step was refused, for the lease is not held any more.
#[derive(Clone, Debug)]
pub struct NotHeld {
    reason: Option<StopReason>,
}

impl NotHeld {
    /// Why the job must stop; none when the clock says so before the executor could.
    pub fn reason(&self) -> Option<&StopReason> {
        self.reason.as_ref()
    }
}

impl fmt::Display for NotHeld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            Some(reason) => write!(f, "the lease is not held: {reason}"),
            None => f.write_str("the lease is not held: its stop point has passed"),
        }
    }
}

impl error::Error for NotHeld {}

/// A lease in the caller's own hands, from [`Job::acquire`](crate::Job::acquire). It is renewed until it is released or dropped.
///
/// The executor cannot drop what the caller does under a guard: whoever holds one watches [`cancelled`](HeldLease::cancelled) and has
/// stopped by the [`deadline`](HeldLease::deadline). Dropping the guard releases the lease in the background.
#[derive(Debug)]
#[must_use = "dropping the guard releases the lease"]
pub struct LeaseGuard {
    lease: HeldLease,
    /// Dropped when the caller is done; the supervisor waits for that.
    done: oneshot::Sender<()>,
    released: oneshot::Receiver<Option<Result<bool, StoreError>>>,
}

impl LeaseGuard {
    pub(crate) fn new(
        lease: HeldLease,
        done: oneshot::Sender<()>,
        released: oneshot::Receiver<Option<Result<bool, StoreError>>>,
    ) -> Self {
        Self { lease, done, released }
    }

    /// Ends the renewals and releases the lease, and answers whether it was still this owner's.
    ///
    /// Call it only when everything that the lease guards has ended. While the executor is disabled the answer is `true`.
    ///
    /// # Errors
    ///
    /// The store's last error when no release was answered within the operation timeout; the lease then expires by itself.
    ///
    /// # Cancel safety
    ///
    /// The release goes on in the background.
    pub async fn release(self) -> Result<bool, StoreError> {
        let Self { lease, done, released } = self;
        drop(done);
        match released.await {
            Ok(Some(answer)) => answer,
            // Nothing was to be released: the lease is lost, or there never was one.
            Ok(None) => Ok(lease.term().is_none()),
            // The runtime is going down.
            Err(_) => Ok(false),
        }
    }
}

impl Deref for LeaseGuard {
    type Target = HeldLease;

    fn deref(&self) -> &HeldLease {
        &self.lease
    }
}
