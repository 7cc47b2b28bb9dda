//! Stores on a PostgreSQL server: what can be wrong with one at the start, and its table.

use std::{
    fs,
    net::{TcpListener, UdpSocket},
    process::Command,
    time::Duration,
};

use lease_conformance::servers::PostgresServer;
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

#[test]
fn a_server_that_is_not_there() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let said = refused(&format!("postgres://app:hunter2@127.0.0.1:{port}/service"), 69);
    assert!(said.starts_with("lease: open lease store: database unavailable") && said.contains("refused"), "{said}");
    let said = refused("postgres://app:hunter2@no-such-host.invalid/service", 69);
    assert!(said.contains("database unavailable"), "{said}");
}

/// S12, CL-03: a server that takes connections and says nothing is waited for as long as an operation may take.
#[test]
fn a_server_that_does_not_answer() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url =
        format!("postgres://app:hunter2@127.0.0.1:{}/service?operation_timeout=1", silent.local_addr().unwrap().port());
    takes_a_second(|| refused(&url, 69));
    takes_a_second(|| {
        let (code, said) = refusal(Place::new().lease().args(["migrate", "--store", &url]));
        assert!(code == Some(69) && !said.contains("hunter"), "{code:?}: {said}");
        said
    });
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

/// Expects this to take the operation timeout of a second.
fn takes_a_second(attempt: impl FnOnce() -> String) {
    let started = LocalInstant::now();
    let said = attempt();
    let took = LocalInstant::now().saturating_duration_since(started);
    assert!(took >= Duration::from_millis(900) && took < Duration::from_secs(5), "{took:?}: {said}");
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

#[test]
#[cfg_attr(
    lease_no_postgres,
    ignore = "no PostgreSQL server: run `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
fn migrate_makes_the_table_or_shows_how() {
    let place = Place::on(Store::Postgres);
    let printed = output(place.lease().args(["migrate", "--print", "--store", &place.url()]));
    assert_eq!(printed.status.code(), Some(0));
    let tables = "SELECT count(*) FROM pg_tables WHERE schemaname = current_schema()";
    assert_eq!(place.database.session().number(tables), Some(0), "printing touches nothing");
    for _ in 0..2 {
        assert_eq!(code(place.lease().args(["migrate", "--store", &place.url()])), Some(0));
    }
    assert_eq!(place.database.session().number(tables), Some(1));

    // What was printed makes a table that will do.
    let by_hand = Place::on(Store::Postgres);
    let sql = String::from_utf8(output(by_hand.lease().args(["migrate", "--print", "--store", &by_hand.url()])).stdout);
    by_hand.database.session().execute(&sql.unwrap());
    assert_eq!(by_hand.database.session().number(tables), Some(1));
    assert_eq!(code(&mut by_hand.run(&["--no-wait"], "exit 0")), Some(0));
}
