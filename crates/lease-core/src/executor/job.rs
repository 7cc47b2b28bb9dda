//! The forms in which a named job runs.

use std::{
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::oneshot;

use crate::{
    AcquireError, HeldLease, Leadership, LeaseGuard, LeaseName, RunError, StopReason, TryRun,
    clock::{self, LocalInstant},
    executor::{
        Shared,
        contend::{Grant, NoGrant, Patience, contend},
        schedule::Floor,
        stop::{JobEnd, spawn_job, supervise},
        term::TermState,
    },
};

/// A named job that runs on one instance at a time, from [`SingletonExecutor::job`](crate::SingletonExecutor::job).
///
/// A clone is cheap and names the same job. The futures borrow nothing, so they can be spawned; each must be awaited within a tokio
/// runtime.
#[derive(Clone, Debug)]
pub struct Job {
    shared: Arc<Shared>,
    name: LeaseName,
}

impl Job {
    pub(crate) fn new(shared: Arc<Shared>, name: LeaseName) -> Self {
        Self { shared, name }
    }

    /// The name of the lease.
    pub fn name(&self) -> &LeaseName {
        &self.name
    }

    /// Runs `job` wherever the lease is won, and again after a loss, until it ends by itself.
    ///
    /// The job is spawned. At the stop point its token fires; a job that returns after that counts as stopped, and runs again when
    /// the lease is won again. At the deadline its future is dropped. The lease is released when the job has really ended.
    ///
    /// # Errors
    ///
    /// [`RunError::Panicked`] when the job panicked. [`RunError::ShutDown`] after a shutdown, unless the job returned within its grace
    /// time: then its value is the answer. [`RunError::DidNotStop`] when it had not ended when a shutdown gave it up.
    /// [`RunError::Store`] for a permanent error of the store before its first answer; afterwards everything is tried again.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future tells the job to stop: it has its grace time, and the lease is released when it has ended.
    ///
    /// # Examples
    ///
    /// ```
    /// use lease_core::{MemoryLeaseStore, SingletonExecutor, SingletonOptions};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let executor = SingletonExecutor::new(MemoryLeaseStore::new(), SingletonOptions::enabled())?;
    /// let pages = executor.job("nightly-report")?.run(|lease| async move {
    ///     let mut pages = 0;
    ///     while pages < 3 && lease.is_held() {
    ///         pages += 1;
    ///     }
    ///     pages
    /// });
    /// assert_eq!(pages.await?, 3);
    /// # Ok(())
    /// # }
    /// ```
    pub fn run<F, Fut>(&self, job: F) -> impl Future<Output = Result<Fut::Output, RunError>> + Send + use<F, Fut>
    where
        F: FnMut(HeldLease) -> Fut + Send + 'static,
        Fut: Future + Send + 'static,
        Fut::Output: Send + 'static,
    {
        self.clone().run_again(job)
    }

    /// Runs `job` once, if its lease is free now.
    ///
    /// # Errors
    ///
    /// [`RunError::Stopped`] when the job was dropped, with the reason; [`RunError::Store`] when the store could not answer; else as
    /// for [`run`](Self::run). A job that returns within its grace time has [`Ran`](TryRun::Ran).
    ///
    /// # Cancel safety
    ///
    /// As for [`run`](Self::run).
    pub fn try_run<F, Fut>(
        &self,
        job: F,
    ) -> impl Future<Output = Result<TryRun<Fut::Output>, RunError>> + Send + use<F, Fut>
    where
        F: FnOnce(HeldLease) -> Fut + Send + 'static,
        Fut: Future + Send + 'static,
        Fut::Output: Send + 'static,
    {
        self.clone().run_once(job)
    }

    /// Acquires the lease into the caller's own hands, waiting at most `limit`: none waits for ever, zero tries once.
    ///
    /// At least one whole try is made and the last one begins at the limit, so the call may take an operation timeout longer.
    ///
    /// # Errors
    ///
    /// [`AcquireError::HeldElsewhere`] when the limit has passed; [`AcquireError::Store`] when the last try failed, or for a permanent
    /// error before the store's first answer; [`AcquireError::ShutDown`] after a shutdown.
    ///
    /// # Cancel safety
    ///
    /// A grant that arrives after the future was dropped is released.
    pub fn acquire(
        &self,
        limit: Option<Duration>,
    ) -> impl Future<Output = Result<LeaseGuard, AcquireError>> + Send + use<> {
        self.clone().acquire_within(limit)
    }

    /// Contends for the lease in the background from now on, for services that ask whether they lead.
    ///
    /// Whatever the store answers, it is tried again. Dropping the [`Leadership`] gives the lease up.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn leadership(&self) -> Leadership {
        Leadership::start(Arc::clone(&self.shared), self.name.clone())
    }

    async fn run_again<F, Fut>(self, job: F) -> Result<Fut::Output, RunError>
    where
        F: FnMut(HeldLease) -> Fut + Send + 'static,
        Fut: Future + Send + 'static,
        Fut::Output: Send + 'static,
    {
        let job = Arc::new(Mutex::new(job));
        let mut floor = Floor::new(self.shared.schedule.poll_interval);
        loop {
            let grant = contend(&self.shared, &self.name, Patience::Forever).await.map_err(RunError::from)?;
            let started = LocalInstant::now();
            let job = Arc::clone(&job);
            let start = move |lease| {
                let mut job = job.lock().unwrap_or_else(PoisonError::into_inner);
                job(lease)
            };
            let (end, reason) = Running::start(&self.shared, grant, start).end().await?;
            match (end, reason) {
                (JobEnd::Panicked(message), _) | (_, Some(StopReason::HeartbeatPanicked(message))) => {
                    return Err(RunError::Panicked(message));
                }
                (JobEnd::Finished(value), Some(StopReason::Ended | StopReason::ShutDown)) => return Ok(value),
                (_, Some(StopReason::ShutDown)) => return Err(RunError::ShutDown),
                _ => self.recover(&mut floor, started).await,
            }
        }
    }

    async fn run_once<F, Fut>(self, job: F) -> Result<TryRun<Fut::Output>, RunError>
    where
        F: FnOnce(HeldLease) -> Fut + Send + 'static,
        Fut: Future + Send + 'static,
        Fut::Output: Send + 'static,
    {
        let grant = match contend(&self.shared, &self.name, Patience::Once).await {
            Ok(grant) => grant,
            Err(NoGrant::HeldElsewhere(holder)) => return Ok(TryRun::HeldElsewhere(holder)),
            Err(other) => return Err(other.into()),
        };
        match Running::start(&self.shared, grant, job).end().await? {
            (JobEnd::Finished(value), _) => Ok(TryRun::Ran(value)),
            (JobEnd::Panicked(message), _) | (_, Some(StopReason::HeartbeatPanicked(message))) => {
                Err(RunError::Panicked(message))
            }
            (JobEnd::Dropped, Some(StopReason::ShutDown) | None) => Err(RunError::ShutDown),
            (JobEnd::Dropped, Some(reason)) => Err(RunError::Stopped(reason)),
        }
    }

    async fn acquire_within(self, limit: Option<Duration>) -> Result<LeaseGuard, AcquireError> {
        let patience = match limit {
            None => Patience::Forever,
            Some(limit) if limit.is_zero() => Patience::Once,
            Some(limit) => Patience::Until(LocalInstant::now() + limit),
        };
        let grant = contend(&self.shared, &self.name, patience).await?;
        let lease = HeldLease::new(grant.state());
        let (done, caller) = oneshot::channel::<()>();
        let (answer, released) = oneshot::channel();
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            let supervised = supervise(shared, grant, async { drop(caller.await) }).await;
            let _ = answer.send(supervised.released);
        });
        Ok(LeaseGuard::new(lease, done, released))
    }

    /// After a term that hardly lasted, waits a little before the next.
    async fn recover(&self, floor: &mut Floor, started: LocalInstant) {
        let lasted = LocalInstant::now().saturating_duration_since(started);
        let pause = floor.lift(lasted);
        tokio::select! {
            () = self.shared.shutdown.cancelled() => {}
            () = clock::sleep_until(started + pause, self.shared.schedule.clock_step()) => {}
        }
    }
}

/// A job that was started. Dropping this tells it to stop.
struct Running<T> {
    shared: Arc<Shared>,
    state: Arc<TermState>,
    end: oneshot::Receiver<JobEnd<T>>,
}

impl<T: Send + 'static> Running<T> {
    fn start<Fut>(shared: &Arc<Shared>, grant: Grant, job: impl FnOnce(HeldLease) -> Fut + Send + 'static) -> Self
    where
        Fut: Future<Output = T> + Send + 'static,
    {
        let state = grant.state();
        let (answer, end) = oneshot::channel();
        let (supervisor, work) = (Arc::clone(shared), spawn_job(Arc::clone(&state), job));
        tokio::spawn(async move {
            let supervised = supervise(supervisor, grant, work).await;
            let _ = answer.send(supervised.result);
        });
        Self { shared: Arc::clone(shared), state, end }
    }

    /// Waits until the job has ended and its lease was released; during a shutdown only until the job has overrun its lease.
    async fn end(mut self) -> Result<(JobEnd<T>, Option<StopReason>), RunError> {
        let given_up = async {
            self.shared.shutdown.cancelled().await;
            self.state.overrun().cancelled().await;
        };
        tokio::select! {
            biased;
            end = &mut self.end => match end {
                Ok(end) => Ok((end, self.state.reason().cloned())),
                // The runtime is going down.
                Err(_) => Err(RunError::ShutDown),
            },
            () = given_up => Err(RunError::DidNotStop),
        }
    }
}

impl<T> Drop for Running<T> {
    fn drop(&mut self) {
        self.state.request_stop(StopReason::Abandoned);
    }
}
