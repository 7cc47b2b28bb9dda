//! Stores on a PostgreSQL server: what can be wrong with one at the start.

use std::{fs, net::UdpSocket, process::Command};

use lease_conformance::servers::PostgresServer;

use crate::{
    servers::{refused, takes_a_second},
    support::{Place, refusal},
};

/// What can never be a store is bad usage, and nobody is asked for it.
#[test]
fn a_url_that_cannot_be() {
    for (url, reason) in [
        ("postgres:hunter2@localhost/service", "postgres://"),
        ("postgres://app:hunter2@localhost:port/service", "port"),
        ("postgres://app:hunter2", "port"),
        ("postgres://app:hunter2@localhost/service?sslmode=maybe", "maybe"),
        ("postgres://app:hunter2@localhost/service?nonsense=hunter2", "nonsense"),
        ("postgres://app:hunter2@localhost/service?connect_timeout=hunter2", "connect_timeout"),
        ("postgresql://app:hunter2@localhost/service?table=a-b", "table \"a-b\""),
        ("postgresql://app:hunter2@localhost/service?schema=", "schema \"\""),
        ("postgres://app:hunter2@localhost/service?operation_timeout=0", "operation_timeout"),
        ("postgres:///service", "no host"),
        ("postgres://localhost/service?sslmode=verify-full&sslrootcert=absent.pem", "absent.pem"),
    ] {
        let said = refused(url, 64);
        assert!(said.contains(reason), "{url}: {said}");
    }
}

/// S12, CL-03: a resolver that says nothing is waited for no longer, though a look-up cannot be stopped: it takes 10 s to fail.
#[test]
#[ignore = "mounts a file: run `cargo test -p lease-cli resolver -- --ignored` as root"]
fn a_resolver_that_does_not_answer() {
    const ADDRESS: &str = "127.0.0.9";
    let _silent = UdpSocket::bind((ADDRESS, 53)).unwrap();
    let place = Place::new();
    fs::write(place.path("resolv.conf"), format!("nameserver {ADDRESS}\n")).unwrap();
    let mut command = Command::new("unshare");
    command.current_dir(place.path(".")).args(["--mount", "sh", "-c"]);
    command.args([r#"mount --bind resolv.conf /etc/resolv.conf && exec "$0" "$@""#, env!("CARGO_BIN_EXE_lease")]);
    command.args(["migrate", "--store", "postgres://app@db.example.com/service?operation_timeout=1"]);
    takes_a_second(|| {
        let (code, said) = refusal(&mut command);
        assert_eq!(code, Some(69), "{said}");
        said
    });
}

/// A role that is not let in, and a database that does not exist. No password is shown, be it right or wrong.
#[test]
#[cfg_attr(lease_no_postgres, ignore = "no PostgreSQL server: install its server programs and run `cargo xtask test`")]
fn a_server_that_refuses() {
    let server = PostgresServer::local("").unwrap();
    let cluster = server.cluster().unwrap();
    let admin = Place::at(&server);
    admin.database.session().execute("CREATE ROLE app LOGIN PASSWORD 'hunter2'");
    let gate = "host all app all scram-sha-256\nhost all postgres all trust\nlocal all all trust\n";
    fs::write(cluster.directory().join("data/pg_hba.conf"), gate).unwrap();
    cluster.stop().unwrap();
    cluster.start_again().unwrap();

    let as_app = |password: &str| server.url().replace("postgres@", &format!("app{password}@"));
    let said = refused(&as_app(":hunter3"), 69);
    assert!(said.contains("password authentication failed for user \"app\""), "{said}");
    assert!(refused(&as_app(""), 64).contains("password missing"));
    // The role gets in, but may not make a table.
    let said = refused(&as_app(":hunter2"), 69);
    assert!(said.contains("permission denied"), "{said}");
    let elsewhere = as_app(":hunter2").replace("/postgres", "/absent");
    assert!(refused(&elsewhere, 64).contains("\"absent\" does not exist"));
}
