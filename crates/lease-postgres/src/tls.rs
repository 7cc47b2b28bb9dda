//! TLS by rustls, with the words of PostgreSQL's own client library.

use std::{fmt, path::Path, str::FromStr, sync::Arc};

use lease_core::ErrorKind;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::error::Failure;

/// How a connection is protected, in the words of PostgreSQL's own client library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SslMode {
    /// No TLS.
    Disable,
    /// TLS when the server has it, with whatever certificate. It protects against nobody who can alter what is sent.
    Prefer,
    /// TLS with whatever certificate, or, when root certificates are configured, as `VerifyCa`.
    Require,
    /// TLS with a certificate that leads to a root certificate, whatever its name.
    VerifyCa,
    /// TLS with a certificate that leads to a root certificate and names the host: the one to use.
    VerifyFull,
}

impl FromStr for SslMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "disable" => Ok(Self::Disable),
            // To prefer TLS is to allow it too.
            "allow" | "prefer" => Ok(Self::Prefer),
            "require" => Ok(Self::Require),
            "verify-ca" => Ok(Self::VerifyCa),
            "verify-full" => Ok(Self::VerifyFull),
            _ => Err(format!("sslmode {text:?} is none of disable, allow, prefer, require, verify-ca and verify-full")),
        }
    }
}

/// The value of `sslrootcert` that means the system's own root certificates, as it does to the client library.
const SYSTEM: &str = "system";

/// What connections of this mode are made with. Without a file, the system's root certificates are trusted.
pub(crate) fn connector(mode: SslMode, root_cert: Option<&Path>) -> Result<MakeRustlsConnect, Failure> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| invalid(format!("TLS cannot be set up: {error}")))?;
    let verifier: Arc<dyn ServerCertVerifier> = match (mode, root_cert) {
        (SslMode::VerifyFull, root_cert) => web_pki(&provider, root_cert)?,
        (SslMode::VerifyCa, root_cert) => Arc::new(AnyName(web_pki(&provider, root_cert)?)),
        (SslMode::Require, Some(root_cert)) => Arc::new(AnyName(web_pki(&provider, Some(root_cert))?)),
        _ => Arc::new(AnyCertificate(provider)),
    };
    // "Dangerous" is what rustls calls every verifier that it is given: `verify-full` gives it its own.
    let config = builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

fn web_pki(provider: &Arc<CryptoProvider>, root_cert: Option<&Path>) -> Result<Arc<WebPkiServerVerifier>, Failure> {
    let roots = match root_cert {
        Some(path) if path != Path::new(SYSTEM) => roots_of(path)?,
        _ => system_roots()?,
    };
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
        .build()
        .map_err(|error| invalid(format!("the root certificates cannot be used: {error}")))
}

fn roots_of(path: &Path) -> Result<RootCertStore, Failure> {
    let cannot = |error: &dyn fmt::Display| invalid(format!("sslrootcert {} cannot be read: {error}", path.display()));
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| cannot(&error))? {
        let certificate = certificate.map_err(|error| cannot(&error))?;
        roots.add(certificate).map_err(|error| cannot(&error))?;
    }
    if roots.is_empty() {
        return Err(cannot(&"there is no certificate in it"));
    }
    Ok(roots)
}

fn system_roots() -> Result<RootCertStore, Failure> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        return Err(invalid("the system has no root certificates: give sslrootcert the path of a file"));
    }
    Ok(roots)
}

fn invalid(detail: impl Into<String>) -> Failure {
    Failure::new(ErrorKind::InvalidConfig, detail)
}

/// Takes a certificate that leads to a root, whatever its name.
#[derive(Debug)]
struct AnyName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        // The name is looked at last, so that a certificate with only a wrong name has passed all the rest.
        match self.0.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// Takes any certificate, as long as the server has its key.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaint(path: &Path) -> String {
        let error = connector(SslMode::VerifyFull, Some(path)).err().unwrap();
        error.into_error(lease_core::Operation::Connect).to_string()
    }

    #[test]
    fn a_file_that_holds_no_certificate_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let (missing, empty) = (directory.path().join("missing.pem"), directory.path().join("empty.pem"));
        std::fs::write(&empty, "no certificate").unwrap();
        assert!(complaint(&missing).contains("missing.pem"));
        assert!(complaint(&empty).contains("there is no certificate in it"));
    }

    #[test]
    fn only_the_client_librarys_words_are_modes() {
        assert_eq!("verify-full".parse(), Ok(SslMode::VerifyFull));
        assert_eq!("allow".parse(), Ok(SslMode::Prefer));
        assert!("verify".parse::<SslMode>().unwrap_err().contains("verify-full"));
    }
}
