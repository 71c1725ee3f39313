//! Every listener: TLS, plain and Unix, with both versions of HTTP, and the requests that they
//! reject.
//!
//! kube-rs' in-cluster configuration reads fixed paths below `/var/run/secrets`, which a test must
//! not write. The test uses the parts of it: the HTTPS listener, trusted by a CA file alone.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{Api, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use rustls_pki_types::ServerName;
use rustls_pki_types::pem::PemObject;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use weir::config::seams::Seams;
use weir::config::{CertificateConfig, ListenerConfig, ProxyNetworks};
use weir::server::ListenerKind;
use weir::simulator::{Simulator, SimulatorOptions};

use crate::client::{Answer, Call, fetch, send_h2, try_send};
use crate::harness::Proxy;
use crate::wait::eventually;

const LIST: &str = "/api/v1/configmaps?resourceVersion=0";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_listener_serves_http1_and_http2() {
    let proxy = Proxy::seeded().await;
    proxy.warm("/api/v1/configmaps").await;
    let call = Call::get(LIST);
    let expected = proxy.direct(&call).await.text();
    let tls = proxy.listeners.iter().find(|listener| listener.kind == ListenerKind::Tls).unwrap();
    let ca = tls.ca_pem.as_deref().unwrap();
    let address = proxy.address(ListenerKind::Tls);
    let socket = proxy.dir.path().join("weir.sock");
    let connect = async || TcpStream::connect(proxy.plain()).await.unwrap();
    let unix = async || UnixStream::connect(&socket).await.unwrap();
    let encrypted = async |alpn| secure(connect_to(address).await, ca, alpn).await.unwrap();
    for response in [
        try_send(connect().await, &call).await,
        send_h2(connect().await, &call).await,
        try_send(unix().await, &call).await,
        send_h2(unix().await, &call).await,
        try_send(encrypted("http/1.1").await, &call).await,
        send_h2(encrypted("h2").await, &call).await,
    ] {
        let answer = Answer::collect(response.unwrap()).await.unwrap();
        assert_eq!((answer.cache(), answer.text()), ("hit", expected.clone()));
    }
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&socket).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
}

/// Mounted certificates are replaced while Weir runs; an invalid one never replaces a valid one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replaced_certificate_file_is_served() {
    let files = tempfile::tempdir().unwrap();
    let (certificate, key) = (files.path().join("tls.crt"), files.path().join("tls.key"));
    let first = write_certificate(&certificate, &key);
    let upstream = Simulator::start(SimulatorOptions::default()).await.unwrap();
    let proxy = Proxy::before(upstream, "", |config| {
        config.server.listeners.push(ListenerConfig::Tls {
            address: "127.0.0.1:0".parse().unwrap(),
            certificate: CertificateConfig::Files {
                certificate: certificate.clone(),
                key: key.clone(),
            },
            proxies: ProxyNetworks::default(),
        });
    })
    .await;
    let address = proxy.listeners.last().unwrap().address.parse().unwrap();
    let trusts = async |ca: &str| secure(connect_to(address).await, ca, "h2").await.is_ok();
    assert!(trusts(&first).await);
    let second = write_certificate(&certificate, &key);
    eventually("the new certificate is taken", async || trusts(&second).await).await;
    assert!(!trusts(&first).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_host_names_are_refused() {
    let upstream = Simulator::start(SimulatorOptions::default()).await.unwrap();
    let proxy = Proxy::before(upstream, "", |config| {
        config.server.allowed_hosts = vec!["weir.example".to_owned()];
    })
    .await;
    for (host, code) in [
        ("localhost", 200),
        ("127.0.0.1:8001", 200),
        ("[::1]", 200),
        ("weir.example:443", 200),
        ("evil.example", 403),
        ("localhost.evil.example", 403),
        ("10.0.0.1", 403),
    ] {
        let before = proxy.upstream.requests().count("get", "");
        let answer = proxy.call(&Call::get("/version").header("host", host)).await;
        assert_eq!(answer.status, code, "{host}");
        let reached = proxy.upstream.requests().count("get", "") > before;
        assert!(reached || code == 403, "{host}");
        if code == 403 {
            assert!(answer.json()["message"].as_str().unwrap().contains("allowedHosts"));
        }
    }
    let connect = Call::new(http::Method::CONNECT, "evil.example:443");
    assert_eq!(fetch(proxy.plain(), &connect).await.status, 405);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_and_oversized_requests_affect_no_other_client() {
    let proxy = Proxy::seeded().await;
    let long = "x".repeat(1 << 20);
    let many: String =
        (0..2000).map(|number| format!("x-{number}: {}\r\n", "y".repeat(600))).collect();
    for (request, codes) in [
        (format!("GET /version HTTP/1.1\r\nHost: localhost\r\nx-long: {long}\r\n\r\n"), &[431][..]),
        (format!("GET /version HTTP/1.1\r\nHost: localhost\r\n{many}\r\n"), &[431]),
        (format!("GET /{long} HTTP/1.1\r\nHost: localhost\r\n\r\n"), &[414, 431]),
        ("GARBAGE\r\n\r\n".to_owned(), &[400]),
        ("GET /version HTTP/1.1\r\nHost: localhost\r\nno colon\r\n\r\n".to_owned(), &[400]),
        ("GET /version HTTP/1.1\r\n\r\n".to_owned(), &[400]),
        ("GET /version HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n".to_owned(), &[400]),
        ("GET version HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), &[400, 403]),
        ("POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello".to_owned(), &[400]),
        ("POST /x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked, gzip\r\n\r\n".to_owned(), &[501]),
    ] {
        let code = raw(&proxy, request.as_bytes()).await;
        let what: String = request.chars().take(60).collect();
        assert!(codes.contains(&code), "{what:?} got {code}");
        assert_eq!(proxy.get("/version").await.status, 200, "weir goes on after {what:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_is_slow_to_send_a_head_is_disconnected() {
    let upstream = Simulator::start(SimulatorOptions::default()).await.unwrap();
    let seams = Seams { header_read_timeout: Duration::from_secs(1), ..Seams::default() };
    let proxy = Proxy::before_with(seams, upstream, "", |_| {}).await;
    for start in ["", "G", "GET /version HTTP/1.1\r\nHost: loc", "PRI * HTTP/2.0\r\n"] {
        let mut stream = TcpStream::connect(proxy.plain()).await.unwrap();
        stream.write_all(start.as_bytes()).await.unwrap();
        let mut rest = Vec::new();
        let ended = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut rest));
        assert!(ended.await.is_ok(), "{start:?}: still open");
        let answer = String::from_utf8_lossy(&rest).into_owned();
        assert!(rest.is_empty() || answer.starts_with("HTTP/1.1 408"), "{start:?}: {answer}");
    }
    // The time-out does not apply to silence after a request.
    let watch = proxy
        .watch("/api/v1/pods?watch=1&resourceVersion=0&labelSelector=no%3Dne&timeoutSeconds=2")
        .await;
    assert_eq!({ watch }.rest().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kube_rs_connects_with_the_written_kubeconfig() {
    let proxy = Proxy::seeded().await;
    let written = Kubeconfig::read_from(proxy.dir.path().join("kubeconfig")).unwrap();
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(written, &options).await.unwrap();
    works(&proxy, config).await;

    // The in-cluster configuration: the address from the environment, the CA from a mounted file, a
    // token.
    let tls = proxy.listeners.iter().find(|listener| listener.kind == ListenerKind::Tls).unwrap();
    let mut config = kube::Config::new(format!("https://{}", tls.address).parse().unwrap());
    let ca =
        rustls_pki_types::CertificateDer::pem_slice_iter(tls.ca_pem.as_ref().unwrap().as_bytes());
    config.root_cert = Some(ca.map(|der| der.unwrap().to_vec()).collect());
    "ns1".clone_into(&mut config.default_namespace);
    works(&proxy, config).await;
}

async fn works(proxy: &Proxy, config: kube::Config) {
    let client = kube::Client::try_from(config).unwrap();
    let api: Api<k8s_openapi::api::core::v1::ConfigMap> = Api::namespaced(client, "ns1");
    let list = api.list(&ListParams::default().match_any()).await.unwrap();
    assert!(list.items.len() >= 4);
    let name = format!("by-kube-{}", proxy.upstream.store().revision());
    let object = serde_json::from_value(crate::harness::configmap("ns1", &name, 1)).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
    assert_eq!(api.get(&name).await.unwrap().metadata.name, Some(name));
}

/// Sends bytes and returns the status code.
async fn raw(proxy: &Proxy, request: &[u8]) -> u16 {
    let stream = TcpStream::connect(proxy.plain()).await.unwrap();
    let (mut read, mut write) = stream.into_split();
    let request = request.to_vec();
    // The response may arrive before all bytes are written; the rest then fails.
    let writing = tokio::spawn(async move {
        drop(write.write_all(&request).await);
        write
    });
    let mut answer = vec![0; 1024];
    let count = tokio::time::timeout(Duration::from_secs(10), read.read(&mut answer)).await;
    let count = count.expect("an answer in time").unwrap_or(0);
    drop(writing.await);
    let text = String::from_utf8_lossy(&answer[..count]).into_owned();
    text.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0)
}

async fn connect_to(address: std::net::SocketAddr) -> TcpStream {
    TcpStream::connect(address).await.unwrap()
}

/// Opens a TLS connection that trusts this CA alone.
async fn secure(stream: TcpStream, ca: &str, alpn: &str) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in rustls_pki_types::CertificateDer::pem_slice_iter(ca.as_bytes()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(alpn.as_bytes()));
    Ok(stream)
}

/// Writes a new self-signed certificate and returns it.
fn write_certificate(certificate: &Path, key: &Path) -> String {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(key, made.signing_key.serialize_pem()).unwrap();
    std::fs::write(certificate, made.cert.pem()).unwrap();
    made.cert.pem()
}
