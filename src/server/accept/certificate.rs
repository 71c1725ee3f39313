//! Serving certificates: read from files that may be replaced at any time, or generated at start.
//!
//! Files are polled and compared by content, since a mounted Secret is replaced by renaming a
//! directory above the file, which file watches miss. A broken new file never replaces a working
//! certificate.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::crypto::CryptoProvider;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_util::sync::CancellationToken;

use crate::config::CertificateConfig;
use crate::upstream::credentials::first_expiry;

/// Why a serving certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A file holds no usable PEM.
    #[error("{path} holds no {what} in PEM")]
    Pem {
        /// The file.
        path: PathBuf,
        /// The kind of PEM block that is missing.
        what: &'static str,
    },
    /// The key is unusable, or does not belong to the certificate.
    #[error("the serving certificate and key cannot be used together")]
    Key(#[source] rustls::Error),
    /// A name is not valid in a certificate, or the operating system provides no randomness.
    #[error("cannot make a serving certificate; check the names given for it")]
    Generate(#[from] rcgen::Error),
    /// TLS cannot be set up.
    #[error("cannot set up TLS")]
    Tls(#[source] rustls::Error),
}

pub(super) struct ServingCertificate {
    pub(super) resolver: Arc<CertificateResolver>,
    /// The CA that clients must trust, in PEM.
    pub(super) ca_pem: String,
    /// Keeps the certificate current, if it is read from files.
    pub(super) reloader: Option<CertificateReloader>,
}

impl ServingCertificate {
    pub(super) fn load(
        config: &CertificateConfig,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, CertificateError> {
        match config {
            CertificateConfig::Generated { names } => {
                let (key, ca_pem) = generate(names, provider)?;
                let resolver =
                    Arc::new(CertificateResolver { current: ArcSwap::from_pointee(key) });
                Ok(Self { resolver, ca_pem, reloader: None })
            }
            CertificateConfig::Files { certificate, key } => {
                let files = Files { certificate: certificate.clone(), key: key.clone() };
                let content = files.read()?;
                let ca = certificate.with_file_name(CA_FILE);
                let ca = if ca.exists() { read(&ca)? } else { content.certificate.clone() };
                let ca_pem = String::from_utf8_lossy(&ca).into_owned();
                let parsed = files.parse(&content, provider)?;
                let resolver =
                    Arc::new(CertificateResolver { current: ArcSwap::from_pointee(parsed) });
                let reloader = CertificateReloader {
                    files,
                    seen: content,
                    resolver: Arc::clone(&resolver),
                    provider: Arc::clone(provider),
                };
                Ok(Self { resolver, ca_pem, reloader: Some(reloader) })
            }
        }
    }
}

pub(crate) struct CertificateReloader {
    files: Files,
    /// The content that was last read, good or bad, so that a bad file is logged once.
    seen: Content,
    resolver: Arc<CertificateResolver>,
    provider: Arc<CryptoProvider>,
}

impl CertificateReloader {
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        while stop.run_until_cancelled(tokio::time::sleep(POLL_INTERVAL)).await.is_some() {
            self.poll();
        }
    }

    /// Reads the files once. They are small and local, so that blocking reads are short.
    fn poll(&mut self) {
        let content = match self.files.read() {
            Ok(content) => content,
            Err(error) => {
                if self.seen != Content::default() {
                    tracing::warn!(%error, "keeping the serving certificate");
                    self.seen = Content::default();
                }
                return;
            }
        };
        if content == self.seen {
            return;
        }
        match self.files.parse(&content, &self.provider) {
            Ok(key) => {
                self.resolver.current.store(Arc::new(key));
                tracing::info!(certificate = %self.files.certificate.display(), "loaded a new serving certificate");
            }
            Err(error) => tracing::warn!(%error, "keeping the serving certificate"),
        }
        self.seen = content;
    }
}

#[derive(Debug)]
pub(crate) struct CertificateResolver {
    current: ArcSwap<CertifiedKey>,
}

impl CertificateResolver {
    /// Returns when the current certificate expires, in seconds since 1970.
    pub(crate) fn expiry(&self) -> Option<i64> {
        let key = self.current.load();
        first_expiry(key.cert.first().map(|leaf| &**leaf))
    }
}

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.load_full())
    }
}

struct Files {
    certificate: PathBuf,
    key: PathBuf,
}

/// The content of both files. It holds a private key, and so has no `Debug`.
#[derive(PartialEq, Eq, Default)]
struct Content {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Files {
    fn read(&self) -> Result<Content, CertificateError> {
        Ok(Content { certificate: read(&self.certificate)?, key: read(&self.key)? })
    }

    fn parse(
        &self,
        content: &Content,
        provider: &CryptoProvider,
    ) -> Result<CertifiedKey, CertificateError> {
        let pem = |path: &Path, what| CertificateError::Pem { path: path.to_owned(), what };
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&content.certificate)
            .collect::<Result<_, _>>()
            .map_err(|_| pem(&self.certificate, "certificate"))?;
        if chain.is_empty() {
            return Err(pem(&self.certificate, "certificate"));
        }
        let key = PrivateKeyDer::from_pem_slice(&content.key)
            .map_err(|_| pem(&self.key, "private key"))?;
        CertifiedKey::from_der(chain, key, provider).map_err(CertificateError::Key)
    }
}

/// Generates a CA and a certificate that it signs. The CA's key is dropped at once.
fn generate(
    names: &[String],
    provider: &CryptoProvider,
) -> Result<(CertifiedKey, String), CertificateError> {
    let mut ca = CertificateParams::new(Vec::new())?;
    ca.distinguished_name.push(DnType::CommonName, "weir serving CA");
    ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let ca_key = KeyPair::generate()?;
    let ca_pem = ca.self_signed(&ca_key)?.pem();
    let issuer = Issuer::new(ca, ca_key);

    let mut names_served: Vec<String> = LOCAL_NAMES.iter().map(|name| (*name).to_owned()).collect();
    names_served.extend(names.iter().filter(|name| !LOCAL_NAMES.contains(&name.as_str())).cloned());
    let mut leaf = CertificateParams::new(names_served)?;
    leaf.distinguished_name.push(DnType::CommonName, "weir");
    leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    // Python verifies strictly since 3.13, and requires the identifier.
    leaf.use_authority_key_identifier_extension = true;
    let leaf_key = KeyPair::generate()?;
    let chain = vec![leaf.signed_by(&leaf_key, &issuer)?.der().clone()];
    let der = PrivateKeyDer::try_from(leaf_key.serialize_der())
        .map_err(|error| CertificateError::Tls(rustls::Error::General(error.to_owned())))?;
    let key = CertifiedKey::from_der(chain, der, provider).map_err(CertificateError::Key)?;
    Ok((key, ca_pem))
}

fn read(path: &Path) -> Result<Vec<u8>, CertificateError> {
    std::fs::read(path).map_err(|source| CertificateError::Read { path: path.to_owned(), source })
}

/// A rotated Secret is mounted about a minute before the old certificate expires, so that seconds
/// suffice.
const POLL_INTERVAL: Duration = Duration::from_secs(10);

/// The CA beside a certificate, in a Secret of the type kubernetes.io/tls.
const CA_FILE: &str = "ca.crt";

const LOCAL_NAMES: &[&str] = &["localhost", "127.0.0.1", "::1"];

#[cfg(test)]
mod tests {
    use rustls::crypto::aws_lc_rs;

    use super::*;

    fn load(config: &CertificateConfig) -> Result<ServingCertificate, CertificateError> {
        ServingCertificate::load(config, &Arc::new(aws_lc_rs::default_provider()))
    }

    fn pair(directory: &Path) -> Files {
        let files =
            Files { certificate: directory.join("tls.crt"), key: directory.join("tls.key") };
        write_pair(&files);
        files
    }

    fn write_pair(files: &Files) {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        std::fs::write(&files.certificate, made.cert.pem()).unwrap();
        std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
    }

    #[test]
    fn a_new_pair_is_loaded_and_a_broken_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let files = pair(directory.path());
        let certificate = load(&CertificateConfig::Files {
            certificate: files.certificate.clone(),
            key: files.key.clone(),
        })
        .unwrap();
        let mut reloader = certificate.reloader.unwrap();
        let leaf =
            |reloader: &CertificateReloader| reloader.resolver.current.load().cert[0].clone();
        let first = leaf(&reloader);
        assert!(certificate.ca_pem.starts_with("-----BEGIN CERTIFICATE-----"));

        reloader.poll();
        assert_eq!(leaf(&reloader), first, "the same content is no change");
        std::fs::write(&files.certificate, "broken").unwrap();
        reloader.poll();
        std::fs::remove_file(&files.certificate).unwrap();
        reloader.poll();
        assert_eq!(leaf(&reloader), first, "a broken or missing file keeps the old one");

        write_pair(&files);
        reloader.poll();
        assert_ne!(leaf(&reloader), first);
        // rcgen's own default.
        assert!(reloader.resolver.expiry().is_some_and(|end| end > 60_000_000_000));
    }

    #[test]
    fn errors_name_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let files = pair(directory.path());
        std::fs::write(&files.key, "no key").unwrap();
        let config =
            CertificateConfig::Files { certificate: files.certificate.clone(), key: files.key };
        let Err(error) = load(&config) else { panic!("loaded a broken key") };
        assert!(error.to_string().ends_with("tls.key holds no private key in PEM"), "{error}");
    }

    #[test]
    fn generated_certificates_contain_the_configured_names() {
        let names = vec!["weir.example".to_owned(), "192.0.2.7".to_owned(), "localhost".to_owned()];
        let certificate = load(&CertificateConfig::Generated { names }).unwrap();
        assert!(certificate.ca_pem.contains("BEGIN CERTIFICATE"));
        let bad = CertificateConfig::Generated { names: vec!["h\u{e9}".to_owned()] };
        assert!(load(&bad).is_err());
    }
}
