//! Stores on a SQL Server: what can be wrong with one at the start.

use crate::{
    servers::refused,
    support::{Place, Store},
};

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
