//! Serving certificates: from files that may be replaced at any time, or made at start.
//!
//! Files are polled and compared by content, since a mounted Secret is swapped by renaming a directory above the
//! file, which file watches miss (crates.md, pitfall 17). A broken new file never replaces a working certificate.
//!
//! In gateway mode clients are asked for a certificate of theirs ([`Accepting`]); what it is worth is judged with each request. A resumed session
//! keeps the certificates that its first handshake proved (rustls stores them with it), and they are judged as any others.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::DistinguishedName;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::auth::x509::handshake::{AnyCertificate, Hints};
use crate::config::CertificateConfig;

/// Why a serving certificate can't be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file can't be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file holds no usable PEM.
    #[error("{path} holds no {what} in PEM")]
    Pem {
        /// The file.
        path: PathBuf,
        /// What was looked for.
        what: &'static str,
    },
    /// The key can't be used, or is not the certificate's.
    #[error("the serving certificate and key cannot be used together")]
    Key(#[source] rustls::Error),
    /// A name can't stand in a certificate, or the system gives no randomness.
    #[error("cannot make a serving certificate; check the names given for it")]
    Generate(#[from] rcgen::Error),
    /// TLS itself can't be set up.
    #[error("cannot set up TLS")]
    Tls(#[source] rustls::Error),
}

/// A certificate in use by one listener.
pub(crate) struct Serving {
    /// What connections are accepted with.
    pub(crate) accepting: Accepting,
    /// What clients must trust, in PEM.
    pub(crate) ca_pem: String,
    /// What keeps it current, if it came from files.
    pub(crate) reloader: Option<Reloader>,
}

impl Serving {
    /// Reads or makes a certificate. With `hints`, clients are asked for theirs.
    pub(crate) fn new(
        config: &CertificateConfig,
        hints: Option<Hints>,
    ) -> Result<Self, CertificateError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        match config {
            CertificateConfig::Generated { names } => {
                let (key, ca_pem) = generate(names, &provider)?;
                let resolver = Arc::new(Resolver { current: ArcSwap::from_pointee(key) });
                let accepting = Accepting::new(provider, resolver, hints)?;
                Ok(Self { accepting, ca_pem, reloader: None })
            }
            CertificateConfig::Files { certificate, key, ca } => {
                let files = Files { certificate: certificate.clone(), key: key.clone() };
                let content = files.read()?;
                let ca_pem = match ca {
                    Some(ca) => String::from_utf8_lossy(&read(ca)?).into_owned(),
                    None => String::from_utf8_lossy(&content.certificate).into_owned(),
                };
                let parsed = files.parse(&content, &provider)?;
                let resolver = Arc::new(Resolver { current: ArcSwap::from_pointee(parsed) });
                let reloader = Reloader {
                    files,
                    seen: content,
                    resolver: Arc::clone(&resolver),
                    provider: Arc::clone(&provider),
                };
                let accepting = Accepting::new(provider, resolver, hints)?;
                Ok(Self { accepting, ca_pem, reloader: Some(reloader) })
            }
        }
    }
}

/// Follows the files of a certificate.
pub(crate) struct Reloader {
    files: Files,
    /// What was last looked at, good or bad, so that a bad file is told of once.
    seen: Content,
    resolver: Arc<Resolver>,
    provider: Arc<CryptoProvider>,
}

impl Reloader {
    /// Polls until stopped.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        while stop.run_until_cancelled(tokio::time::sleep(POLL_INTERVAL)).await.is_some() {
            self.poll();
        }
    }

    /// Looks at the files once. They are small and local, so that reading them in place is short.
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
                tracing::info!(certificate = %self.files.certificate.display(), "took a new serving certificate");
            }
            Err(error) => tracing::warn!(%error, "keeping the serving certificate"),
        }
        self.seen = content;
    }
}

#[derive(Debug)]
struct Resolver {
    current: ArcSwap<CertifiedKey>,
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.load_full())
    }
}

struct Files {
    certificate: PathBuf,
    key: PathBuf,
}

/// No `Debug`: it holds a private key.
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

/// Makes a CA and a certificate of it. The CA's key is forgotten at once.
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

    let mut all: Vec<String> = LOCAL_NAMES.iter().map(|name| (*name).to_owned()).collect();
    all.extend(names.iter().filter(|name| !LOCAL_NAMES.contains(&name.as_str())).cloned());
    let mut leaf = CertificateParams::new(all)?;
    leaf.distinguished_name.push(DnType::CommonName, "weir");
    leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    // Python verifies strictly since 3.13 and wants the identifier.
    leaf.use_authority_key_identifier_extension = true;
    let leaf_key = KeyPair::generate()?;
    let chain = vec![leaf.signed_by(&leaf_key, &issuer)?.der().clone()];
    let der = PrivateKeyDer::try_from(leaf_key.serialize_der())
        .map_err(|error| CertificateError::Tls(rustls::Error::General(error.to_owned())))?;
    let key = CertifiedKey::from_der(chain, der, provider).map_err(CertificateError::Key)?;
    Ok((key, ca_pem))
}

/// How connections are accepted.
pub(crate) struct Accepting {
    provider: Arc<CryptoProvider>,
    resolver: Arc<Resolver>,
    asking: Option<Asking>,
    current: Arc<rustls::ServerConfig>,
}

/// Clients are asked for a certificate.
struct Asking {
    hints: Hints,
    /// Those that `current` was made with.
    used: Arc<Vec<DistinguishedName>>,
}

impl Accepting {
    fn new(
        provider: Arc<CryptoProvider>,
        resolver: Arc<Resolver>,
        hints: Option<Hints>,
    ) -> Result<Self, CertificateError> {
        let asking = hints.map(|hints| Asking { used: hints.load(), hints });
        let used = asking.as_ref().map(|asking| Arc::clone(&asking.used));
        let current = Arc::new(accept(Arc::clone(&provider), Arc::clone(&resolver), used)?);
        Ok(Self { provider, resolver, asking, current })
    }

    /// What the next connection is accepted with.
    pub(crate) fn acceptor(&mut self) -> TlsAcceptor {
        if let Some(asking) = &mut self.asking {
            let hints = asking.hints.load();
            if !Arc::ptr_eq(&hints, &asking.used) {
                asking.used = Arc::clone(&hints);
                let (provider, resolver) = (&self.provider, &self.resolver);
                match accept(Arc::clone(provider), Arc::clone(resolver), Some(hints)) {
                    Ok(mut config) => {
                        // Clients may go on with their sessions.
                        config.session_storage = Arc::clone(&self.current.session_storage);
                        self.current = Arc::new(config);
                    }
                    Err(error) => tracing::warn!(%error, "keeping the old hints of client CAs"),
                }
            }
        }
        TlsAcceptor::from(Arc::clone(&self.current))
    }
}

fn accept(
    provider: Arc<CryptoProvider>,
    resolver: Arc<Resolver>,
    hints: Option<Arc<Vec<DistinguishedName>>>,
) -> Result<rustls::ServerConfig, CertificateError> {
    let builder = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(CertificateError::Tls)?;
    let builder = match hints {
        Some(hints) => {
            builder.with_client_cert_verifier(Arc::new(AnyCertificate::new(hints, &provider)))
        }
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_cert_resolver(resolver);
    // HTTP/1.1 must be offered: upgrades don't exist in HTTP/2 (semantics.md §11).
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn read(path: &Path) -> Result<Vec<u8>, CertificateError> {
    std::fs::read(path).map_err(|source| CertificateError::Read { path: path.to_owned(), source })
}

/// A rotated Secret is mounted about a minute before the old certificate stops being good; seconds are soon enough.
const POLL_INTERVAL: Duration = Duration::from_secs(10);

const LOCAL_NAMES: &[&str] = &["localhost", "127.0.0.1", "::1"];

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_new_pair_is_taken_and_a_broken_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let files = pair(directory.path());
        let serving = Serving::new(
            &CertificateConfig::Files {
                certificate: files.certificate.clone(),
                key: files.key.clone(),
                ca: None,
            },
            None,
        )
        .unwrap();
        let mut reloader = serving.reloader.unwrap();
        let leaf = |reloader: &Reloader| reloader.resolver.current.load().cert[0].clone();
        let first = leaf(&reloader);
        assert!(serving.ca_pem.starts_with("-----BEGIN CERTIFICATE-----"));

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
    }

    #[test]
    fn errors_name_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let files = pair(directory.path());
        std::fs::write(&files.key, "no key").unwrap();
        let config = CertificateConfig::Files {
            certificate: files.certificate.clone(),
            key: files.key,
            ca: None,
        };
        let Err(error) = Serving::new(&config, None) else { panic!("took a broken key") };
        assert!(error.to_string().ends_with("tls.key holds no private key in PEM"), "{error}");
    }

    #[test]
    fn generated_certificates_carry_the_names_given() {
        let names = vec!["weir.example".to_owned(), "192.0.2.7".to_owned(), "localhost".to_owned()];
        let serving = Serving::new(&CertificateConfig::Generated { names }, None).unwrap();
        assert!(serving.ca_pem.contains("BEGIN CERTIFICATE"));
        let bad = CertificateConfig::Generated { names: vec!["h\u{e9}".to_owned()] };
        assert!(Serving::new(&bad, None).is_err());
    }
}
