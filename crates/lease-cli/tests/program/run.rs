//! Many shells on one file: one command at a time.

use std::thread;

use crate::support::{PROLOGUE, Place, Store, code, on_each_store};

on_each_store! {
    six_shells_of_eight_runs_never_overlap,
}

const SHELLS: usize = 6;
const RUNS: usize = 8;

/// S1, S6, S9, RC-01: six shells that each run eight commands: 48 runs, none overlapping, tokens rising in the order of the runs.
fn six_shells_of_eight_runs_never_overlap(store: Store) {
    let place = Place::on(store);
    let script = r#"echo "$LEASE_TOKEN" >>tokens; sleep 0.02; echo "$LEASE_TOKEN" >>tokens"#;
    thread::scope(|scope| {
        for _ in 0..SHELLS {
            scope.spawn(|| {
                for _ in 0..RUNS {
                    assert_eq!(code(&mut place.run(&["--duration", "3s", "--wait"], script)), Some(0));
                }
            });
        }
    });
    place.assert_no_overlap();
    let tokens: Vec<i64> = place.lines("tokens").iter().map(|line| line.parse().unwrap()).collect();
    assert_eq!(tokens.len(), 2 * SHELLS * RUNS);
    for run in tokens.chunks(2) {
        assert_eq!(run[0], run[1], "two commands wrote at once");
    }
    assert!(tokens.chunks(2).is_sorted_by(|one, next| one[0] < next[0]), "{tokens:?}");
}

/// The evidence can fail: without a lease the same commands meet each other.
#[test]
fn without_a_lease_the_commands_would_meet() {
    let place = Place::new();
    let script = "sleep 0.3";
    thread::scope(|scope| {
        for shell in 0..SHELLS {
            let place = &place;
            scope.spawn(move || {
                let mut command = place.lease();
                command.args(["run", "--name", &format!("job-{shell}"), "--store", &place.url()]);
                command.args(["--", "sh", "-c", &format!("{PROLOGUE}{script}")]);
                assert_eq!(code(&mut command), Some(0));
            });
        }
    });
    assert_ne!(place.read("overlaps"), "");
}
