//! Creates the table, and tells whether the one that is there will do.
//!
//! A runner of our own, because the table is often one in a service's database: it keeps no table of versions there, and it looks
//! before it writes, so that a user without the right to create will do once there is the table.

use lease_core::{ErrorKind, Operation, StoreError};
use tiberius::{Row, error::Error};

use crate::{
    MssqlConfig,
    error::Failure,
    link::{Limit, Link},
    sql::{Sql, number},
};

impl MssqlConfig {
    /// The SQL that [`migrate`](crate::MssqlLeaseStore::migrate) runs when there is no table, for those who run it themselves.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] names the field and the value.
    pub fn migration_sql(&self) -> Result<String, StoreError> {
        let settings = self.settings().map_err(|failure| failure.into_error(Operation::Migrate))?;
        Ok(settings.sql.migrations)
    }
}

/// Makes the table what the statements need, under an application lock when there is something to do.
pub(crate) async fn migrate(link: &Link, limit: Limit, sql: &Sql) -> Result<(), Failure> {
    if let Some(table) = Table::read(link, limit, sql).await? {
        return table.check(sql);
    }
    let created = link.run(limit, &sql.locked_migrations).await;
    // Whoever else has created it meanwhile, with or without the lock, has done what there was to do.
    match (Table::read(link, limit, sql).await?, created) {
        (Some(table), _) => table.check(sql),
        (None, Err(failure)) => Err(failure),
        (None, Ok(())) => {
            Err(Failure::new(ErrorKind::NotMigrated, format!("table {} was made, and is not to be seen", sql.table)))
        }
    }
}

/// How the column of a name or an owner compares: by code point, whatever the database's own collation.
const BINARY: &str = "_bin2";

/// What the statements need: name, type as shown, NOT NULL, in the primary key.
const NEEDED: [(&str, &str, bool, bool); 6] = [
    ("name", "nvarchar(255) with a collation in _BIN2", true, true),
    ("owner", "nvarchar(255) with a collation in _BIN2", false, false),
    ("token", "bigint", true, false),
    ("acquired_at", "datetime2(6)", true, false),
    ("expires_at", "datetime2(6)", true, false),
    ("hand_over_at", "datetime2(6)", false, false),
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
        let rows = link.query(limit, &sql.columns, &[]).await?;
        let columns: Vec<Column> = rows.iter().map(Column::read).collect::<Result<_, Error>>()?;
        let is_lasting = rows.first().map_or(Ok(0), |row| number(row, 8))? == 1;
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
            return Some("it must be a table, and a durable one: a crash would empty it".into());
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
        let text = |column| Ok::<_, Error>(row.try_get::<&str, _>(column)?.unwrap_or_default());
        Ok(Self {
            name: text(0)?.into(),
            kind: shown(text(1)?, number(row, 2)?, number(row, 3)?, text(5)?),
            is_required: number(row, 4)? == 0,
            is_key: number(row, 6)? == 1,
            fills_itself: number(row, 7)? == 1,
        })
    }
}

/// A column's type as a script would have it.
fn shown(kind: &str, bytes: i32, digits: i32, collation: &str) -> String {
    let length = match bytes {
        -1 => "max".into(),
        _ if kind.starts_with('n') => (bytes / 2).to_string(),
        _ => bytes.to_string(),
    };
    let is_binary = collation.to_ascii_lowercase().ends_with(BINARY);
    match kind {
        "datetime2" => format!("datetime2({digits})"),
        "nvarchar" | "varchar" | "nchar" | "char" if is_binary => format!("{kind}({length}) with a collation in _BIN2"),
        "nvarchar" | "varchar" | "nchar" | "char" => format!("{kind}({length}) with the collation {collation}"),
        _ => kind.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let columns = NEEDED.map(|(name, kind, is_required, is_key)| Column {
            name: name.into(),
            kind: kind.into(),
            is_required,
            is_key,
            fills_itself: false,
        });
        Table { columns: columns.into(), is_lasting: true }
    }

    fn fault(mend: impl FnOnce(&mut Table)) -> String {
        let mut table = table();
        mend(&mut table);
        table.fault().expect("it will not do")
    }

    /// SM-04, NE-03
    #[test]
    fn a_wrong_table_is_refused_by_the_name_of_its_column() {
        assert_eq!(table().fault(), None);
        assert!(fault(|table| table.is_lasting = false).contains("durable"));
        assert_eq!(fault(|table| drop(table.columns.pop())), "column \"hand_over_at\" is missing");
        assert_eq!(fault(|table| table.columns[1].is_required = true), "column \"owner\" must be nullable");
        assert_eq!(fault(|table| table.columns[0].is_key = false), "column \"name\" must be the primary key");
        let folded = fault(|table| table.columns[0].kind = shown("nvarchar", 510, 0, "Turkish_CI_AI"));
        assert!(folded.contains("nvarchar(255) with the collation Turkish_CI_AI"), "{folded}");
        let shard = |is_key, is_required| {
            fault(|table| {
                let kind = "int".into();
                table.columns.push(Column { name: "shard".into(), kind, is_required, is_key, fills_itself: false });
            })
        };
        assert!(shard(false, true).contains("\"shard\""));
        assert!(shard(true, true).contains("\"shard\""));
    }

    #[test]
    fn types_are_shown_as_a_script_has_them() {
        assert_eq!(shown("nvarchar", 510, 0, "Latin1_General_100_BIN2"), NEEDED[0].1);
        assert_eq!(shown("varchar", -1, 0, "C"), "varchar(max) with the collation C");
        assert_eq!(shown("datetime2", 8, 3, ""), "datetime2(3)");
        assert_eq!(shown("bigint", 8, 0, ""), "bigint");
    }
}
