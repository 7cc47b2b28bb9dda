//! The suite through PgBouncer in transaction mode, which lends two sessions of the server to all stores, a statement at a time.
//!
//! Where PgBouncer is not installed the cases show as ignored: `apt-get install pgbouncer`.
#![expect(clippy::unwrap_used, reason = "a harness that does not work must fail its test")]

use std::{
    env, fs,
    net::{TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, Command, ExitCode, Stdio},
    sync::OnceLock,
    thread,
    time::Duration,
};

use lease_conformance::{run, runners};
use lease_postgres::tokio_postgres::Config;
use libtest_mimic::{Arguments, Completion, Trial};
use tempfile::TempDir;

use crate::{
    harness::{PostgresHarness, Way},
    server::address,
};

#[path = "support/harness.rs"]
mod harness;
#[path = "support/server.rs"]
mod server;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Cases that keep sessions waiting would keep each other's out, for there are only two.
    arguments.test_threads = arguments.test_threads.or(Some(1));
    let trials = runners::<PostgresHarness<PgBouncer>>().into_iter().map(|(case, runner)| {
        Trial::ignorable_test(format!("{}::{}", case.theme, case.name), move || {
            if program().is_none() {
                return Ok(Completion::ignored_with("PgBouncer is not installed"));
            }
            if case.hooks.contains(&"wakes") {
                return Ok(Completion::ignored_with("a session that is shared cannot listen"));
            }
            run::<PostgresHarness<PgBouncer>>(runner);
            Ok(Completion::Completed)
        })
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

struct PgBouncer {
    port: u16,
    /// A shell that ends it when its input ends, which it does with this process at the latest.
    _shell: Child,
    _directory: TempDir,
}

impl Way for PgBouncer {
    fn to(driver: &Config) -> String {
        static SHARED: OnceLock<PgBouncer> = OnceLock::new();
        format!("127.0.0.1:{}", SHARED.get_or_init(|| PgBouncer::start(driver)).port)
    }
}

impl PgBouncer {
    fn start(driver: &Config) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let settings = directory.path().join("pgbouncer.ini");
        fs::write(&settings, settings_of(driver, port)).unwrap();
        let script = r#""$1" --quiet "$2" & read -r _; kill "$!"; wait"#;
        let mut command = as_other_user();
        // The other user has to read what is in the folder of this one.
        let readable = Command::new("chmod").args(["-R", "a+rX"]).arg(directory.path()).status().unwrap();
        assert!(readable.success());
        let shell = command.args(["sh", "-c", script, "sh"]).arg(program().unwrap()).arg(&settings);
        let shell = shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let started = Self { port, _shell: shell, _directory: directory };
        let is_up = (0..3000).any(|_| {
            thread::sleep(Duration::from_millis(20));
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        assert!(is_up, "PgBouncer did not start");
        started
    }
}

/// Two server sessions for everybody, and none of a client's session settings taken over: what PgBouncer does by default.
fn settings_of(driver: &Config, port: u16) -> String {
    let server = address(driver);
    let (host, server_port) = server.rsplit_once(':').unwrap();
    let password = driver.get_password().map(|password| format!(" password={}", String::from_utf8_lossy(password)));
    let (user, password) = (driver.get_user().unwrap_or("postgres"), password.unwrap_or_default());
    format!(
        "[databases]\n* = host={host} port={server_port} user={user}{password}\n\
         [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n\
         pool_mode = transaction\ndefault_pool_size = 2\nmax_client_conn = 1000\n"
    )
}

fn program() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    folders.map(|folder| folder.join("pgbouncer")).find(|program| program.exists())
}

/// PgBouncer refuses to run as root.
fn as_other_user() -> Command {
    let user = Command::new("id").arg("-u").output().unwrap().stdout;
    let mut command = Command::new(if user.trim_ascii() == b"0" { "setpriv" } else { "env" });
    if user.trim_ascii() == b"0" {
        command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]);
    }
    command
}
