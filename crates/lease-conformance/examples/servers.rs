//! Finds or starts a database server for tests, says where it is as one line of JSON, and keeps it until standard input ends.
//!
//! `cargo run -p lease-conformance --features servers --example servers -- postgres [IMAGE]`
#![expect(clippy::print_stdout, reason = "the line is what this program is for")]

use std::{error::Error, io};

use lease_conformance::servers::PostgresServer;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (database, image) = (arguments.next().unwrap_or_default(), arguments.next());
    let server = match (database.as_str(), image) {
        ("postgres", None) => PostgresServer::find()?,
        ("postgres", Some(image)) => PostgresServer::in_container(&image)?,
        (other, _) => return Err(format!("no server for {other:?} can be found here: it must be \"postgres\"").into()),
    };
    println!("{}", serde_json::json!({ "url": server.url(), "source": server.source().to_string() }));
    io::copy(&mut io::stdin(), &mut io::sink())?;
    Ok(())
}
