//! The executor as `lease run` uses it: one job, one guard.

use std::{io::IsTerminal as _, sync::Arc, time::Duration};

use lease_core::{AcquireError, Job, LeaseGuard, LeaseStore, SingletonExecutor};

use crate::{
    exit::{Failure, INTERNAL, REFUSED, UNAVAILABLE, USAGE, say},
    settings::RunSettings,
};

/// How long a contender that is told to go waits for what it has under way.
const GOING: Duration = Duration::from_secs(1);

/// Somebody who wants the lease.
#[derive(Debug)]
pub(crate) struct Contender {
    executor: SingletonExecutor,
    job: Job,
}

impl Contender {
    /// A contender for the lease that the settings name.
    pub(crate) fn new(store: Arc<dyn LeaseStore>, settings: &RunSettings) -> Result<Self, Failure> {
        let executor = SingletonExecutor::new(store, settings.options.clone())
            .map_err(|error| Failure::new(USAGE, error.to_string()))?;
        let job = executor.job(&settings.name).map_err(|error| Failure::new(USAGE, error.to_string()))?;
        Ok(Self { executor, job })
    }

    /// Acquires the lease; a store that cannot answer the first try is not waited for.
    ///
    /// # Cancel safety
    ///
    /// A grant that arrives after the future was dropped is released, before [`go`](Self::go) returns.
    pub(crate) async fn acquire(&self, wait: bool) -> Result<LeaseGuard, Failure> {
        match self.job.acquire(Some(Duration::ZERO)).await {
            Err(AcquireError::HeldElsewhere(holder)) if wait => {
                if std::io::stderr().is_terminal() {
                    say(&format!("waiting for {:?}: {}", self.job.name(), AcquireError::HeldElsewhere(holder)));
                }
                self.job.acquire(None).await
            }
            answer => answer,
        }
        .map_err(|error| self.failure(&error))
    }

    /// Ends everything that is under way, and waits for it, but not long.
    pub(crate) async fn go(self) {
        let _ = tokio::time::timeout(GOING, self.executor.shutdown()).await;
    }

    fn failure(&self, error: &AcquireError) -> Failure {
        let code = match error {
            AcquireError::HeldElsewhere(_) => REFUSED,
            AcquireError::Store(_) => UNAVAILABLE,
            _ => INTERNAL,
        };
        Failure::caused(code, format_args!("cannot acquire {:?}", self.job.name()), error)
    }
}
