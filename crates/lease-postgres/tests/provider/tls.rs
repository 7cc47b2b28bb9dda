//! TLS with certificates of the test's own making, and passwords, which nothing ever shows.

use std::{error::Error, fmt::Write, fs, path::PathBuf};

use lease_conformance::servers::PostgresServer;
use lease_postgres::{
    PostgresConfig, PostgresLeaseStore,
    deadpool_postgres::{Manager, Pool},
    lease_core::{ErrorKind, LeaseStore, StoreError},
    tokio_postgres::NoTls,
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::TempDir;

use crate::{
    server::{connect, driver},
    support::{granted, name, owner, renewed, seconds},
};

/// A certificate authority.
fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut parameters = CertificateParams::new(Vec::new()).unwrap();
    parameters.distinguished_name.push(DnType::CommonName, name);
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap()
}

/// A server that takes TLS connections only, with a certificate for `localhost`; and where its authority's certificate lies, and a
/// stranger's.
struct Secured {
    server: PostgresServer,
    port: u16,
    directory: TempDir,
}

impl Secured {
    async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (trusted, stranger) = (authority("trusted"), authority("stranger"));
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(["localhost".to_owned()]).unwrap().signed_by(&key, &trusted).unwrap();
        fs::write(directory.path().join("ca.pem"), trusted.pem()).unwrap();
        fs::write(directory.path().join("stranger.pem"), stranger.pem()).unwrap();

        let server = PostgresServer::local("password_encryption = 'scram-sha-256'").unwrap();
        let admin = connect(&driver(&server)).await;
        admin.batch_execute("CREATE ROLE app LOGIN PASSWORD 'hunter2 & co'").await.unwrap();
        // The files have to be the server's own, so the server writes them.
        let data: String = admin.query_one("SHOW data_directory", &[]).await.unwrap().get(0);
        for (file, text) in [
            ("server.crt", certificate.pem()),
            ("server.key", key.serialize_pem()),
            (
                "pg_hba.conf",
                "local all all trust\nhostssl all app all scram-sha-256\nhost all postgres all trust\n".into(),
            ),
        ] {
            let text = text.replace('\n', "\\n");
            let sql = format!(
                "COPY (SELECT 1) TO PROGRAM 'cat >/dev/null; umask 077; printf -- ''{text}'' > ''{data}/{file}'''"
            );
            admin.batch_execute(&sql).await.unwrap();
        }
        admin.batch_execute("ALTER SYSTEM SET ssl = on").await.unwrap();
        server.cluster().unwrap().stop().unwrap();
        server.cluster().unwrap().start_again().unwrap();
        let port = driver(&server).get_ports()[0];
        Self { server, port, directory }
    }

    fn file(&self, file: &str) -> PathBuf {
        self.directory.path().join(file)
    }

    fn url(&self, host: &str, parameters: &str) -> String {
        format!("postgres://app:hunter2%20%26%20co@{host}:{}/postgres?{parameters}", self.port)
    }

    fn trusting(&self, host: &str, mode: &str, authority: &str) -> String {
        self.url(host, &format!("sslmode={mode}&sslrootcert={}", self.file(authority).display()))
    }
}

/// Everything that the error says, down to its root.
fn whole(error: &StoreError) -> String {
    let mut text = format!("{error} {error:?}");
    let mut source = error.source();
    while let Some(error) = source {
        write!(text, ": {error} {error:?}").unwrap();
        source = error.source();
    }
    text
}

/// `verify-full` takes the right certificate, and refuses a wrong name and an unknown authority with an error that says so; the weaker
/// modes take what they say.
#[tokio::test]
#[cfg_attr(
    lease_no_postgres,
    ignore = "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
async fn certificates_are_verified() {
    let secured = Secured::start().await;
    connect(&driver(&secured.server)).await.batch_execute("GRANT CREATE ON SCHEMA public TO app").await.unwrap();
    for url in [
        secured.trusting("localhost", "verify-full", "ca.pem"),
        secured.trusting("localhost", "verify-ca", "ca.pem"),
        secured.trusting("127.0.0.1", "verify-ca", "ca.pem"),
        secured.trusting("127.0.0.1", "require", "ca.pem"),
        secured.url("127.0.0.1", "sslmode=require"),
        secured.url("127.0.0.1", "sslmode=prefer"),
        secured.url("127.0.0.1", ""),
    ] {
        let store = PostgresLeaseStore::connect(url.as_str()).await.unwrap_or_else(|error| panic!("{}", whole(&error)));
        store.migrate().await.unwrap();
        granted(&store, "job", "a", seconds(600)).await;
        renewed(&store, "job", "a", seconds(600)).await;
        let encrypted = "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE usename = 'app'";
        let admin = connect(&driver(&secured.server)).await;
        assert!(admin.query_one(encrypted, &[]).await.unwrap().get::<_, bool>(0));
        assert!(store.release(&name("job"), &owner("a")).await.unwrap());
    }
    for (url, complaint) in [
        (secured.trusting("127.0.0.1", "verify-full", "ca.pem"), "not valid for name"),
        (secured.trusting("localhost", "verify-full", "stranger.pem"), "UnknownIssuer"),
        (secured.trusting("localhost", "verify-ca", "stranger.pem"), "UnknownIssuer"),
        (secured.trusting("localhost", "require", "stranger.pem"), "UnknownIssuer"),
        (secured.trusting("localhost", "verify-full", "missing.pem"), "missing.pem"),
    ] {
        let error = PostgresLeaseStore::connect(url.as_str()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{}", whole(&error));
        assert!(error.to_string().contains(complaint), "{complaint}: {error}");
        assert!(!whole(&error).contains("hunter2"));
    }
    let error = PostgresLeaseStore::connect(secured.url("127.0.0.1", "sslmode=disable").as_str()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{}", whole(&error));
}

/// A server without TLS is refused by whoever requires it.
#[tokio::test]
#[cfg_attr(
    lease_no_postgres,
    ignore = "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
async fn a_server_without_tls_is_refused() {
    let server = PostgresServer::local("").unwrap();
    let url = format!("postgres://postgres@localhost:{}/postgres?sslmode=require", driver(&server).get_ports()[0]);
    let error = PostgresLeaseStore::connect(url.as_str()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    assert!(error.to_string().contains("server does not support TLS"), "{error}");
}

/// No error, and no Debug output of anything that is public, shows a password, be it right or wrong.
#[tokio::test]
#[cfg_attr(
    lease_no_postgres,
    ignore = "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
async fn passwords_are_never_shown() {
    let secured = Secured::start().await;
    let right = secured.url("127.0.0.1", "");
    let wrong = right.replace("hunter2", "hunter3");
    let error = PostgresLeaseStore::connect(wrong.as_str()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{}", whole(&error));
    assert!(error.to_string().contains("password authentication failed"), "{error}");
    assert!(!whole(&error).contains("hunter"));

    let store = PostgresLeaseStore::connect(right.as_str()).await.unwrap();
    let on_pool = PostgresLeaseStore::from_pool(pool(&right)).listen(right.as_str());
    for shown in [
        format!("{:?}", PostgresConfig::from(right.as_str())),
        format!("{:#?}", PostgresConfig::from_url(&right).unwrap()),
        format!("{store:#?}"),
        format!("{on_pool:#?}"),
        format!("{:#?}", on_pool.build().unwrap()),
    ] {
        assert!(!shown.contains("hunter"), "{shown}");
    }
    let error = store.try_acquire(&name("job"), &owner("a"), seconds(9)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotMigrated);
    assert!(!whole(&error).contains("hunter"));
}

fn pool(url: &str) -> Pool {
    Pool::builder(Manager::new(url.parse().unwrap(), NoTls)).build().unwrap()
}
