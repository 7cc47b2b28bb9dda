//! The forms in which a named job runs.

use std::{
    convert::Infallible,
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::FutureExt;
use tokio::sync::{oneshot, watch};

use crate::{
    AcquireError, HeldLease, Leadership, LeaseDuration, LeaseGuard, LeaseName, RunError, Status, StopReason, TryRun,
    clock::LocalInstant,
    executor::{
        Shared,
        contend::{Patience, contend},
        running::{Running, Spawned},
        schedule::Floor,
        stop::{JobEnd, spawn_blocking_job, spawn_job, supervise},
        term::TermState,
    },
    telemetry,
};

/// A named job that runs on one instance at a time, from [`SingletonExecutor::job`](crate::SingletonExecutor::job).
///
/// A clone is cheap and names the same job. The futures borrow nothing, so they can be spawned; each must be awaited within a tokio
/// runtime.
#[derive(Clone, Debug)]
pub struct Job {
    shared: Arc<Shared>,
    name: LeaseName,
    at_least: Option<LeaseDuration>,
    misfire: Misfire,
}

/// What [`Job::every`] does about a run whose time has passed during an outage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Misfire {
    /// One run makes up for all that were missed, as soon as the lease is granted.
    #[default]
    RunOnce,
    /// The run is skipped when the lease is granted more than one lease duration after it was to be free; the next is a period later.
    Skip,
}

impl Job {
    pub(crate) fn new(shared: Arc<Shared>, name: LeaseName) -> Self {
        Self { shared, name, at_least: None, misfire: Misfire::default() }
    }

    /// The name of the lease.
    pub fn name(&self) -> &LeaseName {
        &self.name
    }

    /// What this executor is to the name, and each change of that. The channel keeps the latest status only, with the reason why
    /// the last term ended.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.shared.board.subscribe(&self.name)
    }

    /// Lets the lease rest until `hold` after its grant, however the job ended once it had started: no other instance runs it before.
    ///
    /// While the rest is not yet written the lease is renewed. A crash, a pause or an outage that outlasts the lease before then repeats
    /// the run.
    #[must_use]
    pub fn at_least(mut self, hold: LeaseDuration) -> Self {
        self.at_least = Some(hold);
        self
    }

    /// Sets what [`every`](Self::every) does about a run whose time has passed during an outage.
    #[must_use]
    pub fn misfire(mut self, misfire: Misfire) -> Self {
        self.misfire = misfire;
        self
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
        self.clone().run_again(spawning(job))
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

    /// Runs a blocking `job` wherever the lease is won, as [`run`](Self::run) does, on a thread for blocking work.
    ///
    /// Such a job cannot be dropped: it must look at [`is_held`](HeldLease::is_held) between its steps. One that has not ended when its
    /// lease has lapsed is treated by [`OnOverrun`](crate::OnOverrun).
    ///
    /// # Errors
    ///
    /// As for [`run`](Self::run).
    ///
    /// # Cancel safety
    ///
    /// As for [`run`](Self::run).
    pub fn run_blocking<F, T>(&self, job: F) -> impl Future<Output = Result<T, RunError>> + Send + use<F, T>
    where
        F: FnMut(HeldLease) -> T + Send + 'static,
        T: Send + 'static,
    {
        let job = Arc::new(Mutex::new(job));
        self.clone().run_again(move |state| {
            let job = Arc::clone(&job);
            spawn_blocking_job(state, move |lease| job.lock().unwrap_or_else(PoisonError::into_inner)(lease)).boxed()
        })
    }

    /// Runs `job` once a `period` across the cluster, until the executor is shut down.
    ///
    /// The period is counted from the grant of each run, on the database's clock: after a run the lease rests until then. A run that was
    /// stopped counts as the period's run, so a hand-over neither repeats nor skips one. What happens after an outage is set by
    /// [`misfire`](Self::misfire). Should a job outlast its period, the next run follows at once.
    ///
    /// # Errors
    ///
    /// As for [`run`](Self::run); a shutdown always ends it with [`RunError::ShutDown`].
    ///
    /// # Cancel safety
    ///
    /// As for [`run`](Self::run).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use lease_core::{LeaseDuration, MemoryLeaseStore, SingletonExecutor, SingletonOptions};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let executor = SingletonExecutor::new(MemoryLeaseStore::new(), SingletonOptions::enabled())?;
    /// let hour = LeaseDuration::new(Duration::from_secs(3600))?;
    /// let probe = tokio::spawn(executor.job("probe")?.every(hour, |lease| async move {
    ///     println!("probing under token {:?}", lease.token());
    /// }));
    /// tokio::time::sleep(Duration::from_secs(3 * 3600)).await;
    /// executor.shutdown().await;
    /// # probe.await?.unwrap_err();
    /// # Ok(())
    /// # }
    /// ```
    pub fn every<F, Fut>(
        &self,
        period: LeaseDuration,
        job: F,
    ) -> impl Future<Output = Result<Infallible, RunError>> + Send + use<F, Fut>
    where
        F: FnMut(HeldLease) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let hold = self.at_least.map_or(period, |at_least| at_least.max(period));
        self.clone().at_least(hold).run_every(spawning(job))
    }

    /// Acquires the lease into the caller's own hands, waiting at most `limit`: none waits for ever, zero tries once.
    ///
    /// At least one whole try is made and the last one begins at the limit, so the call may take an operation timeout longer; another
    /// one, when other attempts of this executor keep the store busy, until it fails with [`PoolTimeout`](crate::ErrorKind::PoolTimeout).
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
        Leadership::start(Arc::clone(&self.shared), self.name.clone(), self.at_least)
    }

    async fn run_again<T: Send + 'static>(
        self,
        mut spawn: impl FnMut(Arc<TermState>) -> Spawned<T>,
    ) -> Result<T, RunError> {
        let mut floor = Floor::new(self.shared.schedule.poll_interval);
        loop {
            let grant = contend(&self.shared, &self.name, Patience::Forever).await.map_err(RunError::from)?;
            let started = LocalInstant::now();
            let work = spawn(grant.state());
            match Running::start(&self.shared, grant, self.at_least, work).end().await?.into_end()? {
                (JobEnd::Finished(value), StopReason::Ended | StopReason::ShutDown) => return Ok(value),
                (_, StopReason::ShutDown) => return Err(RunError::ShutDown),
                _ => self.shared.recover(&mut floor, started).await,
            }
        }
    }

    async fn run_every(self, mut spawn: impl FnMut(Arc<TermState>) -> Spawned<()>) -> Result<Infallible, RunError> {
        let mut floor = Floor::new(self.shared.schedule.poll_interval);
        loop {
            let grant = contend(&self.shared, &self.name, Patience::Forever).await.map_err(RunError::from)?;
            let started = LocalInstant::now();
            let missed = grant.late_by.is_some_and(|late| late > self.shared.schedule.duration.as_duration());
            let work = if missed && self.misfire == Misfire::Skip {
                telemetry::run_skipped(&self.name);
                grant.state().set_started();
                async { JobEnd::Finished(()) }.boxed()
            } else {
                spawn(grant.state())
            };
            let (_, reason) = Running::start(&self.shared, grant, self.at_least, work).end().await?.into_end()?;
            if let StopReason::ShutDown = reason {
                return Err(RunError::ShutDown);
            }
            if !self.shared.enabled {
                // Nothing rests while the executor is disabled: the period is this process's own.
                let period = self.at_least.map(LeaseDuration::as_duration).unwrap_or_default();
                self.shared.pause_until(started + period).await;
            }
            self.shared.recover(&mut floor, started).await;
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
            Err(AcquireError::HeldElsewhere(holder)) => return Ok(TryRun::HeldElsewhere(holder)),
            Err(other) => return Err(other.into()),
        };
        let work = spawn_job(grant.state(), job).boxed();
        match Running::start(&self.shared, grant, self.at_least, work).end().await?.into_end()? {
            (JobEnd::Finished(value), _) => Ok(TryRun::Ran(value)),
            (_, StopReason::ShutDown | StopReason::Ended) => Err(RunError::ShutDown),
            (_, reason) => Err(RunError::Stopped(reason)),
        }
    }

    async fn acquire_within(self, limit: Option<Duration>) -> Result<LeaseGuard, AcquireError> {
        let patience = limit.map_or(Patience::Forever, |limit| Patience::Until(LocalInstant::now() + limit));
        let grant = contend(&self.shared, &self.name, patience).await?;
        let (lease, at_least) = (HeldLease::new(grant.state()), self.at_least);
        grant.state().set_started();
        let (done, caller) = oneshot::channel::<()>();
        let (answer, released) = oneshot::channel();
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            let supervised = supervise(shared, grant, at_least, async { drop(caller.await) }).await;
            let _ = answer.send(supervised.released);
        });
        Ok(LeaseGuard::new(lease, done, released))
    }
}

/// Spawns a job for each term that is won.
fn spawning<F, Fut>(job: F) -> impl FnMut(Arc<TermState>) -> Spawned<Fut::Output>
where
    F: FnMut(HeldLease) -> Fut + Send + 'static,
    Fut: Future + Send + 'static,
    Fut::Output: Send + 'static,
{
    let job = Arc::new(Mutex::new(job));
    move |state| {
        let job = Arc::clone(&job);
        let start = move |lease| {
            let mut job = job.lock().unwrap_or_else(PoisonError::into_inner);
            job(lease)
        };
        spawn_job(state, start).boxed()
    }
}
