//! Creates the table, and tells whether the one that is there will do.
//!
//! A runner of our own, because the table is often one in a service's database: it keeps no table of versions there, nor takes the
//! service's `user_version`, and it looks before it writes, so that a file without write access will do once it has the table.

use lease_core::ErrorKind;
use rusqlite::{Connection, Row};

use crate::{error::Failure, session::Session, sql::Sql};

/// Makes the table what the statements need, under the database's write lock when there is something to do.
pub(crate) fn migrate(session: &mut Session<'_>, sql: &Sql) -> Result<(), Failure> {
    session.create()?;
    if let Some(table) = session.read(|connection| Table::read(connection, sql))? {
        return table.check(sql);
    }
    session.write(|transaction| {
        for migration in &sql.migrations {
            transaction.execute_batch(migration)?;
        }
        Table::read(transaction, sql)?.map_or(Ok(()), |table| table.check(sql))
    })
}

/// What the statements need: name, type, NOT NULL, PRIMARY KEY.
const NEEDED: [(&str, &str, bool, bool); 6] = [
    ("name", "TEXT", true, true),
    ("owner", "TEXT", false, false),
    ("token", "INTEGER", true, false),
    ("acquired_at", "INTEGER", true, false),
    ("expires_at", "INTEGER", true, false),
    ("hand_over_at", "INTEGER", false, false),
];

/// The table as it is.
#[derive(Debug, Default)]
struct Table {
    columns: Vec<Column>,
    is_strict: bool,
}

#[derive(Debug)]
struct Column {
    name: String,
    kind: String,
    is_required: bool,
    is_key: bool,
    fills_itself: bool,
}

impl Table {
    /// None when there is no such table.
    fn read(connection: &Connection, sql: &Sql) -> rusqlite::Result<Option<Self>> {
        let mut statement = connection.prepare(sql.columns)?;
        let mut rows = statement.query([&sql.table])?;
        let mut table = Self::default();
        while let Some(row) = rows.next()? {
            table.columns.push(Column::read(row)?);
            table.is_strict = row.get(5)?;
        }
        Ok((!table.columns.is_empty()).then_some(table))
    }

    fn check(&self, sql: &Sql) -> Result<(), Failure> {
        match self.fault() {
            None => Ok(()),
            Some(fault) => Err(Failure::new(ErrorKind::NotMigrated, format!("table \"{}\": {fault}", sql.table))),
        }
    }

    /// The first thing that is wrong with the table. Columns of somebody else's are welcome as long as they need no value.
    fn fault(&self) -> Option<String> {
        for (name, kind, is_required, is_key) in NEEDED {
            let Some(column) = self.columns.iter().find(|column| column.is(name)) else {
                return Some(format!("column \"{name}\" is missing"));
            };
            if !column.kind.eq_ignore_ascii_case(kind) {
                return Some(format!("column \"{name}\" is {}: it must be {kind}", column.kind));
            }
            if column.is_required != is_required {
                return Some(format!(
                    "column \"{name}\" must be {}",
                    if is_required { "NOT NULL" } else { "nullable" }
                ));
            }
            if column.is_key != is_key {
                return Some(format!("column \"{name}\" must {}be the primary key", if is_key { "" } else { "not " }));
            }
        }
        let mut others = self.columns.iter().filter(|column| NEEDED.iter().all(|(name, ..)| !column.is(name)));
        if let Some(Column { name, .. }) = others.find(|column| column.is_in_the_way()) {
            return Some(format!("column \"{name}\" must be nullable, or have a default, and not be in the key"));
        }
        (!self.is_strict).then(|| "it must be STRICT, or an overflow would be stored as a REAL".into())
    }
}

impl Column {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            name: row.get(0)?,
            kind: row.get(1)?,
            is_required: row.get(2)?,
            is_key: row.get::<_, i64>(3)? > 0,
            fills_itself: row.get(4)?,
        })
    }

    fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }

    /// Whether a row cannot be written without a value for it.
    fn is_in_the_way(&self) -> bool {
        self.is_key || (self.is_required && !self.fills_itself)
    }
}
