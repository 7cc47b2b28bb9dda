//! Stores on a SQL Server: what can be wrong with one at the start, and its table.

use std::{fs, net::TcpListener, time::Duration};

use lease_core::clock::LocalInstant;

use crate::support::{Place, Store, code, output, refusal};

/// Runs on this store, and expects the code, one line, no command, and no password.
fn refused(url: &str, expected: i32) -> String {
    let place = Place::new();
    let (code, said) = refusal(place.lease().args(["run", "--name", "job", "--store", url, "--", "touch", "ran"]));
    assert_eq!(code, Some(expected), "{url}: {said}");
    assert!(said.starts_with("lease: ") && said.lines().count() == 1, "{said:?}");
    assert!(!said.contains("hunter"), "a password was shown: {said}");
    assert_eq!(fs::read_dir(place.path(".")).unwrap().count(), 0, "{url} left something behind");
    said
}

/// What can never be a store is bad usage, and nobody is asked for it.
#[test]
fn a_url_that_cannot_be() {
    for (url, reason) in [
        ("mssql:hunter2@localhost/service", "mssql://"),
        ("mssql://app:hunter2@localhost:port/service", "port"),
        ("mssql://app:hunter2", "port"),
        ("mssql://app:hunter2@localhost/service?encrypt=maybe", "maybe"),
        ("mssql://app:hunter2@localhost/service?nonsense=hunter2", "nonsense"),
        ("mssql://app:hunter2@localhost/service?trust_cert=perhaps", "perhaps"),
        ("mssql://app:hunter2@localhost/service?connect_timeout=soon", "connect_timeout"),
        ("sqlserver://app:hunter2@localhost/service?table=a-b", "table \"a-b\""),
        ("sqlserver://app:hunter2@localhost/service?schema=", "schema \"\""),
        ("mssql://app:hunter2@localhost/service?operation_timeout=0", "operation_timeout"),
        ("mssql:///service", "no host"),
        ("mssql://localhost/service", "no user"),
        ("mssql://app:hunter2@localhost/service?ca=absent.pem", "absent.pem"),
        ("mssql://app:hunter2@localhost/service?ca=absent.pem&trust_cert=true", "give one of them"),
    ] {
        let said = refused(url, 64);
        assert!(said.contains(reason), "{url}: {said}");
    }
}

#[test]
fn a_server_that_is_not_there() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let said = refused(&format!("mssql://app:hunter2@127.0.0.1:{port}/service"), 69);
    assert!(said.starts_with("lease: open lease store: database unavailable") && said.contains("refused"), "{said}");
    let said = refused("mssql://app:hunter2@no-such-host.invalid/service", 69);
    assert!(said.contains("database unavailable"), "{said}");
}

/// S12, CL-03: a server that takes connections and says nothing is waited for as long as an operation may take.
#[test]
fn a_server_that_does_not_answer() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url =
        format!("mssql://app:hunter2@127.0.0.1:{}/service?operation_timeout=1", silent.local_addr().unwrap().port());
    let started = LocalInstant::now();
    let said = refused(&url, 69);
    let took = LocalInstant::now().saturating_duration_since(started);
    assert!(took >= Duration::from_millis(900) && took < Duration::from_secs(5), "{took:?}: {said}");
}

/// A login that is not let in, and a database that does not exist. No password is shown, be it right or wrong.
#[test]
#[cfg_attr(
    lease_no_mssql,
    ignore = "no SQL Server: run `LEASE_MSSQL_URL=mssql://USER:PASSWORD@HOST/DATABASE cargo xtask test`"
)]
fn a_server_that_refuses() {
    let place = Place::on(Store::Mssql);
    let url = place.url();
    let (login, rest) = url.split_once('@').unwrap();
    let (user, _) = login.rsplit_once(':').unwrap();
    let said = refused(&format!("{user}:hunter3@{rest}"), 69);
    assert!(said.to_lowercase().contains("login") || said.contains("password"), "{said}");
    let (address, query) = url.split_once('?').unwrap_or((&url, ""));
    let (server, _) = address.rsplit_once('/').unwrap();
    let said = refused(&format!("{server}/absent?{query}"), 64);
    assert!(said.contains("absent"), "{said}");
}

#[test]
#[cfg_attr(
    lease_no_mssql,
    ignore = "no SQL Server: run `LEASE_MSSQL_URL=mssql://USER:PASSWORD@HOST/DATABASE cargo xtask test`"
)]
fn migrate_makes_the_table_or_shows_how() {
    let place = Place::on(Store::Mssql);
    let printed = output(place.lease().args(["migrate", "--print", "--store", &place.url()]));
    assert_eq!(printed.status.code(), Some(0));
    let tables = "SELECT COUNT_BIG(*) FROM sys.tables WHERE name = N'singleton_leases'";
    assert_eq!(place.database.session().number(tables), Some(0), "printing touches nothing");
    for _ in 0..2 {
        assert_eq!(code(place.lease().args(["migrate", "--store", &place.url()])), Some(0));
    }
    assert_eq!(place.database.session().number(tables), Some(1));

    // What was printed makes a table that will do.
    let by_hand = Place::on(Store::Mssql);
    let sql = String::from_utf8(output(by_hand.lease().args(["migrate", "--print", "--store", &by_hand.url()])).stdout);
    by_hand.database.session().execute(&sql.unwrap());
    assert_eq!(by_hand.database.session().number(tables), Some(1));
    assert_eq!(code(&mut by_hand.run(&["--no-wait"], "exit 0")), Some(0));
}
