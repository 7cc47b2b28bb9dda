//! How many attempts an executor makes at once, so that many contenders leave the store room for renewals (E2, E11, PE-01).

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    ErrorKind, Operation, StoreError,
    clock::{self, LocalInstant},
    executor::{contend::Patience, schedule::Schedule},
};

/// One less than the connections that a provider's store has by default, which are 4: the last is left to renewals and releases, which
/// must be on time. An attempt waits for nobody's lock, so more at once would only queue within the store, where the time of a grant
/// runs already.
const ATTEMPTS_AT_ONCE: usize = 3;

/// Lets a few attempts through at once; the others wait in line.
#[derive(Debug)]
pub(crate) struct Gate(Arc<Semaphore>);

/// The right to make one attempt. It is given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Pass(#[expect(dead_code, reason = "it is kept to be dropped")] OwnedSemaphorePermit);

impl Default for Gate {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(ATTEMPTS_AT_ONCE)))
    }
}

impl Gate {
    /// Waits in line. Whoever does not wait for ever waits to his limit, but always for the time that one attempt may take, and is told
    /// then that the store had no room: nothing happened.
    ///
    /// # Cancel safety
    ///
    /// Who goes away has left the line, and takes nothing along.
    pub(crate) async fn pass(&self, schedule: &Schedule, patience: Patience) -> Result<Pass, StoreError> {
        let start = LocalInstant::now();
        let give_up = async {
            let least = start + schedule.operation_timeout;
            match patience {
                Patience::Once => clock::sleep_until(least, schedule.clock_step()).await,
                Patience::Until(limit) => clock::sleep_until(limit.max(least), schedule.clock_step()).await,
                Patience::Forever => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            permit = Arc::clone(&self.0).acquire_owned() => Ok(Pass(permit.expect("nobody closes the gate"))),
            () = give_up => {
                let waited = LocalInstant::now().saturating_duration_since(start);
                let detail = format!("{ATTEMPTS_AT_ONCE} other attempts of this executor were under way for {waited:?}");
                Err(StoreError::new(Operation::Acquire, ErrorKind::PoolTimeout).with_detail(detail))
            }
        }
    }
}
