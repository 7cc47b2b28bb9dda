//! A PostgreSQL server for tests: the one of `LEASE_POSTGRES_URL`, else a cluster of the process's own, made with the machine's own
//! server programs.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{Mutex, OnceLock},
    time::Duration,
};

use lease_postgres::tokio_postgres::{Client, Config, NoTls, config::Host};

/// Long enough for whatever must happen, on a machine that does other things too.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A server and the role that may do everything there.
pub(crate) struct Server {
    pub(crate) config: Config,
    pub(crate) cluster: Option<Cluster>,
}

/// A server process of our own. It ends, and its files go, with this, or with the test process, whichever comes first.
pub(crate) struct Cluster {
    pub(crate) directory: PathBuf,
    shell: Mutex<Shell>,
    child: Child,
}

struct Shell {
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

/// Makes a cluster, starts its server, obeys, and cleans up when there are no more commands, for which the end of the test process
/// suffices.
const SCRIPT: &str = r#"
set -e
directory=$(mktemp -d "${TMPDIR:-/tmp}/lease-postgres.XXXXXX")
trap 'rm -rf "$directory"' EXIT
"$1/initdb" -D "$directory/data" -U postgres -A trust -E UTF8 --locale=C -N >"$directory/initdb" 2>&1 || { cat "$directory/initdb" >&2; exit 1; }
printf '%s\nunix_socket_directories = '"'$directory'"'\n' "$2" >>"$directory/data/postgresql.conf"
start() { "$1/pg_ctl" -D "$directory/data" -l "$directory/log" -w start >/dev/null; }
stop() { "$1/pg_ctl" -D "$directory/data" -m fast -w stop >/dev/null; }
start "$1"
echo "$directory"
while read -r command; do "$command" "$1"; echo "$command"; done
stop "$1"
"#;

impl Server {
    /// The server that the process's tests share.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: OnceLock<Server> = OnceLock::new();
        SHARED.get_or_init(|| match std::env::var("LEASE_POSTGRES_URL") {
            Ok(url) => Self { config: url.parse().expect("LEASE_POSTGRES_URL is a URL"), cluster: None },
            Err(_) => Self::start(""),
        })
    }

    /// A server of the test's own, with these lines in its configuration.
    pub(crate) fn start(settings: &str) -> Self {
        let programs = programs();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let settings = format!("listen_addresses = '127.0.0.1'\nport = {port}\nmax_connections = 300\n{settings}");
        let mut child = as_other_user()
            .args(["sh", "-c", SCRIPT, "sh"])
            .arg(&programs)
            .arg(&settings)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell starts");
        let shell = Shell { commands: child.stdin.take(), answers: BufReader::new(child.stdout.take().unwrap()) };
        let mut cluster = Cluster { directory: PathBuf::new(), shell: Mutex::new(shell), child };
        cluster.directory = PathBuf::from(cluster.answer());
        let mut config = Config::new();
        config.host("127.0.0.1").port(port).user("postgres").dbname("postgres").connect_timeout(PATIENCE);
        Self { config, cluster: Some(cluster) }
    }

    /// A connection of the tests' own, once the server takes one.
    pub(crate) async fn client(&self) -> Client {
        connect(&self.config).await
    }

    pub(crate) fn address(&self) -> String {
        let host = match &self.config.get_hosts()[0] {
            Host::Tcp(host) => host.clone(),
            Host::Unix(path) => {
                panic!("no proxy leads to the socket in {}: give the tests a server with an address", path.display())
            }
        };
        format!("{host}:{}", self.config.get_ports().first().unwrap_or(&5432))
    }
}

impl Cluster {
    /// Has the shell `start` or `stop` the server.
    pub(crate) fn command(&self, command: &str) {
        let commands = |shell: &mut Shell| writeln!(shell.commands.as_mut().unwrap(), "{command}");
        commands(&mut self.shell.lock().unwrap()).unwrap();
        assert_eq!(self.answer(), command);
    }

    /// What the server has logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap()
    }

    fn answer(&self) -> String {
        let mut line = String::new();
        self.shell.lock().unwrap().answers.read_line(&mut line).unwrap();
        assert!(line.ends_with('\n'), "the test server's shell has ended");
        line.trim_end().to_owned()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.shell.get_mut().unwrap().commands = None;
        drop(self.child.wait());
    }
}

/// Connects without TLS, and waits for a server that is starting.
pub(crate) async fn connect(config: &Config) -> Client {
    let connecting = async {
        loop {
            match config.connect(NoTls).await {
                Ok((client, connection)) => {
                    tokio::spawn(connection);
                    return client;
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    tokio::time::timeout(PATIENCE, connecting).await.expect("the test server takes a connection")
}

/// The newest server programs of this machine.
fn programs() -> PathBuf {
    let version = |path: &Path| path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok());
    let packaged = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().map(|entry| entry.path());
    let packaged = packaged.filter(|path| version(path).is_some()).max_by_key(|path| version(path));
    let packaged = packaged.map(|path| path.join("bin"));
    let on_path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&on_path).find(|path| path.join("initdb").exists());
    packaged.or(on_path).expect("install PostgreSQL's server, or set LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE")
}

/// PostgreSQL refuses to run as root.
fn as_other_user() -> Command {
    let user = Command::new("id").arg("-u").output().expect("`id` runs").stdout;
    if user.trim_ascii() == b"0" {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]);
        command
    } else {
        Command::new("env")
    }
}
