//! The stop chain: told to stop, dropped at the deadline, joined, and only then released (E3).

use std::{any::Any, future::Future, panic::AssertUnwindSafe, pin::Pin, pin::pin, process, sync::Arc, task::Poll};

use futures::FutureExt;

use crate::{
    ErrorKind, HeldLease, LeaseStore, OnOverrun, Operation, StopReason, StoreError, Term,
    clock::{self, LocalInstant},
    executor::{
        Shared,
        contend::Grant,
        heartbeat::{self, TermEnd},
        schedule::{Floor, Schedule},
        term::TermState,
    },
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
    let task = tokio::spawn(async move {
        if state.is_held() && !state.must_drop() {
            let job = start(HeldLease::new(Arc::clone(&state)));
            guarded(&state, job).await
        } else {
            JobEnd::Dropped
        }
    });
    task.map(|joined| match joined {
        Ok(end) => end,
        Err(error) if error.is_panic() => JobEnd::Panicked(panic_message(&*error.into_panic())),
        Err(_) => JobEnd::Dropped,
    })
}

/// Polls a job only while it may run. The clock is read before each poll: a process that was paused drops its job instead.
async fn guarded<Fut: Future>(state: &TermState, job: Fut) -> JobEnd<Fut::Output> {
    let mut job = Some(Box::pin(job));
    let mut dropping = pin!(state.dropping().cancelled());
    std::future::poll_fn(move |context| {
        let told = dropping.as_mut().poll(context).is_ready();
        let Some(running) = job.as_mut() else { return Poll::Ready(JobEnd::Dropped) };
        if told || state.must_drop() {
            state.notice_the_clock();
            job = None;
            return Poll::Ready(JobEnd::Dropped);
        }
        state.notice_the_clock();
        running.as_mut().poll(context).map(JobEnd::Finished)
    })
    .await
}

/// How a supervised term ended.
#[derive(Debug)]
pub(crate) struct Supervised<R> {
    pub(crate) result: R,
    /// The answer to the release; none when there was nothing to release.
    pub(crate) released: Option<Result<bool, StoreError>>,
}

/// Keeps the lease of a grant alive until `work` has really ended, and releases it then.
pub(crate) async fn supervise<R>(shared: Arc<Shared>, grant: Grant, work: impl Future<Output = R>) -> Supervised<R> {
    let held = grant.start();
    let state = Arc::clone(&held.state);
    let mut work = pin!(work);
    let heartbeat = AssertUnwindSafe(heartbeat::keep(&*shared.store, &state, held.anchor)).catch_unwind();
    let first = tokio::select! {
        biased;
        result = work.as_mut() => Ok(result),
        end = heartbeat => Err(end),
    };
    let (result, lost) = match first {
        Ok(result) => (result, false),
        Err(end) => {
            if let Err(panic) = &end {
                state.lose(StopReason::HeartbeatPanicked(panic_message(&**panic)));
            }
            let lost = matches!(end, Ok(TermEnd::Lost));
            (join(&shared, &state, work, lost).await, lost)
        }
    };
    state.end();
    let released = match state.term() {
        Some(term) => {
            telemetry::ended(term, state.reason());
            if lost { None } else { Some(release(&*shared.store, term, state.schedule()).await) }
        }
        None => None,
    };
    drop(held);
    Supervised { result, released }
}

/// Waits for a job that was dropped, and reports one that has not ended when its lease has lapsed.
async fn join<R>(shared: &Shared, state: &TermState, mut work: Pin<&mut impl Future<Output = R>>, lost: bool) -> R {
    let schedule = state.schedule();
    let lapse = match state.deadline() {
        Some(deadline) if !lost => schedule.lapse(deadline),
        _ => LocalInstant::now() + schedule.margin,
    };
    tokio::select! {
        biased;
        result = work.as_mut() => return result,
        () = clock::sleep_until(lapse, schedule.clock_step()) => {}
    }
    telemetry::overrun(state.name(), state.term().map(|term| term.token));
    if shared.on_overrun == OnOverrun::Abort {
        process::abort();
    }
    state.overrun().cancel();
    state.settled().cancel();
    work.await
}

/// Releases a term whose job has ended; an error is tried again within the operation timeout.
async fn release(store: &dyn LeaseStore, term: &Term, schedule: &Schedule) -> Result<bool, StoreError> {
    let give_up = LocalInstant::now() + schedule.operation_timeout;
    let mut floor = Floor::new(schedule.poll_interval);
    loop {
        match release_once(store, term, give_up).await {
            Err(error) if error.is_retryable() && floor.current() < give_up.remaining() => {
                tokio::time::sleep(floor.next()).await;
            }
            Err(error) => {
                telemetry::release_failed(&term.name, &error);
                return Err(error);
            }
            answer => return answer,
        }
    }
}

/// Sends one release, and waits for its answer until `give_up`.
pub(crate) async fn release_once(
    store: &dyn LeaseStore,
    term: &Term,
    give_up: LocalInstant,
) -> Result<bool, StoreError> {
    let limit = give_up.remaining();
    match tokio::time::timeout(limit, store.release(&term.name, &term.owner)).await {
        Ok(answer) => answer,
        Err(_) => Err(StoreError::new(Operation::Release, ErrorKind::Indeterminate)
            .with_detail(format!("no answer within {limit:?}"))),
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let message = panic.downcast_ref::<&str>().map(ToString::to_string);
    message.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
