//! What operators do to leases.

use async_trait::async_trait;
use lease_core::{ErrorKind, ForceRelease, ForcedRelease, LeaseAdmin, LeaseName, Operation, StoreError};

use crate::{PostgresLeaseStore, error::Failure, link::Parameters, sql};

#[async_trait]
impl LeaseAdmin for PostgresLeaseStore {
    async fn force_release(&self, name: &LeaseName, mode: ForceRelease) -> Result<Option<ForcedRelease>, StoreError> {
        self.force_out(name, mode).await.map_err(|failure| failure.into_error(Operation::ForceRelease))
    }
}

impl PostgresLeaseStore {
    async fn force_out(&self, name: &LeaseName, mode: ForceRelease) -> Result<Option<ForcedRelease>, Failure> {
        let (frees, sql) = (mode == ForceRelease::Now, &self.sql);
        let parameters: &Parameters<'_> = &[&name.as_str(), &frees, &sql.channel];
        let rows = self.link.query(self.limit(), &sql.force_release, parameters).await?;
        match rows.first().map(sql::forced).transpose()? {
            Some(None) => Err(Failure::new(ErrorKind::Contended, "somebody's transaction has the row")),
            forced => Ok(forced.flatten()),
        }
    }
}
