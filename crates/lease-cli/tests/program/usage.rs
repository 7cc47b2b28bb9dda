//! Bad usage is refused with exit code 64 and one line that names the rule, before anything is touched.

use std::{fs, process::Command};

use crate::support::{Place, code, output, refusal};

/// Runs `lease` with these arguments in an empty home, and expects it to be refused without a trace.
fn refused(arguments: &[&str]) -> String {
    let place = Place::new();
    let (code, said) = refusal(place.lease().args(arguments));
    assert_eq!(code, Some(64), "{arguments:?}: {said}");
    assert!(said.starts_with("lease: ") && said.lines().count() == 1, "{said:?}");
    assert_eq!(fs::read_dir(place.path(".")).unwrap().count(), 0, "{arguments:?} left something behind");
    said
}

/// S9, NE-02, NE-04, NE-06
#[test]
fn a_name_that_breaks_a_rule() {
    let long = "a".repeat(256);
    let refused = |name| refused(&["run", "--name", name, "--", "touch", "ran"]);
    assert!(refused("").contains("is empty: it must have 1 to 255 UTF-16 units"));
    assert!(refused("a ").contains("begins or ends with white space: neither is allowed"));
    assert!(refused("a\nb").contains("has a control character: none is allowed"));
    assert!(refused(&long).contains("has 256 UTF-16 units: it must have 1 to 255"));
}

/// S10, CF-03, OV-02
#[test]
fn a_duration_out_of_range() {
    let refused = |duration| refused(&["run", "--name", "a", "--duration", duration, "--", "touch", "ran"]);
    for duration in ["0", "0s", "400d", "400 d", "999999999999 years"] {
        let said = refused(duration);
        assert!(said.contains("from 1 ms to 365 days") || said.contains("--duration"), "{said}");
    }
    assert!(refused("0s").contains("lease duration 0ns is out of range: it must be from 1 ms to 365 days"));
    assert!(refused("400d").contains("from 1 ms to 365 days"));
    assert!(refused("soon").contains("invalid value 'soon' for '--duration"));
}

/// E8, CF-01: the fields and their values are named.
#[test]
fn a_grace_that_leaves_no_room_for_renewals() {
    let said = refused(&["run", "--name", "a", "--duration", "3s", "--grace", "2s", "--", "touch", "ran"]);
    for part in ["grace 2s", "duration 3s", "renew_interval 750ms", "margin 50ms"] {
        assert!(said.contains(part), "{said:?} lacks {part:?}");
    }
    assert!(refused(&["run", "--name", "a", "--grace", "0s", "--", "touch", "ran"]).contains("grace 0ns"));
    assert!(refused(&["run", "--name", "a", "--duration", "100ms", "--", "touch", "ran"]).contains("duration 100ms"));
}

#[test]
fn an_owner_label_that_breaks_a_rule() {
    assert!(refused(&["run", "--name", "a", "--owner", "a\tb", "--", "touch", "ran"]).contains("control character"));
}

#[test]
fn what_the_command_line_lacks() {
    assert!(refused(&["run", "--", "touch", "ran"]).contains("--name"));
    assert!(refused(&["run", "--name", "a"]).contains("COMMAND"));
    assert!(refused(&["run", "--name", "a", "touch", "ran"]).contains("touch"));
    assert!(refused(&["run", "--nmae", "a", "--", "touch", "ran"]).contains("--name"), "the typing error is guessed");
    assert!(refused(&["rum"]).contains("run"));
    assert!(refused(&[]).contains("--help"));
    assert!(refused(&["watchdog"]).contains("COMMAND"));
}

#[test]
fn a_store_that_no_provider_knows() {
    let refused = |url| refused(&["run", "--name", "a", "--store", url, "--", "touch", "ran"]);
    let said = refused("oracle://scott:tiger@host/db");
    assert!(said.contains("\"oracle\"") && said.contains("sqlite:PATH"), "{said}");
    assert!(!said.contains("tiger"), "a password was shown: {said}");
    assert!(refused("leases.db").contains("sqlite:PATH"));
    assert!(refused("").contains("sqlite:PATH"));
    assert!(refused("sqlite::memory:").contains("invalid configuration"));
    assert!(refused("sqlite:").contains("invalid configuration"));
}

#[test]
fn a_store_in_the_environment_is_judged_alike() {
    let place = Place::new();
    let mut command = place.lease();
    command.env("LEASE_STORE", "oracle://scott:tiger@host/db").args(["run", "--name", "a", "--", "true"]);
    let (code, said) = refusal(&mut command);
    assert_eq!(code, Some(64));
    assert!(!said.contains("tiger"), "{said}");
}

#[test]
fn help_and_version_are_no_mistakes() {
    let place = Place::new();
    let shown = |arguments: &[&str]| {
        let output = output(place.lease().env("LEASE_STORE", "postgres://a:secret@b/c").args(arguments));
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(shown(&["--version"]).starts_with("lease "));
    let help = shown(&["run", "--help"]);
    assert!(help.contains("LEASE_TOKEN") && help.contains("75") && !help.contains("secret"), "{help}");
    let help = shown(&["--help"]);
    assert!(help.contains("migrate") && !help.contains("watchdog"), "{help}");
    assert_eq!(fs::read_dir(place.path(".")).unwrap().count(), 0);
}

/// The hidden parts end by themselves when somebody else starts them.
#[test]
fn the_watchdog_is_nothing_to_start_by_hand() {
    let place = Place::new();
    assert_eq!(code(place.lease().args(["watchdog", "--", "touch", "ran"])), Some(70));
    assert_eq!(code(place.lease().args(["child", "--watchdog", "1", "--", "touch", "ran"])), Some(126));
    assert_eq!(code(Command::new("test").arg("-e").arg(place.path("ran"))), Some(1));
}
