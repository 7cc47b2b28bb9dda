//! The stop chain: told to stop, dropped at the deadline, joined, and only then released (E3).

use std::{any::Any, future::Future, pin::Pin, pin::pin, process, sync::Arc};

use futures::FutureExt;
use tokio::task::JoinError;
use tracing::Instrument;

use crate::{
    HeldLease, LeaseDuration, OnOverrun, StoreError,
    clock::{self, LocalInstant},
    executor::{Shared, grant::Grant, release::Release, term::TermState},
    telemetry,
};

/// What became of a job.
#[derive(Debug)]
pub(crate) enum JobEnd<T> {
    Finished(T),
    /// Its future was dropped, or never polled.
    Dropped,
    Panicked(String),
}

/// Spawns a job and answers when it has really ended.
pub(crate) fn spawn_job<Fut>(
    state: Arc<TermState>,
    start: impl FnOnce(HeldLease) -> Fut + Send + 'static,
) -> impl Future<Output = JobEnd<Fut::Output>> + Send
where
    Fut: Future + Send + 'static,
    Fut::Output: Send + 'static,
{
    let span = telemetry::job_span(state.name(), state.token());
    let run = async move {
        if state.may_start() {
            state.set_started();
            let job = start(HeldLease::new(Arc::clone(&state)));
            guarded(&state, job).await
        } else {
            JobEnd::Dropped
        }
    };
    tokio::spawn(run.instrument(span)).map(joined)
}

/// Starts a blocking job on a thread for such, and answers when it has really ended. It cannot be dropped.
pub(crate) fn spawn_blocking_job<T: Send + 'static>(
    state: Arc<TermState>,
    job: impl FnOnce(HeldLease) -> T + Send + 'static,
) -> impl Future<Output = JobEnd<T>> + Send {
    let span = telemetry::job_span(state.name(), state.token());
    let task = tokio::task::spawn_blocking(move || {
        let _entered = span.enter();
        if !state.may_start() {
            return JobEnd::Dropped;
        }
        state.set_started();
        JobEnd::Finished(job(HeldLease::new(state)))
    });
    task.map(joined)
}

fn joined<T>(end: Result<JobEnd<T>, JoinError>) -> JobEnd<T> {
    match end {
        Ok(end) => end,
        Err(error) if error.is_panic() => JobEnd::Panicked(panic_message(&*error.into_panic())),
        Err(_) => JobEnd::Dropped,
    }
}

/// Polls a job only while it may run. The clock is read before each poll: a process that was paused drops its job instead.
async fn guarded<Fut: Future>(state: &TermState, job: Fut) -> JobEnd<Fut::Output> {
    let mut dropping = pin!(state.dropping().cancelled());
    let must_drop = std::future::poll_fn(|context| {
        state.watch_the_clock(LocalInstant::now());
        dropping.as_mut().poll(context)
    });
    tokio::select! {
        biased;
        () = must_drop => JobEnd::Dropped,
        value = Box::pin(job) => JobEnd::Finished(value),
    }
}

/// How a supervised term ended.
#[derive(Debug)]
pub(crate) struct Supervised<R> {
    pub(crate) result: R,
    /// The answer to the release; none when there was nothing to release.
    pub(crate) released: Option<Result<bool, StoreError>>,
}

/// Keeps the lease of a grant alive until `work` has really ended, and releases it then; with a minimum hold it lets it rest (E10).
pub(crate) async fn supervise<R>(
    shared: Arc<Shared>,
    grant: Grant,
    at_least: Option<LeaseDuration>,
    work: impl Future<Output = R>,
) -> Supervised<R> {
    let held = grant.start();
    let state = Arc::clone(&held.state);
    let mut work = pin!(work);
    let result = tokio::select! {
        biased;
        result = work.as_mut() => result,
        () = state.dropping().cancelled() => join(&shared, &state, work).await,
    };
    state.end();
    let Some(term) = state.term() else {
        return Supervised { result, released: None };
    };
    let release =
        Release { store: &*shared.store, state: &state, term, hold: at_least.filter(|_| state.has_started()) };
    let released = release.until_answered().await;
    if let Some(turn) = &held.turn {
        turn.stand_back(release.stand_back(&released));
    }
    Supervised { result, released: released.answer }
}

/// Waits for a job that was dropped, and reports one that has not ended when its lease has lapsed.
async fn join<R>(shared: &Shared, state: &TermState, mut work: Pin<&mut impl Future<Output = R>>) -> R {
    let schedule = state.schedule();
    let lapse = match state.deadline() {
        Some(deadline) if !state.is_lost() => schedule.lapse(deadline),
        _ => LocalInstant::now() + schedule.margin,
    };
    tokio::select! {
        biased;
        result = work.as_mut() => return result,
        () = clock::sleep_until(lapse, schedule.clock_step()) => {}
    }
    telemetry::overrun(state.name(), state.token());
    if shared.on_overrun == OnOverrun::Abort {
        process::abort();
    }
    state.overrun().cancel();
    state.settled().cancel();
    work.await
}

/// What a panic said.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let message = panic.downcast_ref::<&str>().map(ToString::to_string);
    message.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
