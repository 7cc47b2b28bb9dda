//! Processes of the tests' own: this test binary, started once more to do one part.

use std::{
    env,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use crate::{
    fence_locks::freeze_in_a_transaction,
    ledger::write_rows,
    processes::{hold_for_ever, open_fresh_files, take_turns},
};

const PART: &str = "LEASE_TEST_PART";
const PLACE: &str = "LEASE_TEST_PLACE";
const MARK: &str = "lease-test: ";

/// A started process, which ends with the test at the latest.
pub(crate) struct Process {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Process {
    /// Starts this test binary once more, to do `part` at `place`.
    pub(crate) fn start(part: &str, place: &Path) -> Self {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "children::part_of_another_test", "--ignored", "--nocapture", "--test-threads=1"])
            .envs([(PART, part.as_ref()), (PLACE, place.as_os_str())])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, stdin, stdout: BufReader::new(stdout) }
    }

    pub(crate) fn say(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").unwrap();
    }

    /// The next line that the part has said.
    pub(crate) fn hear(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(self.stdout.read_line(&mut line).unwrap(), 0, "the process ended early");
            if let Some((_, said)) = line.split_once(MARK) {
                return said.trim_end().into();
            }
        }
    }

    /// Waits until the process has ended well.
    pub(crate) fn finish(mut self) {
        assert!(self.child.wait().unwrap().success());
    }

    /// Ends the process with SIGKILL.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Says a line to the test that started this process.
#[expect(clippy::print_stdout, reason = "the other process reads it")]
pub(crate) fn say(line: &str) {
    println!("{MARK}{line}");
}

/// Waits for a line from the test that started this process.
pub(crate) fn hear() -> String {
    let mut line = String::new();
    assert_ne!(std::io::stdin().read_line(&mut line).unwrap(), 0, "the test has ended");
    line.trim_end().into()
}

#[tokio::test]
#[ignore = "a part of other tests, which start it as a process"]
async fn part_of_another_test() {
    let place = env::var_os(PLACE).expect("other tests start this one");
    let place = Path::new(&place);
    match env::var(PART).unwrap().as_str() {
        "open fresh files" => open_fresh_files(place).await,
        "take turns" => take_turns(place).await,
        "freeze in a transaction" => freeze_in_a_transaction(place).await,
        "write rows" => write_rows(place).await,
        "hold for ever" => hold_for_ever(place).await,
        part => panic!("no such part: {part}"),
    }
}
