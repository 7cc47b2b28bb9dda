//! The statements, one for each verb, and what their rows mean.

use std::time::Duration;

use lease_core::{
    Acquisition, FenceReason, FencingToken, ForceRelease, ForcedRelease, Holder, LeaseDuration, LeaseName, LossReason,
    OwnerId, Renewal, Term,
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
    pub(crate) verify: String,
    fenced: String,
    row: String,
    acquire: String,
    renew: String,
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
            verify: with_table(include_str!("sql/verify.sql")),
            fenced: with_table(include_str!("sql/fenced.sql")),
            row: with_table(include_str!("sql/row.sql")),
            acquire: with_table(include_str!("sql/acquire.sql")),
            renew: with_table(include_str!("sql/renew.sql")),
            release: with_table(include_str!("sql/release.sql")),
            release_after: with_table(include_str!("sql/release_after.sql")),
            force_release: with_table(include_str!("sql/force_release.sql")),
        }
    }

    /// Why `owner` may not have the lease, as far as a read can tell: none when it may (S3).
    pub(crate) fn guard(&self, connection: &Connection, name: &LeaseName, owner: &OwnerId) -> Result<Option<Holder>> {
        let held = self.state(connection, name)?.filter(|state| state.owner.as_ref() != Some(owner) && state.left > 0);
        Ok(held.map(State::into_holder))
    }

    /// Grants the lease, or says who was faster. Whether it was granted is read from the row: whoever calls and owns it afterwards
    /// has it from this statement.
    pub(crate) fn acquire(
        &self,
        transaction: &Connection,
        name: &LeaseName,
        owner: &OwnerId,
        duration: LeaseDuration,
    ) -> Result<Acquisition> {
        let parameters = (name.as_str(), owner.as_str(), duration.as_micros());
        transaction.prepare_cached(&self.acquire)?.execute(parameters)?;
        Ok(match self.state(transaction, name)? {
            Some(state) if state.owner.as_ref() == Some(owner) => Acquisition::Acquired(state.token),
            Some(state) => Acquisition::Held(state.into_holder()),
            None => Acquisition::Held(Holder::new(None, Duration::ZERO)),
        })
    }

    /// Renews the lease, or says why it is lost. Both are read from the row, in the same transaction.
    pub(crate) fn renew(
        &self,
        transaction: &Connection,
        name: &LeaseName,
        owner: &OwnerId,
        duration: LeaseDuration,
    ) -> Result<Renewal> {
        let parameters = (name.as_str(), owner.as_str(), duration.as_micros());
        transaction.prepare_cached(&self.renew)?.execute(parameters)?;
        Ok(match self.state(transaction, name)? {
            Some(State { owner: Some(found), token, hand_over, .. }) if found == *owner => {
                Renewal::renewed(token, hand_over)
            }
            Some(State { owner: Some(other), .. }) => Renewal::Lost(LossReason::TakenOver(other)),
            Some(State { owner: None, .. }) => Renewal::Lost(LossReason::ForcedOut),
            None => Renewal::Lost(LossReason::Deleted),
        })
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
        let owner = self.state(transaction, name)?.and_then(|state| state.owner);
        let parameters = (name.as_str(), mode == ForceRelease::Now);
        first(transaction, &self.force_release, parameters, |row| Ok(ForcedRelease::new(owner, time_left(row.get(0)?))))
    }

    /// Why the term is over; none when it was verified. The transaction is the caller's, and so is the connection's statement cache,
    /// which stays as it is.
    pub(crate) fn verify(&self, transaction: &Connection, term: &Term) -> Result<Option<FenceReason>> {
        let parameters = (term.name.as_str(), term.owner.as_str(), term.token.value());
        if transaction.query_row(&self.verify, parameters, |_| Ok(())).optional()?.is_some() {
            return Ok(None);
        }
        // The write lock is held, so that this is what has kept it from being verified.
        let reason = transaction.query_row(&self.fenced, [term.name.as_str()], |row| {
            let token = FencingToken::new(row.get(1)?);
            Ok(match owner(row)? {
                Some(owner) if owner != term.owner => FenceReason::Lost(LossReason::TakenOver(owner)),
                Some(_) if token != term.token => FenceReason::Lost(LossReason::Superseded(token)),
                Some(_) => FenceReason::Expired,
                None => FenceReason::Lost(LossReason::ForcedOut),
            })
        });
        Ok(Some(reason.optional()?.unwrap_or(FenceReason::Lost(LossReason::Deleted))))
    }

    fn state(&self, connection: &Connection, name: &LeaseName) -> Result<Option<State>> {
        first(connection, &self.row, [name.as_str()], State::read)
    }
}

/// What the row of a lease says now.
struct State {
    owner: Option<OwnerId>,
    token: FencingToken,
    hand_over: bool,
    /// Microseconds until the expiry.
    left: i64,
}

impl State {
    fn read(row: &Row<'_>) -> Result<Self> {
        Ok(Self {
            owner: owner(row)?,
            token: FencingToken::new(row.get(1)?),
            hand_over: row.get(2)?,
            left: row.get(3)?,
        })
    }

    fn into_holder(self) -> Holder {
        Holder::new(self.owner, time_left(self.left))
    }
}

/// The owner in the first column. An id that no caller could have was put there by hand, and is nobody's.
fn owner(row: &Row<'_>) -> Result<Option<OwnerId>> {
    let owner: Option<String> = row.get(0)?;
    Ok(owner.and_then(|owner| OwnerId::new(owner).ok()))
}

fn time_left(micros: i64) -> Duration {
    Duration::from_micros(micros.max(0).unsigned_abs())
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
