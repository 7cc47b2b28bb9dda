//! The database server goes down while a command runs.

use lease_conformance::servers::PostgresServer;

use crate::support::{Place, Running, code, eventually};

/// Writes the time until it is told to end, and then that it was told.
const BEATING: &str =
    "trap 'echo heard >heard' TERM; while [ ! -e go ]; do date +%s%6N >>beats; sleep 0.05; done; exit 3";

fn await_beat(place: &Place) {
    let before = place.lines("beats").len();
    eventually("the command to go on", || place.lines("beats").len() > before);
}

/// CL-02, RN-02: a restart that is over before the stop point is nothing to the command.
#[test]
#[cfg_attr(lease_no_postgres, ignore = "no PostgreSQL server: install its server programs and run `cargo xtask test`")]
fn a_short_outage_does_not_disturb_the_command() {
    let server = PostgresServer::local("").unwrap();
    let place = Place::at(&server);
    let mut holder = Running::start(&mut place.run(&["--duration", "20s"], BEATING));
    await_beat(&place);
    let cluster = server.cluster().unwrap();
    cluster.stop().unwrap();
    await_beat(&place);
    cluster.start_again().unwrap();
    let before = place.remaining().unwrap();
    eventually("a renewal", || place.remaining().unwrap() > before);
    std::fs::write(place.path("go"), "").unwrap();
    assert_eq!(holder.finish(), (Some(3), String::new()));
    assert_eq!(place.read("heard"), "");
    assert_eq!(code(&mut place.run(&["--no-wait"], "exit 0")), Some(0));
    place.assert_no_overlap();
}

/// CL-02, RN-03, E3: an outage that outlasts the lease costs it: the command is told at the stop point, and one that does not heed
/// that is killed before the lease has expired by the clock of the database, which then knows nothing of the end.
#[test]
#[cfg_attr(lease_no_postgres, ignore = "no PostgreSQL server: install its server programs and run `cargo xtask test`")]
fn a_long_outage_ends_the_command_at_the_deadline() {
    let server = PostgresServer::local("").unwrap();
    let place = Place::at(&server);
    let mut holder = Running::start(&mut place.run(&["--duration", "3s"], BEATING));
    await_beat(&place);
    let cluster = server.cluster().unwrap();
    cluster.stop().unwrap();
    await_beat(&place);
    let (end, said) = holder.finish();
    assert_eq!(end, Some(76), "{said}");
    assert!(said.contains("no renewal landed before the stop point"), "{said}");
    assert!(place.is_deserted());
    assert_eq!(place.read("heard"), "heard\n");
    cluster.start_again().unwrap();
    let expiry = "SELECT (extract(epoch FROM expires_at) * 1000000)::bigint FROM singleton_leases";
    let expires_at = place.database.session().number(expiry).unwrap();
    let last: i64 = place.lines("beats").last().unwrap().parse().unwrap();
    assert!(last < expires_at, "the command went on for {} us after its lease had expired", last - expires_at);
    assert_eq!(code(&mut place.run(&["--no-wait"], "exit 0")), Some(0));
    place.assert_no_overlap();
}
