//! Servers from the programs that the machine has installed.

use std::{
    fs,
    io::{self, BufRead, BufReader, Write},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{Mutex, PoisonError},
};

/// A server process of this process's own. It ends, and its files go, with this, or with the process, whichever comes first.
#[derive(Debug)]
pub struct Cluster {
    directory: PathBuf,
    shell: Mutex<Shell>,
    child: Child,
}

#[derive(Debug)]
struct Shell {
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

/// Makes a cluster, starts its server, obeys, and cleans up when there are no more commands, for which the end of the process suffices.
const SCRIPT: &str = r#"
set -e
trap '' INT
directory=$(mktemp -d "${TMPDIR:-/tmp}/lease-postgres.XXXXXX")
trap 'rm -rf "$directory"' EXIT
log() { "$@" >"$directory/start" 2>&1 || { cat "$directory/start" >&2; exit 1; }; }
log "$1/initdb" -D "$directory/data" -U postgres -A trust -E UTF8 --locale=C -N
printf '%s\nunix_socket_directories = '"'$directory'"'\n' "$2" >>"$directory/data/postgresql.conf"
start() { log "$1/pg_ctl" -D "$directory/data" -l "$directory/log" -t 120 -w start; }
stop() { log "$1/pg_ctl" -D "$directory/data" -m fast -t 120 -w stop; }
start "$1"
echo "$directory"
while read -r command; do "$command" "$1"; echo "$command"; done
stop "$1"
"#;

/// A PostgreSQL server with these lines in its configuration, its programs, and its URL.
pub(super) fn postgres(settings: &str) -> Result<(Cluster, PathBuf, String), String> {
    let programs = programs().ok_or("PostgreSQL's server programs are not installed")?;
    let start = || -> io::Result<(Cluster, u16)> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let settings = format!("listen_addresses = '127.0.0.1'\nport = {port}\nmax_connections = 300\n{settings}");
        Ok((Cluster::start(&programs, &settings)?, port))
    };
    let (cluster, port) = start().map_err(|error| format!("{}: {error}", programs.display()))?;
    Ok((cluster, programs, format!("postgres://postgres@127.0.0.1:{port}/postgres")))
}

impl Cluster {
    fn start(programs: &Path, settings: &str) -> io::Result<Self> {
        let mut child = as_other_user()?
            .args(["sh", "-c", SCRIPT, "sh"])
            .arg(programs)
            .arg(settings)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let answers = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let shell = Shell { commands: child.stdin.take(), answers: BufReader::new(answers) };
        let mut cluster = Self { directory: PathBuf::new(), shell: Mutex::new(shell), child };
        cluster.directory = PathBuf::from(cluster.answer()?);
        Ok(cluster)
    }

    /// Stops the server at once, and returns when it has ended.
    ///
    /// # Errors
    ///
    /// When the shell that keeps the server has ended.
    pub fn stop(&self) -> io::Result<()> {
        self.command("stop")
    }

    /// Starts the server again, and returns when it takes connections.
    ///
    /// # Errors
    ///
    /// As for [`stop`](Self::stop).
    pub fn start_again(&self) -> io::Result<()> {
        self.command("start")
    }

    /// What the server has logged.
    ///
    /// # Errors
    ///
    /// When the log cannot be read.
    pub fn log(&self) -> io::Result<String> {
        fs::read_to_string(self.directory.join("log"))
    }

    /// The folder with the server's `data`, its log and its socket.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    fn command(&self, command: &str) -> io::Result<()> {
        {
            let mut shell = self.shell.lock().unwrap_or_else(PoisonError::into_inner);
            let commands = shell.commands.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
            writeln!(commands, "{command}")?;
        }
        match self.answer()? {
            answer if answer == command => Ok(()),
            other => Err(io::Error::other(format!("the test server's shell said {other:?}"))),
        }
    }

    fn answer(&self) -> io::Result<String> {
        let mut line = String::new();
        self.shell.lock().unwrap_or_else(PoisonError::into_inner).answers.read_line(&mut line)?;
        if line.ends_with('\n') {
            Ok(line.trim_end().to_owned())
        } else {
            Err(io::Error::other("the test server's shell has ended"))
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.shell.get_mut().unwrap_or_else(PoisonError::into_inner).commands = None;
        drop(self.child.wait());
    }
}

/// The newest server programs of this machine, as Debian installs them, or those on the path.
fn programs() -> Option<PathBuf> {
    let version = |path: &Path| path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok());
    let packaged = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().map(|entry| entry.path());
    let packaged = packaged.filter(|path| version(path).is_some()).max_by_key(|path| version(path));
    let on_path = || {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).find(|folder| folder.join("initdb").exists())
    };
    packaged.map(|path| path.join("bin")).filter(|folder| folder.join("initdb").exists()).or_else(on_path)
}

/// PostgreSQL refuses to run as root.
fn as_other_user() -> io::Result<Command> {
    let user = Command::new("id").arg("-u").output()?.stdout;
    let mut command = Command::new(if user.trim_ascii() == b"0" { "setpriv" } else { "env" });
    if user.trim_ascii() == b"0" {
        command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]);
    }
    Ok(command)
}
