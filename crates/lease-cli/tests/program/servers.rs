//! Stores on a server, whatever it is: one that cannot be reached at the start; and the table of each store.

use std::{fs, net::TcpListener, time::Duration};

use lease_core::clock::LocalInstant;

use crate::support::{Place, Store, code, on_each_store, output, refusal};

on_each_store! {
    migrate_makes_the_table_or_shows_how,
}

/// The schemes of stores on a server.
const SCHEMES: [&str; 2] = ["postgres", "mssql"];

/// Runs on this store, and expects the code, one line, no command, and no password.
pub(crate) fn refused(url: &str, expected: i32) -> String {
    let place = Place::new();
    let (code, said) = refusal(place.lease().args(["run", "--name", "job", "--store", url, "--", "touch", "ran"]));
    assert_eq!(code, Some(expected), "{url}: {said}");
    assert!(said.starts_with("lease: ") && said.lines().count() == 1, "{said:?}");
    assert!(!said.contains("hunter"), "a password was shown: {said}");
    assert_eq!(fs::read_dir(place.path(".")).unwrap().count(), 0, "{url} left something behind");
    said
}

/// Expects this to take the operation timeout of a second.
pub(crate) fn takes_a_second(attempt: impl FnOnce() -> String) {
    let started = LocalInstant::now();
    let said = attempt();
    let took = LocalInstant::now().saturating_duration_since(started);
    assert!(took >= Duration::from_millis(900) && took < Duration::from_secs(5), "{took:?}: {said}");
}

#[test]
fn a_server_that_is_not_there() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for scheme in SCHEMES {
        let said = refused(&format!("{scheme}://app:hunter2@127.0.0.1:{port}/service"), 69);
        assert!(
            said.starts_with("lease: open lease store: database unavailable") && said.contains("refused"),
            "{said}"
        );
        let said = refused(&format!("{scheme}://app:hunter2@no-such-host.invalid/service"), 69);
        assert!(said.contains("database unavailable"), "{said}");
    }
}

/// S12, CL-03: a server that takes connections and says nothing is waited for as long as an operation may take.
#[test]
fn a_server_that_does_not_answer() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = format!("127.0.0.1:{}/service?operation_timeout=1", silent.local_addr().unwrap().port());
    for scheme in SCHEMES {
        let url = format!("{scheme}://app:hunter2@{place}");
        takes_a_second(|| refused(&url, 69));
        takes_a_second(|| {
            let (code, said) = refusal(Place::new().lease().args(["migrate", "--store", &url]));
            assert!(code == Some(69) && !said.contains("hunter"), "{code:?}: {said}");
            said
        });
    }
}

fn migrate_makes_the_table_or_shows_how(store: Store) {
    let place = Place::on(store);
    let printed = output(place.lease().args(["migrate", "--print", "--store", &place.url()]));
    assert_eq!(printed.status.code(), Some(0));
    let sql = String::from_utf8(printed.stdout).unwrap();
    let condition = if matches!(store, Store::Mssql) { "IF OBJECT_ID" } else { "CREATE TABLE IF NOT EXISTS" };
    assert!(sql.contains(condition) && sql.contains("hand_over_at"), "{sql}");
    assert_eq!(place.database.tables(), 0, "printing touches nothing");
    for _ in 0..2 {
        assert_eq!(code(place.lease().args(["migrate", "--store", &place.url()])), Some(0));
    }
    assert_eq!(place.database.tables(), 1);

    // What is printed makes a table that will do.
    let by_hand = Place::on(store);
    let sql = String::from_utf8(output(by_hand.lease().args(["migrate", "--print", "--store", &by_hand.url()])).stdout);
    by_hand.database.session().execute(&sql.unwrap());
    assert_eq!(by_hand.database.tables(), 1);
    assert_eq!(code(&mut by_hand.run(&["--no-wait"], "exit 0")), Some(0));
}
