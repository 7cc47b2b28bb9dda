//! Finds or starts a database server for tests, says where it is as one line of JSON, and keeps it until standard input ends.
//!
//! `cargo run -p lease-conformance --features servers --example servers -- postgres|mssql [IMAGE]`
#![expect(clippy::print_stdout, reason = "the line is what this program is for")]

use std::{error::Error, io};

use lease_conformance::servers::{MssqlServer, PostgresServer, Source};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (database, image) = (arguments.next().unwrap_or_default(), arguments.next());
    match database.as_str() {
        "postgres" => {
            let server = image.as_deref().map_or_else(PostgresServer::find, PostgresServer::in_container)?;
            keep(server.url(), server.source())
        }
        "mssql" => {
            let server = image.as_deref().map_or_else(MssqlServer::find, MssqlServer::in_container)?;
            keep(server.url(), server.source())
        }
        other => Err(format!("no server for {other:?} can be found here: it must be \"postgres\" or \"mssql\"").into()),
    }
}

/// Says where the server is, and returns when nobody needs it any more.
fn keep(url: &str, source: &Source) -> Result<(), Box<dyn Error>> {
    println!("{}", serde_json::json!({ "url": url, "source": source.to_string() }));
    io::copy(&mut io::stdin(), &mut io::sink())?;
    Ok(())
}
