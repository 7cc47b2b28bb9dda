//! TLS as TDS 8 has it, with certificates of the test's own making.

use std::{fs, path::Path};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::{
    ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
};
use tempfile::TempDir;
use tokio_rustls::TlsAcceptor;

use super::*;

fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut parameters = CertificateParams::new(vec!["localhost".into()]).unwrap();
    parameters.distinguished_name.push(DnType::CommonName, name);
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap()
}

/// A server that takes TLS first, with a certificate for `localhost`; and where its authority's certificate lies, and a stranger's.
struct Secured {
    peer: Peer,
    directory: TempDir,
}

impl Secured {
    async fn start() -> Self {
        let trusted = authority("trusted");
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(["localhost".to_owned()]).unwrap().signed_by(&key, &trusted).unwrap();
        Self::with(certificate.der().clone(), key.serialize_der(), &trusted.pem()).await
    }

    /// A server whose certificate is its own authority.
    async fn its_own_authority() -> Self {
        let own = authority("localhost");
        Self::with(own.der().clone(), own.key().serialize_der(), &own.pem()).await
    }

    async fn with(certificate: CertificateDer<'static>, key: Vec<u8>, authority_pem: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("ca.pem"), authority_pem).unwrap();
        fs::write(directory.path().join("stranger.pem"), authority("stranger").pem()).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key));
        let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        config.alpn_protocols = vec![b"tds/8.0".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let peer = Peer::start(move |_, stream| {
            let acceptor = acceptor.clone();
            async move { Session(acceptor.accept(stream).await?).serve().await }
        })
        .await;
        Self { peer, directory }
    }

    fn config(&self, host: &str) -> MssqlConfig {
        let config = MssqlConfig::new(host).port(self.peer.address.port()).login("app", "secret");
        config.encrypt(Encrypt::Strict).operation_timeout(PATIENCE)
    }

    fn trusting(&self, host: &str, file: &str) -> MssqlConfig {
        self.config(host).ca(self.directory.path().join(file))
    }
}

/// CL-11: the right certificate is taken; a wrong name and an unknown authority are refused with an error that says what to do.
#[tokio::test]
async fn certificates_are_verified() {
    let secured = Secured::start().await;
    for config in [
        secured.trusting("localhost", "ca.pem"),
        secured.trusting("127.0.0.1", "ca.pem").hostname_in_certificate("localhost"),
        secured.config("127.0.0.1").trust_cert(true),
    ] {
        assert_eq!(ask(&link(&config)).await.unwrap(), 7, "{config:?}");
    }
    for (config, word) in [
        (secured.trusting("127.0.0.1", "ca.pem"), "not valid for name"),
        (secured.trusting("localhost", "stranger.pem"), "UnknownIssuer"),
        (secured.config("localhost"), "trust_cert"),
    ] {
        assert_kind(&ask(&link(&config)).await.unwrap_err(), ErrorKind::InvalidConfig, word);
    }
    secured.peer.until_open(0).await;
}

/// CL-11: what many servers have, and why it does not do, although it is the very file that `ca` names.
#[tokio::test]
async fn a_certificate_that_is_its_own_authority_is_explained() {
    let secured = Secured::its_own_authority().await;
    let failure = ask(&link(&secured.trusting("localhost", "ca.pem"))).await.unwrap_err();
    assert_kind(&failure, ErrorKind::InvalidConfig, "that is its own authority");
    assert_eq!(ask(&link(&secured.config("localhost").trust_cert(true))).await.unwrap(), 7);
}

/// CL-11, S12: a server older than TDS 8 says nothing to it, which the error tells.
#[tokio::test]
async fn a_server_that_does_not_know_strict_is_told_of() {
    let peer = Peer::start(|_, stream| async move { Session(stream).until_closed().await }).await;
    let link = link(&config(&peer).encrypt(Encrypt::Strict).trust_cert(true));
    let failure = ask_within(&link, SHORT, true).await.unwrap_err();
    assert_kind(
        &failure,
        ErrorKind::Unavailable,
        "said nothing to encrypt=strict, as servers older than SQL Server 2022 do",
    );
}

/// CL-04: a server that answers TLS with something else.
#[tokio::test]
async fn what_is_no_tls_is_an_error() {
    let peer = Peer::start(|_, mut stream| async move {
        stream.write_all(b"SSH-2.0-OpenSSH\r\n").await?;
        Session(stream).until_closed().await
    })
    .await;
    let link = link(&config(&peer).encrypt(Encrypt::Strict).trust_cert(true));
    assert_kind(&ask(&link).await.unwrap_err(), ErrorKind::InvalidConfig, "encrypt");
}

/// A file that holds no certificate is named, before anything is connected.
#[test]
fn a_file_without_a_certificate_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let complaint = |path: &Path| {
        let config = MssqlConfig::new("localhost").login("app", "secret").ca(path);
        config.settings().err().unwrap().into_error(Operation::Connect).to_string()
    };
    let (missing, empty) = (directory.path().join("missing.pem"), directory.path().join("empty.pem"));
    fs::write(&empty, "no certificate").unwrap();
    assert!(complaint(&missing).contains("missing.pem"));
    assert!(complaint(&empty).contains("there is no certificate in it"));
}
