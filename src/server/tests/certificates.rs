//! Client certificates belong to their connections, whichever CA signed them.

use std::sync::Arc;

use parking_lot::Mutex;
use rustls::client::{ClientConnection, ResolvesClientCert};
use rustls::sign::CertifiedKey;
use rustls::{HandshakeKind, RootCertStore, SignatureScheme, SupportedProtocolVersion};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;

use crate::auth::peer::Peer;
use crate::auth::x509::handshake::Hints;
use crate::auth::x509::testing::{Client, TestCa, user_params};
use crate::config::CertificateConfig;
use crate::server::accept::handshake::{HandshakeGate, handshake};
use crate::server::accept::tls::{TlsAcceptors, TlsSetup};
use crate::server::metrics::ServerMetrics;
use crate::server::overload::Overload;

/// Presents a certificate whatever the hints, as client-go does, and stores the hints.
#[derive(Debug)]
struct CertificatePresenter {
    key: Option<Arc<CertifiedKey>>,
    hints: Mutex<Vec<Vec<u8>>>,
}

impl ResolvesClientCert for CertificatePresenter {
    fn resolve(&self, hints: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        *self.hints.lock() = hints.iter().map(|hint| hint.to_vec()).collect();
        self.key.clone()
    }

    fn has_certs(&self) -> bool {
        true
    }
}

fn presenter(client: Option<&Client>) -> Arc<CertificatePresenter> {
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let key = client.map(|client| {
        let key = provider.key_provider.load_private_key(client.key.clone_key()).unwrap();
        // `CertifiedKey::from_der` would compare the key with a certificate that rustls cannot
        // parse.
        Arc::new(CertifiedKey::new(client.chain.clone(), key))
    });
    Arc::new(CertificatePresenter { key, hints: Mutex::default() })
}

fn connector(
    serving: &TlsSetup,
    presenter: &Arc<CertificatePresenter>,
    version: &'static SupportedProtocolVersion,
    alpn: &str,
) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(serving.ca_pem.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots)
        .with_client_cert_resolver(Arc::clone(presenter) as Arc<dyn ResolvesClientCert>);
    config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
    TlsConnector::from(Arc::new(config))
}

fn serving(hints: Option<Hints>) -> TlsSetup {
    TlsSetup::new(&CertificateConfig::Generated { names: Vec::new() }, hints).unwrap()
}

/// Connects once. Returns the server's view of the client, and the kind of handshake.
async fn connect(
    acceptors: &mut TlsAcceptors,
    connector: &TlsConnector,
) -> Option<(Peer, HandshakeKind)> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let metrics = ServerMetrics::register(&prometheus::Registry::new()).unwrap();
    let gate = HandshakeGate::new(Overload::calm(), metrics);
    let client = async {
        let tcp = TcpStream::connect(address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let mut stream = connector.connect(name, tcp).await.ok()?;
        // Session tickets arrive with the first bytes.
        let mut byte = [0];
        stream.read_exact(&mut byte).await.ok()?;
        let connection: &ClientConnection = stream.get_ref().1;
        connection.handshake_kind()
    };
    let server = async {
        let (tcp, from) = listener.accept().await.unwrap();
        let (mut stream, peer, _) =
            handshake(&acceptors.current(), tcp, Some(from), &gate).await.ok()??;
        stream.write_all(b"x").await.ok()?;
        stream.flush().await.ok()?;
        Some(peer)
    };
    let (kind, peer) = tokio::join!(client, server);
    Some((peer?, kind?))
}

const VERSIONS: [&SupportedProtocolVersion; 2] = [&rustls::version::TLS12, &rustls::version::TLS13];

#[tokio::test]
async fn certificates_of_any_ca_are_passed_on() {
    let client = TestCa::new("unknown CA").user("jane");
    for version in VERSIONS {
        for alpn in ["h2", "http/1.1"] {
            let mut serving = serving(Some(Hints::default()));
            let connector = connector(&serving, &presenter(Some(&client)), version, alpn);
            let (peer, _) = connect(&mut serving.acceptors, &connector).await.unwrap();
            assert_eq!(peer.certificates.as_deref(), Some(&client.chain[..]));
            assert!(peer.address.unwrap().is_loopback());
        }
    }
}

#[tokio::test]
async fn a_resumed_session_keeps_its_own_certificates() {
    let clients = ["jane", "joe"].map(|name| TestCa::new("ca").user(name));
    for version in VERSIONS {
        let hints = Hints::default();
        let mut serving = serving(Some(hints.clone()));
        let connectors = [0, 1]
            .map(|at: usize| connector(&serving, &presenter(Some(&clients[at])), version, "h2"));
        for expected in [HandshakeKind::Full, HandshakeKind::Resumed, HandshakeKind::Resumed] {
            for (client, connector) in clients.iter().zip(&connectors) {
                let (peer, kind) = connect(&mut serving.acceptors, connector).await.unwrap();
                assert_eq!(kind, expected);
                assert_eq!(peer.certificates.as_deref(), Some(&client.chain[..]));
            }
            // New CAs do not end sessions: the certificates of a resumed session are verified
            // again.
            hints.store(vec![rustls::DistinguishedName::in_sequence(b"x")]);
        }
    }
}

#[tokio::test]
async fn a_certificate_without_its_key_fails_the_handshake() {
    let (jane, joe) = (TestCa::new("ca").user("jane"), TestCa::new("ca").user("joe"));
    let old = TestCa::new("ca").sign_version_1(&user_params("jane"));
    for version in VERSIONS {
        for stolen in [&jane, &old] {
            let thief = Client { chain: stolen.chain.clone(), key: joe.key.clone_key() };
            let mut serving = serving(Some(Hints::default()));
            let connector = connector(&serving, &presenter(Some(&thief)), version, "h2");
            assert!(connect(&mut serving.acceptors, &connector).await.is_none());
        }
    }
}

#[tokio::test]
async fn certificates_of_version_1_are_passed_on() {
    let client = TestCa::new("ca").sign_version_1(&user_params("jane"));
    for version in VERSIONS {
        let mut serving = serving(Some(Hints::default()));
        let connector = connector(&serving, &presenter(Some(&client)), version, "h2");
        let (peer, _) = connect(&mut serving.acceptors, &connector).await.unwrap();
        assert_eq!(peer.certificates.as_deref(), Some(&client.chain[..]));
    }
}

#[tokio::test]
async fn certificates_are_optional_and_a_sidecar_does_not_request_them() {
    let client = TestCa::new("ca").user("jane");
    for version in VERSIONS {
        let mut gateway = serving(Some(Hints::default()));
        let connector = connector(&gateway, &presenter(None), version, "h2");
        let (peer, _) = connect(&mut gateway.acceptors, &connector).await.unwrap();
        assert!(peer.certificates.is_none());

        let mut sidecar = serving(None);
        let presenter = presenter(Some(&client));
        let connector = super::certificates::connector(&sidecar, &presenter, version, "h2");
        let (peer, _) = connect(&mut sidecar.acceptors, &connector).await.unwrap();
        assert!(peer.certificates.is_none());
    }
}

#[tokio::test]
async fn the_current_names_of_cas_are_sent() {
    let hints = Hints::default();
    let mut serving = serving(Some(hints.clone()));
    let client = TestCa::new("ca").user("jane");
    for version in VERSIONS {
        for name in [&b"one"[..], b"two"] {
            let name = rustls::DistinguishedName::in_sequence(name);
            hints.store(vec![name.clone()]);
            let presenter = presenter(Some(&client));
            let connector = connector(&serving, &presenter, version, "h2");
            connect(&mut serving.acceptors, &connector).await.unwrap();
            assert_eq!(*presenter.hints.lock(), [name.as_ref().to_vec()]);
        }
    }
}
