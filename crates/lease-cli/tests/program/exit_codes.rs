//! The command is its own: its streams, its environment, and the exit code that it ends with.

use std::fs;

use crate::support::{Place, Running, Store, code, on_each_store, output, output_for, refusal};

on_each_store! {
    a_command_that_cannot_be_run_leaves_the_lease_free,
    a_held_lease_is_refused_without_waiting,
    the_command_knows_its_lease,
}

fn free_again(place: &Place) {
    assert_eq!(code(&mut place.run(&["--no-wait"], "exit 0")), Some(0), "the lease is not free");
}

#[test]
fn the_commands_own_code() {
    let place = Place::new();
    for expected in [0, 1, 3, 75, 255] {
        assert_eq!(code(&mut place.run(&[], &format!("exit {expected}"))), Some(expected));
        free_again(&place);
    }
}

/// Real-time signals, which have no names, included.
#[test]
fn the_signal_that_ended_the_command() {
    let place = Place::new();
    for signal in [9, 15, 6, 40] {
        assert_eq!(code(&mut place.run(&[], &format!("kill -{signal} $$"))), Some(128 + signal));
        free_again(&place);
    }
}

fn a_command_that_cannot_be_run_leaves_the_lease_free(store: Store) {
    let place = Place::on(store);
    fs::write(place.path("data"), "").unwrap();
    let attempt =
        |command: &str| refusal(place.lease().args(["run", "--name", "job", "--store", &place.url(), "--", command]));
    let (code, said) = attempt("no-such-command");
    assert_eq!(
        (code, said.as_str()),
        (Some(127), "lease: cannot run no-such-command: No such file or directory (os error 2)\n")
    );
    free_again(&place);
    let (code, said) = attempt("./data");
    assert_eq!(code, Some(126));
    assert!(said.starts_with("lease: cannot run ./data: Permission denied"), "{said}");
    free_again(&place);
    assert_eq!(attempt(".").0, Some(126));
    free_again(&place);
}

fn a_held_lease_is_refused_without_waiting(store: Store) {
    let place = Place::on(store);
    let holder = Running::start(&mut place.run(&["--owner", "web-1"], "echo up >up; exec sleep 600"));
    place.await_line("up");
    let (code, said) = refusal(&mut place.run(&["--no-wait"], "echo ran >ran"));
    assert_eq!(code, Some(75));
    assert!(said.starts_with("lease: cannot acquire \"job\": the lease is held by web-1:"), "{said}");
    assert_eq!(said.lines().count(), 1);
    assert_eq!(place.read("ran"), "");
    drop(holder);
}

/// Standard input, output and error are the command's own, to the byte.
#[test]
fn the_streams_are_the_commands() {
    let place = Place::new();
    let input: Vec<u8> = (0..=255).cycle().take(1_000_000).collect();
    let output = output_for(&mut place.run(&[], "cat; echo done >&2"), &input);
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stdout == input, "the bytes differ");
    assert_eq!(output.stderr, b"done\n");
}

/// A command of another kind than UTF-8, and one that reads nothing.
#[test]
fn arguments_are_passed_as_they_are() {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _};
    let place = Place::new();
    let mut command = place.lease();
    command.args(["run", "--name", "job", "--store", &place.url(), "--", "printf", "%s|"]);
    command.args(["--help", "a b", "", "--"]).arg(OsStr::from_bytes(b"\xff\xfe"));
    let output = output(&mut command);
    assert_eq!(output.stdout, b"--help|a b||--|\xff\xfe|");
}

fn the_command_knows_its_lease(store: Store) {
    let place = Place::on(store);
    let seen = || {
        let output = output(&mut place.run(&["--owner", "web-1"], r#"echo "$LEASE_NAME $LEASE_OWNER $LEASE_TOKEN""#));
        String::from_utf8(output.stdout).unwrap().split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let (first, second) = (seen(), seen());
    assert_eq!(first[0], "job");
    assert!(first[1].starts_with("web-1:"), "{first:?}");
    assert_ne!(first[1], second[1]);
    assert!(first[2].parse::<i64>().unwrap() < second[2].parse::<i64>().unwrap());
}

#[test]
fn the_default_store_is_a_file_of_the_users() {
    let place = Place::new();
    assert_eq!(code(place.lease().args(["run", "--name", "job", "--", "true"])), Some(0));
    assert!(place.path("home/.local/state/lease/leases.db").is_file());

    let mut command = place.lease();
    command.env("XDG_STATE_HOME", place.path("state")).args(["run", "--name", "job", "--", "true"]);
    assert_eq!(code(&mut command), Some(0));
    assert!(place.path("state/lease/leases.db").is_file());

    let mut command = place.lease();
    command.env("LEASE_STORE", "sqlite:named.db").args(["run", "--name", "job", "--", "true"]);
    assert_eq!(code(&mut command), Some(0));
    assert!(place.path("named.db").is_file());
}
