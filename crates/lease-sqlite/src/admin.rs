//! What operators do to leases.

use async_trait::async_trait;
use lease_core::{ForceRelease, ForcedRelease, LeaseAdmin, LeaseName, Operation, StoreError};

use crate::SqliteLeaseStore;

#[async_trait]
impl LeaseAdmin for SqliteLeaseStore {
    async fn force_release(&self, name: &LeaseName, mode: ForceRelease) -> Result<Option<ForcedRelease>, StoreError> {
        let name = name.clone();
        let forced = self.write(self.deadline(), move |sql, transaction| sql.force_release(transaction, &name, mode));
        forced.await.map_err(|failure| failure.into_error(Operation::ForceRelease))
    }
}
