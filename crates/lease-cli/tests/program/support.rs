//! What the tests of the program share: a place with a store, real processes, and evidence that comes from the commands themselves.

use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    os::unix::process::ExitStatusExt as _,
    path::PathBuf,
    process::{Child, Command, ExitStatus, Output, Stdio},
    time::Duration,
};

use lease_conformance::servers::PostgresServer;
use lease_core::clock::LocalInstant;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

pub(crate) use store::{Database, Schema, Store, on_each_store};

mod store;

/// A program that ignores no signals, although whoever started the tests may, such as `nohup` or a script's background job.
pub(crate) fn undisturbed(program: &str) -> Command {
    if cfg!(target_os = "linux") {
        let mut command = Command::new("env");
        command.args(["--default-signal=HUP,INT,QUIT", program]);
        command
    } else {
        Command::new(program)
    }
}

/// How long a test waits for something that must happen: long, for the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// A directory with what the commands leave there, and a store.
#[derive(Debug)]
pub(crate) struct Place {
    directory: tempfile::TempDir,
    pub(crate) database: Database,
}

/// Every command begins with this. It takes the lock file `members` and keeps it open, and so does everything that it starts: the
/// system lets go of the lock when the last of them has died, and whoever finds it taken has met a command of another term. `flock`
/// comes with util-linux and busybox.
pub(crate) const PROLOGUE: &str = r#"exec 9>>members; flock -n 9 || echo "$LEASE_TOKEN" >>overlaps; "#;

impl Place {
    /// A place for a test that is about something else than the store, which is a file of the place.
    pub(crate) fn new() -> Self {
        Self::on(Store::Sqlite)
    }

    /// A place with a store of this kind.
    pub(crate) fn on(store: Store) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::new(store, directory.path());
        Self { directory, database }
    }

    /// A place with its store on this server.
    pub(crate) fn at(server: &PostgresServer) -> Self {
        Self { directory: tempfile::tempdir().unwrap(), database: Database::Postgres(Schema::new(server)) }
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.directory.path().join(file)
    }

    /// The store's URL.
    pub(crate) fn url(&self) -> String {
        self.database.url()
    }

    /// `lease` in this place, with nothing of the user's.
    pub(crate) fn lease(&self) -> Command {
        let mut command = undisturbed(env!("CARGO_BIN_EXE_lease"));
        command.current_dir(self.directory.path()).env_remove("LEASE_STORE").env("HOME", self.path("home"));
        command.env_remove("XDG_STATE_HOME").stdin(Stdio::null());
        command
    }

    /// `lease run` of a shell script under the lease `job`.
    pub(crate) fn run(&self, options: &[&str], script: &str) -> Command {
        let mut command = self.lease();
        command.args(["run", "--name", "job", "--store", &self.url()]).args(options);
        command.args(["--", "sh", "-c", &format!("{PROLOGUE}{script}")]);
        command
    }

    /// What the commands wrote to a file so far.
    pub(crate) fn read(&self, file: &str) -> String {
        fs::read_to_string(self.path(file)).unwrap_or_default()
    }

    /// The whole lines that the commands wrote to a file so far.
    pub(crate) fn lines(&self, file: &str) -> Vec<String> {
        let text = self.read(file);
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(str::to_owned).collect()
    }

    /// Waits until a command has written a whole line to a file, and reads it.
    pub(crate) fn await_line(&self, file: &str) -> String {
        eventually(&format!("a line in {file}"), || !self.lines(file).is_empty());
        self.lines(file).remove(0)
    }

    /// Waits for the id of a process that a command wrote to a file.
    pub(crate) fn await_pid(&self, file: &str) -> Pid {
        Pid::from_raw(self.await_line(file).trim().parse().unwrap())
    }

    /// Whether everything that a command of this place ever started has died.
    pub(crate) fn is_deserted(&self) -> bool {
        File::options().append(true).create(true).open(self.path("members")).unwrap().try_lock().is_ok()
    }

    /// What is left of the lease `job` by its database's clock; none when nobody has it.
    pub(crate) fn remaining(&self) -> Option<Duration> {
        self.database.remaining()
    }

    pub(crate) fn assert_no_overlap(&self) {
        assert_eq!(self.read("overlaps"), "", "a command met another of another term");
    }
}

/// A `lease` that runs; dropping it kills it, and its watchdog ends the rest.
#[derive(Debug)]
pub(crate) struct Running(Child);

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        Self(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    pub(crate) fn id(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.0.id()).unwrap())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.id(), signal).unwrap();
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }

    /// Waits for the end of `lease` itself.
    pub(crate) fn await_end(&mut self) -> ExitStatus {
        eventually("the end of lease", || !self.is_running());
        self.0.wait().unwrap()
    }

    /// Waits for the end, and reads what `lease` itself said on standard error; the shell may say more.
    pub(crate) fn finish(&mut self) -> (Option<i32>, String) {
        let code = self.await_end().code();
        let mut said = String::new();
        self.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (code, said.split_inclusive('\n').filter(|line| line.starts_with("lease: ")).collect())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = kill(self.id(), Signal::SIGCONT);
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs to the end.
pub(crate) fn output(command: &mut Command) -> Output {
    command.output().unwrap()
}

/// Runs to the end, and gives the exit code.
pub(crate) fn code(command: &mut Command) -> Option<i32> {
    let output = output(command);
    assert!(output.status.signal().is_none(), "{output:?}");
    output.status.code()
}

/// Runs to the end, and gives the exit code and what was said on standard error.
pub(crate) fn refusal(command: &mut Command) -> (Option<i32>, String) {
    let output = output(command);
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// Runs with this on standard input, and gives what came out.
pub(crate) fn output_for(command: &mut Command, input: &[u8]) -> Output {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // Writing all of it before reading any would fill both pipes.
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    output
}

/// Waits until `condition` holds.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let limit = LocalInstant::now() + PATIENCE;
    while !condition() {
        assert!(!limit.has_passed(), "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
