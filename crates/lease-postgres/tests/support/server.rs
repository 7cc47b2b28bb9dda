//! Sessions of the tests' own on a server that `lease-conformance` found or started.

use std::time::Duration;

use lease_conformance::servers::PostgresServer;
use lease_postgres::tokio_postgres::{Client, Config, NoTls, config::Host};

/// Long enough for whatever must happen, on a machine that does other things too.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// What sessions of the role that may do everything are made of.
pub(crate) fn driver(server: &PostgresServer) -> Config {
    server.url().parse().unwrap()
}

/// Where the server listens, for a proxy.
pub(crate) fn address(driver: &Config) -> String {
    let host = match &driver.get_hosts()[0] {
        Host::Tcp(host) => host,
        Host::Unix(path) => panic!("no proxy leads to the socket in {}: name the server by an address", path.display()),
    };
    format!("{host}:{}", driver.get_ports().first().unwrap_or(&5432))
}

/// The same database and role behind another port of this machine, without options.
pub(crate) fn elsewhere(driver: &Config, port: u16) -> Config {
    let mut other = Config::new();
    other.host("127.0.0.1").port(port);
    other.user(driver.get_user().unwrap_or("postgres")).dbname(driver.get_dbname().unwrap_or("postgres"));
    if let Some(password) = driver.get_password() {
        other.password(password);
    }
    other
}

/// Connects without TLS, and waits for a server that is starting.
pub(crate) async fn connect(driver: &Config) -> Client {
    let connecting = async {
        loop {
            match driver.connect(NoTls).await {
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
