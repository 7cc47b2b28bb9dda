//! `lease migrate`: makes the table of leases, or shows how.

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use crate::{
    args::MigrateArguments,
    exit::{Failure, INTERNAL},
    store::StoreUrl,
};

/// Creates or upgrades the table, or prints the SQL that does.
pub(crate) async fn migrate(arguments: &MigrateArguments) -> Result<ExitCode, Failure> {
    let store = StoreUrl::parse(arguments.store.url.as_deref())?;
    if arguments.print {
        let sql = store.migration_sql()?;
        return print(&sql).map_err(|error| Failure::caused(INTERNAL, "cannot print the migration", &error));
    }
    store.open().await?;
    Ok(ExitCode::SUCCESS)
}

fn print(sql: &str) -> io::Result<ExitCode> {
    let mut output = io::stdout().lock();
    writeln!(output, "{}", sql.trim_end())?;
    output.flush()?;
    Ok(ExitCode::SUCCESS)
}
