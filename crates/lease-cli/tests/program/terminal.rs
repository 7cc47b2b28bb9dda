//! At a terminal: the command has the foreground, and Ctrl-C, Ctrl-Z, `fg` and pipelines do what they do without `lease`.
#![cfg(target_os = "linux")]

use std::{
    fs::File,
    io::{Read as _, Write as _},
    process::{Child, Command, Stdio},
};

use crate::support::{Place, eventually, undisturbed};
use nix::unistd::Pid;
use rustix::{
    fs::{Mode, OFlags, open},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
};

/// Says who it and `lease` are, reads a line from the terminal, and ends with code 3.
const READER: &str = r#"trap 'echo interrupted >>interrupted; exit 9' INT
cut -d ' ' -f 4 /proc/$PPID/stat >lease; echo $$ >up; read line; echo "$line" >line; exit 3
"#;

/// A terminal with a session of its own.
struct Terminal {
    keyboard: File,
    leader: Child,
}

impl Terminal {
    /// Starts a command, whose name and arguments these are, as the leader of a session on a new terminal.
    fn open(place: &Place, leader: &Command) -> Self {
        let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&keyboard).unwrap();
        unlockpt(&keyboard).unwrap();
        let name = ptsname(&keyboard, Vec::new()).unwrap();
        let screen = File::from(open(name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).unwrap());
        let keyboard = File::from(keyboard);
        let mut output = keyboard.try_clone().unwrap();
        // Somebody has to read the screen, or it fills up.
        std::thread::spawn(move || while output.read(&mut [0; 1024]).is_ok_and(|length| length > 0) {});
        let leader = undisturbed("setsid")
            .arg("--ctty")
            .arg(leader.get_program())
            .args(leader.get_args())
            .current_dir(place.path("."))
            .stdin(Stdio::from(screen.try_clone().unwrap()))
            .stdout(Stdio::from(screen.try_clone().unwrap()))
            .stderr(Stdio::from(screen))
            .spawn()
            .unwrap();
        Self { keyboard, leader }
    }

    /// An interactive shell.
    fn shell(place: &Place) -> Self {
        let mut shell = Command::new("bash");
        shell.args(["--norc", "--noprofile", "-i"]);
        Self::open(place, &shell)
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    fn await_code(&mut self) -> Option<i32> {
        let mut status = None;
        eventually("the end of the session's leader", || {
            status = self.leader.try_wait().unwrap();
            status.is_some()
        });
        status.and_then(|status| status.code())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.leader.kill();
        let _ = self.leader.wait();
    }
}

const CTRL_C: &str = "\x03";
const CTRL_Z: &str = "\x1a";

/// `lease run` of the reader.
fn reader(place: &Place) -> Command {
    std::fs::write(place.path("reader"), READER).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_lease"));
    command.args(["run", "--name", "job", "--store", &place.url(), "--", "sh", "reader"]);
    command
}

/// The reader's line as it is typed at a shell.
fn typed(place: &Place) -> String {
    let command = reader(place);
    let words = command.get_args().map(|word| word.to_str().unwrap());
    [command.get_program().to_str().unwrap()].into_iter().chain(words).collect::<Vec<_>>().join(" ")
}

fn is_stopped(process: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    stat.rsplit_once(')').unwrap().1.starts_with(" T")
}

#[test]
fn the_command_reads_from_the_terminal() {
    let place = Place::new();
    let mut terminal = Terminal::open(&place, &reader(&place));
    place.await_line("up");
    terminal.press("hello\n");
    assert_eq!(place.await_line("line"), "hello");
    assert_eq!(terminal.await_code(), Some(3));
}

#[test]
fn ctrl_c_interrupts_the_command_once() {
    let place = Place::new();
    let mut terminal = Terminal::open(&place, &reader(&place));
    place.await_line("up");
    terminal.press(CTRL_C);
    assert_eq!(terminal.await_code(), Some(9));
    assert_eq!(place.lines("interrupted").len(), 1);
}

/// Nobody could let a session's leader go on, so it is not stopped, and neither is its command.
#[test]
fn ctrl_z_without_a_shell_stops_nothing_for_good() {
    let place = Place::new();
    let mut terminal = Terminal::open(&place, &reader(&place));
    place.await_line("up");
    terminal.press(CTRL_Z);
    terminal.press("hello\n");
    assert_eq!(place.await_line("line"), "hello");
    assert_eq!(terminal.await_code(), Some(3));
}

#[test]
fn ctrl_z_suspends_lease_with_its_command_and_fg_resumes_both() {
    let place = Place::new();
    let mut terminal = Terminal::shell(&place);
    terminal.press(&format!("{}\n", typed(&place)));
    let command = place.await_pid("up");
    let lease = place.await_pid("lease");
    terminal.press(CTRL_Z);
    eventually("lease to be suspended", || is_stopped(lease));
    assert!(is_stopped(command));
    terminal.press("echo shell >shell\n");
    assert_eq!(place.await_line("shell"), "shell");
    terminal.press("fg\n");
    eventually("the command to go on", || !is_stopped(command));
    terminal.press("hello\n");
    assert_eq!(place.await_line("line"), "hello");
    terminal.press("echo $? >code\n");
    assert_eq!(place.await_line("code"), "3");
}

/// In the background the command is stopped when it reads, as any is, and `lease` with it; `fg` lends it the terminal.
#[test]
fn a_command_in_the_background_is_suspended_when_it_reads() {
    let place = Place::new();
    let mut terminal = Terminal::shell(&place);
    terminal.press(&format!("{} &\n", typed(&place)));
    let command = place.await_pid("up");
    let lease = place.await_pid("lease");
    eventually("lease to be suspended", || is_stopped(lease));
    assert!(is_stopped(command));
    // A shell that has not noticed would take the job for running, and `fg` would not let it go on.
    let mut asked = 0;
    eventually("the shell to notice", || {
        if place.lines("jobs").len() == asked {
            asked += 1;
            terminal.press("echo $(jobs) >>jobs\n");
        }
        place.read("jobs").contains("Stopped")
    });
    terminal.press("fg\n");
    eventually("the command to go on", || !is_stopped(command));
    terminal.press("hello\n");
    assert_eq!(place.await_line("line"), "hello");
}

/// The rest of a pipeline may need the terminal, so the command gets it when it reads.
#[test]
fn a_command_in_a_pipeline_reads_from_the_terminal() {
    let place = Place::new();
    let mut terminal = Terminal::shell(&place);
    terminal.press(&format!("{} | cat >out\n", typed(&place)));
    place.await_line("up");
    terminal.press("hello\n");
    assert_eq!(place.await_line("line"), "hello");
    terminal.press("echo ${PIPESTATUS[0]} >code\n");
    assert_eq!(place.await_line("code"), "3");
}
