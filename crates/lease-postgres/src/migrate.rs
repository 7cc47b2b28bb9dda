//! Creates the table, and tells whether the one that is there will do.
//!
//! A runner of our own, because the table is often one in a service's database: it keeps no table of versions there, and it looks
//! before it writes, so that a role without the right to create will do once there is the table.

use lease_core::ErrorKind;
use tokio_postgres::{Error, Row};

use crate::{
    error::Failure,
    link::{Limit, Link},
    sql::Sql,
};

/// Makes the table what the statements need, under an advisory lock when there is something to do.
pub(crate) async fn migrate(link: &Link, limit: Limit, sql: &Sql) -> Result<(), Failure> {
    if let Some(table) = Table::read(link, limit, sql).await? {
        return table.check(sql);
    }
    link.run(limit, &sql.locked_migrations).await?;
    match Table::read(link, limit, sql).await? {
        Some(table) => table.check(sql),
        None => Err(Failure::new(ErrorKind::NotMigrated, format!("table {} is not on the search path", sql.table))),
    }
}

/// What the statements need: name, type, NOT NULL, in the primary key.
const NEEDED: [(&str, &str, bool, bool); 6] = [
    ("name", "text", true, true),
    ("owner", "text", false, false),
    ("token", "bigint", true, false),
    ("acquired_at", "timestamp with time zone", true, false),
    ("expires_at", "timestamp with time zone", true, false),
    ("hand_over_at", "timestamp with time zone", false, false),
];

/// The table as it is.
#[derive(Debug)]
struct Table {
    columns: Vec<Column>,
    /// Whether it is a table that a crash leaves alone.
    is_lasting: bool,
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
    async fn read(link: &Link, limit: Limit, sql: &Sql) -> Result<Option<Self>, Failure> {
        let rows = link.query(limit, &sql.columns, &[&sql.table]).await?;
        let columns: Vec<Column> = rows.iter().map(Column::read).collect::<Result<_, Error>>()?;
        let is_lasting = rows.first().map_or(Ok(false), |row| row.try_get(5))?;
        Ok((!columns.is_empty()).then_some(Self { columns, is_lasting }))
    }

    fn check(&self, sql: &Sql) -> Result<(), Failure> {
        match self.fault() {
            None => Ok(()),
            Some(fault) => Err(Failure::new(ErrorKind::NotMigrated, format!("table {}: {fault}", sql.table))),
        }
    }

    /// The first thing that is wrong with the table. Columns of somebody else's are welcome as long as they need no value.
    fn fault(&self) -> Option<String> {
        if !self.is_lasting {
            return Some("it must be a table, and neither temporary nor unlogged: a crash would empty it".into());
        }
        for (name, kind, is_required, is_key) in NEEDED {
            let Some(column) = self.columns.iter().find(|column| column.name == name) else {
                return Some(format!("column \"{name}\" is missing"));
            };
            if column.kind != kind {
                return Some(format!("column \"{name}\" is {}: it must be {kind}", column.kind));
            }
            if column.is_required != is_required {
                let wanted = if is_required { "NOT NULL" } else { "nullable" };
                return Some(format!("column \"{name}\" must be {wanted}"));
            }
            if column.is_key != is_key {
                return Some(format!("column \"{name}\" must {}be the primary key", if is_key { "" } else { "not " }));
            }
        }
        let mut others = self.columns.iter().filter(|column| NEEDED.iter().all(|(name, ..)| column.name != *name));
        let in_the_way = others.find(|column| column.is_key || (column.is_required && !column.fills_itself));
        in_the_way.map(|column| {
            format!("column \"{}\" must be nullable, or have a default, and not be in the key", column.name)
        })
    }
}

impl Column {
    fn read(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            name: row.try_get(0)?,
            kind: row.try_get(1)?,
            is_required: row.try_get(2)?,
            is_key: row.try_get(3)?,
            fills_itself: row.try_get(4)?,
        })
    }
}
