//! The statements, one for each verb, and what their rows mean.

use std::{collections::HashMap, fmt::Write, sync::Arc, time::Duration};

use lease_core::{
    Acquisition, FenceReason, FencingToken, ForcedRelease, Holder, LeaseDuration, LeaseName, LossReason, OwnerId,
    Renewal, Term,
};
use sha2::{Digest, Sha256};
use tiberius::{Row, error::Error};

use crate::{config::DEFAULT_TABLE, link::Value};

/// The migrations in their order; each leaves alone what is there already.
const MIGRATIONS: [&str; 1] = [include_str!("../migrations/0001_singleton_leases.sql")];

/// How many leases are renewed by one statement: well below the 5,000 locks at which a server thinks of locking the table instead.
pub(crate) const CHUNK: usize = 1_000;

/// A statement.
#[derive(Clone, Debug)]
pub(crate) struct Statement {
    pub(crate) text: Arc<str>,
    /// Whether running it twice does no more than running it once, and answers the same.
    pub(crate) is_repeatable: bool,
}

/// The statements for one table.
#[derive(Debug)]
pub(crate) struct Sql {
    /// The table as SQL names it, quoted.
    pub(crate) table: String,
    pub(crate) migrations: String,
    /// What a migration is sent as: the lock and the migrations, in one transaction.
    pub(crate) locked_migrations: String,
    /// What each session is given to read when it is opened, where it learns by that.
    pub(crate) warm_up: String,
    pub(crate) server: Statement,
    pub(crate) columns: Statement,
    pub(crate) acquire: Statement,
    pub(crate) renew: Statement,
    pub(crate) renew_many: Statement,
    pub(crate) release: Statement,
    /// Instead of `release` where a release need not wait for the disk.
    pub(crate) release_delayed: Statement,
    pub(crate) release_after: Statement,
    pub(crate) force_release: Statement,
    pub(crate) verify: Statement,
    pub(crate) verify_unfenced: Statement,
    commit: Statement,
    pub(crate) commit_unfenced: Statement,
    pub(crate) fenced: Statement,
    pub(crate) rollback: Statement,
}

impl Sql {
    /// Puts the table's quoted name into the files. Both names have been checked: nothing in them needs to be escaped.
    pub(crate) fn new(schema: Option<&str>, table: &str) -> Self {
        let quoted = schema.map_or_else(|| format!("[{table}]"), |schema| format!("[{schema}].[{table}]"));
        let with_table = |text: &str| text.replace(DEFAULT_TABLE, &quoted);
        let statement = |text: &str| Statement { text: with_table(&bare(text)).into(), is_repeatable: false };
        let repeatable = |text: &str| Statement { is_repeatable: true, ..statement(text) };
        let quoted_text = |text: &str| literal(&with_table(&bare(text)));
        let migrations: String = MIGRATIONS.into_iter().map(with_table).collect();
        Self {
            locked_migrations: [
                include_str!("sql/migration_lock.sql"),
                &migrations,
                include_str!("sql/migration_end.sql"),
            ]
            .concat(),
            migrations,
            warm_up: bare(include_str!("sql/warm_up.sql"))
                .replace("acquire_statement", &quoted_text(include_str!("sql/acquire.sql")))
                .replace("renew_many_statement", &quoted_text(include_str!("sql/renew_many.sql"))),
            server: repeatable(include_str!("sql/server.sql")),
            columns: repeatable(include_str!("sql/columns.sql")),
            acquire: statement(include_str!("sql/acquire.sql")),
            renew: repeatable(include_str!("sql/renew.sql")),
            renew_many: repeatable(include_str!("sql/renew_many.sql")),
            release: statement(include_str!("sql/release.sql")),
            release_delayed: statement(include_str!("sql/release_delayed.sql")),
            release_after: statement(include_str!("sql/release_after.sql")),
            force_release: statement(include_str!("sql/force_release.sql")),
            verify: statement(include_str!("sql/verify.sql")),
            verify_unfenced: statement(include_str!("sql/verify_unfenced.sql")),
            commit: statement(include_str!("sql/commit.sql")),
            commit_unfenced: statement(include_str!("sql/commit_unfenced.sql")),
            fenced: statement(include_str!("sql/fenced.sql")),
            rollback: statement(include_str!("sql/rollback.sql")),
            table: quoted,
        }
    }

    /// `verify.sql` for one term, as a plain batch.
    pub(crate) fn verify_batch(&self, term: &Term) -> String {
        declared(&self.verify, term)
    }

    /// `commit.sql` for one term, as a plain batch.
    pub(crate) fn commit_batch(&self, term: &Term) -> String {
        declared(&self.commit, term)
    }
}

/// A file without what is not for the server: the whole text is sent with each call.
fn bare(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("--"));
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// A statement as a plain batch, which declares what would be its parameters.
fn declared(statement: &Statement, term: &Term) -> String {
    let (name, owner) = (literal(term.name.as_str()), literal(term.owner.as_str()));
    let (token, resource) = (term.token, literal(&resource(&term.name)));
    [
        &format!("DECLARE @P1 nvarchar(255) = {name};\nDECLARE @P2 nvarchar(255) = {owner};\n"),
        &format!("DECLARE @P3 bigint = {token};\nDECLARE @P4 nvarchar(64) = {resource};\n"),
        statement.text.as_ref(),
    ]
    .concat()
}

/// A string of SQL. In one, only the quote has a meaning, and names and owners have no control characters (S9).
fn literal(text: &str) -> String {
    format!("N'{}'", text.replace('\'', "''"))
}

/// What names the application lock of a lease within its table: no spelling of a name is too long for it, nor equal to another.
pub(crate) fn resource(name: &LeaseName) -> String {
    let mut hex = String::with_capacity(64);
    for byte in Sha256::digest(name.as_str().as_bytes()) {
        // Writing to a string never fails.
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

/// A duration as seconds and the milliseconds that are left over, for DATEADD takes no number beyond 32 bits.
pub(crate) fn split(duration: LeaseDuration) -> [Value; 2] {
    const SECOND: i64 = 1_000;
    let milliseconds = duration.as_millis();
    // A duration is 365 days at most (S10).
    [milliseconds / SECOND, milliseconds % SECOND].map(|part| Value::Int(i32::try_from(part).unwrap_or(i32::MAX)))
}

/// What the row of `acquire.sql` says.
pub(crate) fn acquisition(rows: &[Row]) -> Result<Acquisition, Error> {
    let row = only(rows)?;
    Ok(match (number(row, 0)?, row.try_get(1)?) {
        (1, Some(token)) => Acquisition::Acquired(FencingToken::new(token)),
        (2, _) => Acquisition::Held(Holder::new(owner(row, 3)?, left(row, 2)?)),
        _ => contended(),
    })
}

/// The refusal of a lease of which nobody can say who has it and for how long.
pub(crate) fn contended() -> Acquisition {
    Acquisition::Held(Holder::new(None, Duration::ZERO))
}

/// What became of a pair that was to be renewed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Renewed {
    Answer(Renewal),
    /// Somebody has locked the row, or it changed while the statement ran.
    Contended,
    /// The row is not to be seen by a statement that waits for nobody.
    Unseen,
}

/// What a row of `renew.sql` or `renew_many.sql` says of the lease of `caller`.
pub(crate) fn renewed(row: &Row, caller: &OwnerId) -> Result<Renewed, Error> {
    let is_there = number(row, 3)? == 1;
    Ok(match (number(row, 0)?, row.try_get(1)?) {
        (1, Some(token)) => Renewed::Answer(Renewal::renewed(FencingToken::new(token), number(row, 2)? == 1)),
        (2, _) if is_there => Renewed::Contended,
        (2, _) => Renewed::Unseen,
        _ => match owner(row, 4)? {
            Some(owner) if owner == *caller => Renewed::Contended,
            Some(owner) => Renewed::Answer(Renewal::Lost(LossReason::TakenOver(owner))),
            None if is_there => Renewed::Answer(Renewal::Lost(LossReason::ForcedOut)),
            None => Renewed::Answer(Renewal::Lost(LossReason::Deleted)),
        },
    })
}

/// Whether `release.sql` or `release_after.sql` found the caller's lease.
pub(crate) fn released(rows: &[Row]) -> Result<bool, Error> {
    Ok(number(only(rows)?, 0)? > 0)
}

/// What the row of `force_release.sql` says.
#[derive(Debug)]
pub(crate) enum Forced {
    /// What was ended; none when there was nothing to end.
    Answer(Option<ForcedRelease>),
    Contended,
}

pub(crate) fn forced(rows: &[Row]) -> Result<Forced, Error> {
    let row = only(rows)?;
    Ok(match number(row, 0)? {
        1 => Forced::Answer(Some(ForcedRelease::new(owner(row, 2)?, left(row, 1)?))),
        2 => Forced::Answer(None),
        _ => Forced::Contended,
    })
}

/// What the row of `fenced.sql` says of a term that was not verified.
pub(crate) fn fence_reason(rows: &[Row], term: &Term) -> Result<FenceReason, Error> {
    let Some(row) = rows.first() else {
        return Ok(FenceReason::Lost(LossReason::Deleted));
    };
    let token = FencingToken::new(row.try_get(0)?.unwrap_or_default());
    Ok(match owner(row, 1)? {
        Some(owner) if owner != term.owner => FenceReason::Lost(LossReason::TakenOver(owner)),
        Some(_) if token != term.token => FenceReason::Lost(LossReason::Superseded(token)),
        Some(_) => FenceReason::Expired,
        None => FenceReason::Lost(LossReason::ForcedOut),
    })
}

/// The pairs that `renew_many.sql` is asked for: each once, for one row cannot be written twice.
#[derive(Debug)]
pub(crate) struct Pairs<'a> {
    pub(crate) pairs: Vec<(&'a LeaseName, &'a OwnerId)>,
    /// The pair of each term.
    pub(crate) indices: Vec<usize>,
}

impl<'a> Pairs<'a> {
    pub(crate) fn of(terms: &'a [Term]) -> Self {
        let (mut pairs, mut indices) = (Vec::new(), Vec::with_capacity(terms.len()));
        let mut known = HashMap::with_capacity(terms.len());
        for term in terms {
            let pair = (&term.name, &term.owner);
            indices.push(*known.entry(pair).or_insert_with(|| {
                pairs.push(pair);
                pairs.len() - 1
            }));
        }
        Self { pairs, indices }
    }
}

/// The pairs as JSON: `[["name","owner"],..]`.
pub(crate) fn json(pairs: &[(&LeaseName, &OwnerId)]) -> String {
    let mut json = String::from("[");
    for (index, (name, owner)) in pairs.iter().enumerate() {
        json.push_str(if index == 0 { "[\"" } else { ",[\"" });
        escape(name.as_str(), &mut json);
        json.push_str("\",\"");
        escape(owner.as_str(), &mut json);
        json.push_str("\"]");
    }
    json.push(']');
    json
}

/// Names and owners have no control characters (S9), so that only these two have to be escaped.
fn escape(text: &str, json: &mut String) {
    for letter in text.chars() {
        if matches!(letter, '"' | '\\') {
            json.push('\\');
        }
        json.push(letter);
    }
}

/// The answers of `renew_many.sql` for a chunk of pairs, in their order.
pub(crate) fn renewals(rows: &[Row], pairs: &[(&LeaseName, &OwnerId)]) -> Result<Vec<Renewed>, Error> {
    let mut by_place: Vec<Option<&Row>> = vec![None; pairs.len()];
    for row in rows {
        if let Some(slot) = usize::try_from(number(row, 5)?).ok().and_then(|place| by_place.get_mut(place)) {
            *slot = Some(row);
        }
    }
    by_place
        .iter()
        .zip(pairs)
        .map(|(row, (_, owner))| row.map_or(Ok(Renewed::Unseen), |row| renewed(row, owner)))
        .collect()
}

/// The one row of an answer.
fn only(rows: &[Row]) -> Result<&Row, Error> {
    rows.first().ok_or_else(|| Error::Protocol("an answer without a row".into()))
}

/// A number that is never null.
pub(crate) fn number(row: &Row, column: usize) -> Result<i32, Error> {
    row.try_get(column)?.ok_or_else(|| Error::Conversion("a number is null".into()))
}

/// A time that is left, in microseconds; zero when it is over.
fn left(row: &Row, column: usize) -> Result<Duration, Error> {
    let microseconds: i64 = row.try_get(column)?.unwrap_or_default();
    Ok(Duration::from_micros(u64::try_from(microseconds).unwrap_or_default()))
}

/// An owner. An id that no caller could have was put there by hand, and belongs to nobody.
fn owner(row: &Row, column: usize) -> Result<Option<OwnerId>, Error> {
    let owner: Option<&str> = row.try_get(column)?;
    Ok(owner.and_then(|owner| OwnerId::new(owner).ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn term(name: &str, owner: &str) -> Term {
        Term::new(LeaseName::new(name).unwrap(), OwnerId::new(owner).unwrap(), FencingToken::new(7))
    }

    /// SM-04: the table's name stands wherever a statement names it, and nowhere else.
    #[test]
    fn a_custom_table_replaces_the_default_everywhere() {
        let sql = Sql::new(Some("jobs"), "order");
        let Sql { columns, acquire, renew, renew_many, release, release_delayed, release_after, .. } = &sql;
        let Sql { force_release, verify, commit, fenced, .. } = &sql;
        for statement in [
            columns,
            acquire,
            renew,
            renew_many,
            release,
            release_delayed,
            release_after,
            force_release,
            verify,
            commit,
            fenced,
        ] {
            assert!(statement.text.contains("[jobs].[order]") && !statement.text.contains(DEFAULT_TABLE));
        }
        assert!(sql.migrations.contains("CREATE TABLE [jobs].[order] ("));
        assert!(sql.migrations.contains("OBJECT_ID(N'[jobs].[order]', N'U')"));
        assert!(sql.locked_migrations.contains(&sql.migrations));
        assert_eq!(Sql::new(None, "t").table, "[t]");
    }

    /// What is sent with each call is the statement alone, each line of it.
    #[test]
    fn comments_are_not_sent() {
        let Sql { release, rollback, .. } = Sql::new(None, "t");
        assert!(release.text.starts_with("DECLARE @released TABLE ("), "{}", release.text);
        assert_eq!(&*rollback.text, "IF @@TRANCOUNT > 0\nROLLBACK TRANSACTION;\n");
    }

    /// S9: whatever may stand in a name or an owner stands in a plain batch as itself.
    #[test]
    fn a_plain_batch_quotes_what_it_declares() {
        let batch = Sql::new(None, "t").verify_batch(&term("it's; --", "''"));
        assert!(batch.starts_with("DECLARE @P1 nvarchar(255) = N'it''s; --';\nDECLARE @P2 nvarchar(255) = N'''''';\n"));
        assert!(batch.contains("DECLARE @P3 bigint = 7;\n"));
    }

    /// OV-01: no part of a duration is beyond 32 bits, and none is lost.
    #[test]
    fn a_duration_is_split_into_seconds_and_milliseconds() {
        let parts = |milliseconds| {
            let duration = LeaseDuration::new(Duration::from_millis(milliseconds)).unwrap();
            split(duration).map(|part| if let Value::Int(part) = part { part } else { -1 })
        };
        assert_eq!(parts(1), [0, 1]);
        assert_eq!(parts(86_399_999), [86_399, 999]);
        assert_eq!(parts(2_147_483_648), [2_147_483, 648]);
        assert_eq!(parts(365 * 86_400_000), [31_536_000, 0]);
    }

    /// S4: a pair that comes twice is sent once, and each term finds its own.
    #[test]
    fn repeated_pairs_are_sent_once() {
        let terms = [term("x", "a"), term("x", "b"), term("x", "a"), term("y \"\\", "a")];
        let Pairs { pairs, indices } = Pairs::of(&terms);
        assert_eq!(json(&pairs), r#"[["x","a"],["x","b"],["y \"\\","a"]]"#);
        assert_eq!(indices, [0, 1, 0, 2]);
        assert_eq!(json(&[]), "[]");
    }

    /// Two names never share an application lock, and neither do two spellings of one.
    #[test]
    fn each_name_has_its_own_application_lock() {
        let resource = |name| resource(&LeaseName::new(name).unwrap());
        assert_eq!(resource("job"), "5e8c9902207afaeb7120430c585a445f21e92932081d64bc99f80e4925bcb002");
        assert_ne!(resource("job"), resource("Job"));
        assert_eq!(resource(&"n".repeat(255)).len(), 64);
    }
}
