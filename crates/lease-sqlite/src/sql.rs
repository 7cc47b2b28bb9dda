//! The statements, one for each verb, and what their rows mean.

use std::time::Duration;

use lease_core::{
    Acquisition, FencingToken, ForceRelease, ForcedRelease, Holder, LeaseDuration, LeaseName, LossReason, OwnerId,
    Renewal,
};
use rusqlite::{Connection, OptionalExtension, Params, Result, Row};

use crate::config::DEFAULT_TABLE;

/// The migrations in their order; each leaves alone what is there already.
const MIGRATIONS: [&str; 1] = [include_str!("../migrations/0001_singleton_leases.sql")];

/// The statements for one table.
#[derive(Debug)]
pub(crate) struct Sql {
    pub(crate) table: String,
    pub(crate) migrations: Vec<String>,
    pub(crate) columns: &'static str,
    guard: String,
    acquire: String,
    renew: String,
    owner: String,
    release: String,
    release_after: String,
    force_release: String,
}

impl Sql {
    /// Puts the table's quoted name into the files. The name has been checked.
    pub(crate) fn new(table: &str) -> Self {
        let quoted = format!("\"{table}\"");
        let with_table = |text: &str| text.replace(DEFAULT_TABLE, &quoted);
        Self {
            table: table.into(),
            migrations: MIGRATIONS.into_iter().map(with_table).collect(),
            columns: include_str!("sql/columns.sql"),
            guard: with_table(include_str!("sql/guard.sql")),
            acquire: with_table(include_str!("sql/acquire.sql")),
            renew: with_table(include_str!("sql/renew.sql")),
            owner: with_table(include_str!("sql/owner.sql")),
            release: with_table(include_str!("sql/release.sql")),
            release_after: with_table(include_str!("sql/release_after.sql")),
            force_release: with_table(include_str!("sql/force_release.sql")),
        }
    }

    /// Why `owner` may not have the lease, without a write: none when it may (S3).
    pub(crate) fn guard(&self, connection: &Connection, name: &LeaseName, owner: &OwnerId) -> Result<Option<Holder>> {
        first(connection, &self.guard, (name.as_str(), owner.as_str()), |row| {
            let left = Duration::from_micros(row.get::<_, i64>(1)?.unsigned_abs());
            Ok(Holder::new(owner_of(row)?, left))
        })
    }

    /// Grants the lease, or says who was faster.
    pub(crate) fn acquire(
        &self,
        transaction: &Connection,
        name: &LeaseName,
        owner: &OwnerId,
        duration: LeaseDuration,
    ) -> Result<Acquisition> {
        let parameters = (name.as_str(), owner.as_str(), duration.as_micros());
        let token = first(transaction, &self.acquire, parameters, |row| row.get(0))?;
        if let Some(token) = token {
            return Ok(Acquisition::Acquired(FencingToken::new(token)));
        }
        let holder = self.guard(transaction, name, owner)?;
        Ok(Acquisition::Held(holder.unwrap_or_else(|| Holder::new(None, Duration::ZERO))))
    }

    /// Renews the lease, or says why it is lost, which is read in the same transaction.
    pub(crate) fn renew(
        &self,
        transaction: &Connection,
        name: &LeaseName,
        owner: &OwnerId,
        duration: LeaseDuration,
    ) -> Result<Renewal> {
        let parameters = (name.as_str(), owner.as_str(), duration.as_micros());
        let renewed = first(transaction, &self.renew, parameters, |row| {
            Ok(Renewal::renewed(FencingToken::new(row.get(0)?), row.get(1)?))
        })?;
        if let Some(renewed) = renewed {
            return Ok(renewed);
        }
        Ok(Renewal::Lost(match first(transaction, &self.owner, [name.as_str()], owner_of)? {
            Some(Some(owner)) => LossReason::TakenOver(owner),
            Some(None) => LossReason::ForcedOut,
            None => LossReason::Deleted,
        }))
    }

    /// Frees the lease; false when it is not `owner`'s.
    pub(crate) fn release(&self, transaction: &Connection, name: &LeaseName, owner: &OwnerId) -> Result<bool> {
        let released = first(transaction, &self.release, (name.as_str(), owner.as_str()), |_| Ok(()))?;
        Ok(released.is_some())
    }

    /// Lets the lease rest; false when it is not `owner`'s.
    pub(crate) fn release_after(
        &self,
        transaction: &Connection,
        name: &LeaseName,
        owner: &OwnerId,
        hold: LeaseDuration,
    ) -> Result<bool> {
        let parameters = (name.as_str(), owner.as_str(), hold.as_micros());
        let released = first(transaction, &self.release_after, parameters, |_| Ok(()))?;
        Ok(released.is_some())
    }

    /// Forces the holder out; none when there is nothing to end.
    pub(crate) fn force_release(
        &self,
        transaction: &Connection,
        name: &LeaseName,
        mode: ForceRelease,
    ) -> Result<Option<ForcedRelease>> {
        let owner = first(transaction, &self.owner, [name.as_str()], owner_of)?.flatten();
        let parameters = (name.as_str(), mode == ForceRelease::Now);
        first(transaction, &self.force_release, parameters, |row| {
            let rest: i64 = row.get(0)?;
            Ok(ForcedRelease::new(owner, Duration::from_micros(rest.max(0).unsigned_abs())))
        })
    }
}

/// The first row of a statement that is prepared once for each connection.
fn first<T>(
    connection: &Connection,
    sql: &str,
    parameters: impl Params,
    read: impl FnOnce(&Row<'_>) -> Result<T>,
) -> Result<Option<T>> {
    connection.prepare_cached(sql)?.query_row(parameters, read).optional()
}

/// The owner in the first column. An id that no caller could have was put there by hand, and belongs to nobody.
fn owner_of(row: &Row<'_>) -> Result<Option<OwnerId>> {
    let owner: Option<String> = row.get(0)?;
    Ok(owner.and_then(|owner| OwnerId::new(owner).ok()))
}
