//! A job that was started, as its form waits for it.

use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::sync::oneshot;

use crate::{
    LeaseDuration, RunError, StopReason,
    executor::{
        Shared,
        grant::Grant,
        stop::{JobEnd, supervise},
        term::TermState,
    },
};

/// Completes when a spawned job has really ended.
pub(crate) type Spawned<T> = BoxFuture<'static, JobEnd<T>>;

/// A job that was started. Dropping this tells it to stop.
pub(crate) struct Running<T> {
    shared: Arc<Shared>,
    state: Arc<TermState>,
    end: oneshot::Receiver<JobEnd<T>>,
}

/// How a job ended, and why.
pub(crate) struct Ended<T> {
    end: JobEnd<T>,
    reason: StopReason,
}

impl<T: Send + 'static> Running<T> {
    pub(crate) fn start(shared: &Arc<Shared>, grant: Grant, at_least: Option<LeaseDuration>, work: Spawned<T>) -> Self {
        let state = grant.state();
        let (answer, end) = oneshot::channel();
        let supervisor = Arc::clone(shared);
        tokio::spawn(async move {
            let supervised = supervise(supervisor, grant, at_least, work).await;
            let _ = answer.send(supervised.result);
        });
        Self { shared: Arc::clone(shared), state, end }
    }

    /// Waits until the job has ended and its lease was given up; during a shutdown only until the job has overrun its lease.
    pub(crate) async fn end(mut self) -> Result<Ended<T>, RunError> {
        let given_up = async {
            self.shared.shutdown.cancelled().await;
            self.state.overrun().cancelled().await;
        };
        tokio::select! {
            biased;
            end = &mut self.end => match end {
                Ok(end) => Ok(Ended { end, reason: self.state.reason().cloned().unwrap_or(StopReason::Ended) }),
                // The runtime is going down.
                Err(_) => Err(RunError::ShutDown),
            },
            () = given_up => Err(RunError::DidNotStop),
        }
    }
}

impl<T> Ended<T> {
    /// The end and its reason, unless the job or the heartbeat failed.
    pub(crate) fn into_end(self) -> Result<(JobEnd<T>, StopReason), RunError> {
        match (self.end, self.reason) {
            (JobEnd::Panicked(message), _) | (_, StopReason::HeartbeatFailed(message)) => {
                Err(RunError::Panicked(message))
            }
            end => Ok(end),
        }
    }
}

impl<T> Drop for Running<T> {
    fn drop(&mut self) {
        self.state.request_stop(StopReason::Abandoned);
    }
}
