//! The statements, one for each verb, and what their rows mean.

use std::{collections::HashMap, error, time::Duration};

use lease_core::{Acquisition, FenceReason, FencingToken, ForcedRelease, Holder, LossReason, OwnerId, Renewal, Term};
use tokio_postgres::{
    Error, Row,
    types::{FromSql, Type},
};

use crate::config::DEFAULT_TABLE;

/// The migrations in their order; each leaves alone what is there already.
const MIGRATIONS: [&str; 1] = [include_str!("../migrations/0001_singleton_leases.sql")];

/// By how much a new row may be younger than its clock before it counts as one that had to wait. More than an insert takes, and less
/// than a lease would miss; one that was late for another reason, such as a busy machine, is renewed once for nothing.
const LATE: Duration = Duration::from_millis(2);

/// A statement and the types of its parameters.
#[derive(Debug)]
pub(crate) struct Statement {
    pub(crate) text: String,
    pub(crate) types: &'static [Type],
    /// Whether running it twice does no more than running it once, and answers the same.
    pub(crate) is_repeatable: bool,
    /// Whether it is prepared once for each connection, or planned each time that it is sent.
    pub(crate) is_prepared: bool,
}

impl Statement {
    fn repeatable(self) -> Self {
        Self { is_repeatable: true, ..self }
    }

    /// For a statement whose plan depends on how much it is asked for. From its sixth run on, the server would run a prepared one by a
    /// plan for ten rows, which for a thousand takes 25 times as long.
    fn planned_each_time(self) -> Self {
        Self { is_prepared: false, ..self }
    }
}

/// The statements for one table.
#[derive(Debug)]
pub(crate) struct Sql {
    /// The table as SQL names it, quoted.
    pub(crate) table: String,
    /// The channel that a release is told on.
    pub(crate) channel: String,
    pub(crate) migrations: String,
    /// What a migration is sent as: the lock and the migrations, in one transaction.
    pub(crate) locked_migrations: String,
    pub(crate) listen: String,
    pub(crate) version: Statement,
    pub(crate) columns: Statement,
    pub(crate) acquire: Statement,
    pub(crate) renew: Statement,
    pub(crate) renew_many: Statement,
    pub(crate) release: Statement,
    pub(crate) release_after: Statement,
    pub(crate) force_release: Statement,
    pub(crate) verify: Statement,
    pub(crate) fenced: Statement,
}

impl Sql {
    /// Puts the table's quoted name into the files. Both names have been checked.
    pub(crate) fn new(schema: Option<&str>, table: &str) -> Self {
        const LEASE: &[Type] = &[Type::TEXT, Type::TEXT, Type::INT8];
        let quoted = schema.map_or_else(|| format!("\"{table}\""), |schema| format!("\"{schema}\".\"{table}\""));
        let with_table = |text: &str| text.replace(DEFAULT_TABLE, &quoted);
        let statement =
            |text: &str, types| Statement { text: with_table(text), types, is_repeatable: false, is_prepared: true };
        let migrations: String = MIGRATIONS.into_iter().map(with_table).collect();
        Self {
            channel: table.into(),
            locked_migrations: [include_str!("sql/migration_lock.sql"), &migrations].concat(),
            migrations,
            listen: include_str!("sql/listen.sql").replace(DEFAULT_TABLE, &format!("\"{table}\"")),
            version: statement(include_str!("sql/version.sql"), &[]).repeatable(),
            columns: statement(include_str!("sql/columns.sql"), const { &[Type::TEXT] }).repeatable(),
            acquire: statement(include_str!("sql/acquire.sql"), LEASE),
            renew: statement(include_str!("sql/renew.sql"), LEASE).repeatable(),
            renew_many: statement(
                include_str!("sql/renew_many.sql"),
                const { &[Type::TEXT_ARRAY, Type::TEXT_ARRAY, Type::INT8] },
            )
            .repeatable()
            .planned_each_time(),
            release: statement(include_str!("sql/release.sql"), const { &[Type::TEXT, Type::TEXT, Type::TEXT] }),
            release_after: statement(include_str!("sql/release_after.sql"), LEASE),
            force_release: statement(
                include_str!("sql/force_release.sql"),
                const { &[Type::TEXT, Type::BOOL, Type::TEXT] },
            ),
            verify: statement(include_str!("sql/verify.sql"), LEASE),
            fenced: statement(include_str!("sql/fenced.sql"), const { &[Type::TEXT] }),
            table: quoted,
        }
    }
}

/// What the rows of `acquire.sql` say.
#[derive(Debug)]
pub(crate) enum Acquired {
    Answer(Acquisition),
    /// The grant was made, but some of its term was spent waiting (S7).
    Late,
}

impl Acquired {
    pub(crate) fn read(rows: &[Row]) -> Result<Self, Error> {
        let Some(row) = rows.first() else {
            return Ok(Self::Answer(contended()));
        };
        let (at, now) = (row.try_get::<_, Moment>(1)?, row.try_get::<_, Moment>(2)?);
        Ok(match row.try_get::<_, Option<i64>>(0)?.map(FencingToken::new) {
            Some(_) if now.since(at) > LATE => Self::Late,
            Some(token) => Self::Answer(Acquisition::Acquired(token)),
            None => Self::Answer(Acquisition::Held(Holder::new(owner(row, 3)?, at.since(now)))),
        })
    }
}

/// The refusal of a lease of which nobody can say who has it and for how long.
pub(crate) fn contended() -> Acquisition {
    Acquisition::Held(Holder::new(None, Duration::ZERO))
}

/// What a row of `renew.sql` says of the lease of `caller`; none when the row was locked, or changed while the statement waited.
pub(crate) fn renewal(row: &Row, caller: &OwnerId) -> Result<Option<Renewal>, Error> {
    if let Some(token) = row.try_get(0)? {
        return Ok(Some(Renewal::renewed(FencingToken::new(token), row.try_get(1)?)));
    }
    let exists: bool = row.try_get(2)?;
    Ok(match owner(row, 3)? {
        Some(owner) if owner == *caller => None,
        Some(owner) => Some(Renewal::Lost(LossReason::TakenOver(owner))),
        None if exists => Some(Renewal::Lost(LossReason::ForcedOut)),
        None => Some(Renewal::Lost(LossReason::Deleted)),
    })
}

/// What a row of `force_release.sql` says; none when there is a lease to end, and somebody has locked it.
pub(crate) fn forced(row: &Row) -> Result<Option<ForcedRelease>, Error> {
    if !row.try_get(0)? {
        return Ok(None);
    }
    let (at, now) = (row.try_get::<_, Moment>(1)?, row.try_get::<_, Moment>(2)?);
    Ok(Some(ForcedRelease::new(owner(row, 3)?, at.since(now))))
}

/// What a row of `fenced.sql` says of a term that was not verified.
pub(crate) fn fence_reason(row: &Row, term: &Term) -> Result<FenceReason, Error> {
    let token = FencingToken::new(row.try_get(1)?);
    Ok(match owner(row, 0)? {
        Some(owner) if owner != term.owner => FenceReason::Lost(LossReason::TakenOver(owner)),
        Some(_) if token != term.token => FenceReason::Lost(LossReason::Superseded(token)),
        Some(_) => FenceReason::Expired,
        None => FenceReason::Lost(LossReason::ForcedOut),
    })
}

/// The names and the owners that `renew_many.sql` is asked for: each pair once, for one row cannot be written twice.
#[derive(Debug)]
pub(crate) struct Pairs<'a> {
    pub(crate) names: Vec<&'a str>,
    pub(crate) owners: Vec<&'a str>,
    /// The pair of each term.
    indices: Vec<usize>,
    terms: &'a [Term],
}

impl<'a> Pairs<'a> {
    pub(crate) fn of(terms: &'a [Term]) -> Self {
        let mut pairs = Self { names: Vec::new(), owners: Vec::new(), indices: Vec::new(), terms };
        let mut known = HashMap::with_capacity(terms.len());
        for term in terms {
            let index = *known.entry((&term.name, &term.owner)).or_insert_with(|| {
                pairs.names.push(term.name.as_str());
                pairs.owners.push(term.owner.as_str());
                pairs.names.len() - 1
            });
            pairs.indices.push(index);
        }
        pairs
    }

    /// The answer for each term, in their order; none where `renewal` has none.
    pub(crate) fn renewals(&self, rows: &[Row]) -> Result<Vec<Option<Renewal>>, Error> {
        let mut by_pair: Vec<Option<&Row>> = vec![None; self.names.len()];
        for row in rows {
            let place = usize::try_from(row.try_get::<_, i64>(4)?).unwrap_or_default();
            if let Some(slot) = place.checked_sub(1).and_then(|index| by_pair.get_mut(index)) {
                *slot = Some(row);
            }
        }
        let answers = self.terms.iter().zip(&self.indices);
        answers.map(|(term, index)| by_pair[*index].map_or(Ok(None), |row| renewal(row, &term.owner))).collect()
    }
}

/// An owner. An id that no caller could have was put there by hand, and belongs to nobody.
fn owner(row: &Row, column: usize) -> Result<Option<OwnerId>, Error> {
    let owner: Option<&str> = row.try_get(column)?;
    Ok(owner.and_then(|owner| OwnerId::new(owner).ok()))
}

/// A time on the database's clock, in microseconds since the year 2000. The ends of the range are infinity, which no type of the
/// standard library has.
#[derive(Clone, Copy, Debug)]
struct Moment(i64);

impl Moment {
    /// The time from `earlier` to this, zero when it is not earlier.
    fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or_default())
    }
}

impl<'a> FromSql<'a> for Moment {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn error::Error + Sync + Send>> {
        Ok(Self(i64::from_be_bytes(raw.try_into()?)))
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::TIMESTAMPTZ
    }
}

#[cfg(test)]
mod tests {
    use lease_core::LeaseName;

    use super::*;

    /// SM-04: the table's name stands wherever a statement names it, and nowhere else.
    #[test]
    fn a_custom_table_replaces_the_default_everywhere() {
        let sql = Sql::new(Some("jobs"), "order");
        let Sql { acquire, renew, renew_many, release, release_after, force_release, verify, fenced, .. } = &sql;
        for statement in [acquire, renew, renew_many, release, release_after, force_release, verify, fenced] {
            assert!(statement.text.contains("\"jobs\".\"order\"") && !statement.text.contains(DEFAULT_TABLE));
        }
        assert!(sql.migrations.contains("CREATE TABLE IF NOT EXISTS \"jobs\".\"order\" ("));
        assert!(sql.locked_migrations.ends_with(&sql.migrations));
        assert!(sql.listen.ends_with("LISTEN \"order\";\n"));
        assert_eq!(sql.channel, "order");
    }

    /// S4: a pair that comes twice is sent once, and each term finds its own.
    #[test]
    fn repeated_pairs_are_sent_once() {
        let term = |name: &str, owner: &str| {
            Term::new(LeaseName::new(name).unwrap(), OwnerId::new(owner).unwrap(), FencingToken::new(1))
        };
        let terms = [term("x", "a"), term("x", "b"), term("x", "a"), term("y", "a")];
        let pairs = Pairs::of(&terms);
        assert_eq!((pairs.names, pairs.owners), (vec!["x", "x", "y"], vec!["a", "b", "a"]));
        assert_eq!(pairs.indices, [0, 1, 0, 2]);
    }

    /// A row that somebody set to infinity by hand, and one that has passed: no panic, and never less than nothing.
    #[test]
    fn times_beyond_the_range_are_no_trouble() {
        let (past, now, end) = (Moment(i64::MIN), Moment(7), Moment(i64::MAX));
        assert_eq!(past.since(now), Duration::ZERO);
        assert_eq!(end.since(past), Duration::from_micros(i64::MAX.unsigned_abs()));
        assert_eq!(now.since(Moment(3)), Duration::from_micros(4));
    }
}
