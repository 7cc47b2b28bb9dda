//! What operators do to leases.

use async_trait::async_trait;
use lease_core::{ErrorKind, ForceRelease, ForcedRelease, LeaseAdmin, LeaseName, Operation, StoreError};

use crate::{
    MssqlLeaseStore,
    error::Failure,
    link::Value,
    sql::{self, Forced},
    store::text,
};

#[async_trait]
impl LeaseAdmin for MssqlLeaseStore {
    async fn force_release(&self, name: &LeaseName, mode: ForceRelease) -> Result<Option<ForcedRelease>, StoreError> {
        self.force_out(name, mode).await.map_err(|failure| failure.into_error(Operation::ForceRelease))
    }
}

impl MssqlLeaseStore {
    async fn force_out(&self, name: &LeaseName, mode: ForceRelease) -> Result<Option<ForcedRelease>, Failure> {
        let frees = Value::Int(i32::from(mode == ForceRelease::Now));
        let parameters = [text(name.as_str()), frees, Value::Text(sql::resource(name))];
        let forced = match self.link.query(self.limit(), &self.sql.force_release, &parameters).await {
            // Where the hints are ignored, the statement waits.
            Err(failure) if failure.kind() == ErrorKind::Busy => Forced::Contended,
            rows => sql::forced(&rows?)?,
        };
        match forced {
            Forced::Answer(forced) => Ok(forced),
            Forced::Contended => {
                Err(Failure::new(ErrorKind::Contended, "somebody's transaction has the row or has verified it"))
            }
        }
    }
}
