//! Tests of the three kinds of pools, which differ in the identity that they present.

use std::path::{Path, PathBuf};

use http::header::AUTHORIZATION;
use parking_lot::Mutex;

use super::*;
use crate::config::{FrontProxyConfig, UpstreamConfig};
use crate::upstream::testing::Issued;

/// A request that the server received.
#[derive(Clone, Debug)]
struct ReceivedRequest {
    /// The client certificate in DER.
    certificate: Option<Vec<u8>>,
    connection: usize,
    /// The request head in lower case.
    head: String,
}

/// A server that requests client certificates, accepts clients without one, and responds 401 to
/// every request.
struct RecordingServer {
    address: std::net::SocketAddr,
    seen: Arc<Mutex<Vec<ReceivedRequest>>>,
}

impl RecordingServer {
    async fn start(ca: &Ca) -> Self {
        let acceptor = tokio_rustls::TlsAcceptor::from(ca.server_with_client_auth(&["127.0.0.1"]));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self { address: listener.local_addr().unwrap(), seen: Arc::default() };
        let seen = server.seen.clone();
        tokio::spawn(async move {
            let mut connection = 0;
            while let Ok((tcp, _)) = listener.accept().await {
                let (acceptor, seen) = (acceptor.clone(), seen.clone());
                connection += 1;
                tokio::spawn(async move {
                    let Ok(mut tls) = acceptor.accept(tcp).await else { return };
                    let certificate = tls.get_ref().1.peer_certificates();
                    let certificate = certificate.map(|chain| chain[0].to_vec());
                    loop {
                        let mut bytes = Vec::new();
                        while !bytes.ends_with(b"\r\n\r\n") {
                            let Ok(byte) = tls.read_u8().await else { return };
                            bytes.push(byte);
                        }
                        let head = String::from_utf8(bytes).unwrap().to_lowercase();
                        seen.lock().push(ReceivedRequest {
                            certificate: certificate.clone(),
                            connection,
                            head,
                        });
                        let answer = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n";
                        tls.write_all(answer).await.unwrap();
                    }
                });
            }
        });
        server
    }

    /// Sends a request with a token and returns it as the server received it.
    async fn send(&self, upstream: &Upstream) -> ReceivedRequest {
        let request = Request::get("/x").header(AUTHORIZATION, "Bearer theirs");
        let request = request.body(empty_body()).unwrap();
        let response = upstream.send(TrafficClass::Request, request).await.unwrap();
        assert_eq!(response.status(), 401);
        text(response).await;
        self.seen.lock().last().unwrap().clone()
    }

    fn config(&self, directory: &Path, ca: &Ca, user: &str) -> UpstreamConfig {
        std::fs::write(directory.join("ca.crt"), &ca.pem).unwrap();
        let address = self.address;
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             contexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
             clusters: [{{name: k, cluster: {{server: 'https://{address}', certificate-authority: ca.crt}}}}]\n\
             users: [{{name: u, user: {{{user}}}}}]\n"
        );
        let path = directory.join("config");
        std::fs::write(&path, text).unwrap();
        config(None, Some(path), true)
    }
}

fn write(directory: &Path, name: &str, issued: &Issued) -> (PathBuf, PathBuf) {
    let path = |ending: &str| directory.join(format!("{name}.{ending}"));
    std::fs::write(path("crt"), &issued.certificate_pem).unwrap();
    std::fs::write(path("key"), &issued.key_pem).unwrap();
    (path("crt"), path("key"))
}

const USER: &str = "client-certificate: weir.crt, client-key: weir.key, token: weirs, as: jane";

#[tokio::test]
async fn each_pool_presents_only_its_own_identity() {
    let ca = Ca::new();
    let server = RecordingServer::start(&ca).await;
    let directory = tempfile::tempdir().unwrap();
    let (weir, proxy) = (ca.client("weir"), ca.client("front-proxy"));
    write(directory.path(), "weir", &weir);
    let (certificate, key) = write(directory.path(), "proxy", &proxy);
    let files = FrontProxyConfig { certificate, key };
    let config = server.config(directory.path(), &ca, USER);
    let registry = prometheus::Registry::new();
    let metrics = UpstreamMetrics::register(&registry).unwrap();

    let own_upstream = Upstream::new(&config, metrics).await.unwrap();
    let (bare, front_proxy) =
        (own_upstream.bare().await.unwrap(), own_upstream.front_proxy(&files).await.unwrap());
    assert_eq!(
        [&own_upstream, &bare, &front_proxy].map(Upstream::impersonates),
        [true, false, false]
    );
    let mut connections = Vec::new();
    for _ in 0..2 {
        let seen = server.send(&own_upstream).await;
        assert_eq!(seen.certificate.as_ref(), Some(&weir.certificate));
        assert!(seen.head.contains("authorization: bearer weirs\r\n"), "{}", seen.head);
        assert!(seen.head.contains("impersonate-user: jane\r\n"), "{}", seen.head);
        connections.push(seen.connection);

        let seen = server.send(&bare).await;
        assert_eq!(seen.certificate, None, "kube-apiserver would take the client for Weir");
        assert!(seen.head.contains("authorization: bearer theirs\r\n"), "{}", seen.head);
        assert!(!seen.head.contains("impersonate"), "{}", seen.head);
        connections.push(seen.connection);

        let seen = server.send(&front_proxy).await;
        assert_eq!(seen.certificate.as_ref(), Some(&proxy.certificate));
        assert!(
            !seen.head.contains("weirs") && !seen.head.contains("impersonate"),
            "{}",
            seen.head
        );
        connections.push(seen.connection);
    }
    connections.sort_unstable();
    assert_eq!(connections, [1, 1, 2, 2, 3, 3], "the pools share no connections");
    let text = prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
    for identity in ["own", "bare", "front-proxy"] {
        let series =
            format!(r#"weir_upstream_connections{{identity="{identity}",protocol="http1"}} 1"#);
        assert!(text.contains(&series), "{text}");
    }
}

#[tokio::test]
async fn a_bare_pool_runs_no_exec_plugin() {
    let ca = Ca::new();
    let server = RecordingServer::start(&ca).await;
    let directory = tempfile::tempdir().unwrap();
    let (plugin, runs) = (directory.path().join("plugin"), directory.path().join("runs"));
    let credential = r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"weirs"}}"#;
    std::fs::write(&plugin, format!("echo >> '{}'; echo '{credential}'", runs.display())).unwrap();
    let user = format!(
        "exec: {{apiVersion: client.authentication.k8s.io/v1, command: sh, args: ['{}'], interactiveMode: Never}}",
        plugin.display()
    );
    let config = server.config(directory.path(), &ca, &user);
    let own_upstream = Upstream::new(&config, metrics()).await.unwrap();
    let ran = || std::fs::read_to_string(&runs).unwrap().len();
    let before = ran();
    let bare = own_upstream.bare().await.unwrap();
    assert!(server.send(&bare).await.head.contains("authorization: bearer theirs\r\n"));
    assert_eq!(ran(), before);
}

#[tokio::test]
async fn a_front_proxy_certificate_rotates_only_with_its_key() {
    let ca = Ca::new();
    let server = RecordingServer::start(&ca).await;
    let directory = tempfile::tempdir().unwrap();
    let (old, new) = (ca.client("old"), ca.client("new"));
    let (certificate, key) = write(directory.path(), "proxy", &old);
    let files = FrontProxyConfig { certificate: certificate.clone(), key };
    let config = server.config(directory.path(), &ca, "token: weirs");
    let own_upstream = Upstream::new(&config, metrics()).await.unwrap();
    let upstream = own_upstream.front_proxy(&files).await.unwrap();
    let refresh = async || upstream.inner.credentials.refresh(false).await;
    let first = server.send(&upstream).await;
    assert_eq!(first.certificate.as_ref(), Some(&old.certificate));
    assert!(!refresh().await.unwrap());

    std::fs::write(&certificate, &new.certificate_pem).unwrap();
    let error = refresh().await.unwrap_err().to_string();
    assert!(error.contains("authentication.frontProxy"), "{error}");
    assert_eq!(server.send(&upstream).await.connection, first.connection);

    write(directory.path(), "proxy", &new);
    assert!(refresh().await.unwrap());
    let second = server.send(&upstream).await;
    assert_eq!(second.certificate.as_ref(), Some(&new.certificate));
    assert_ne!(second.connection, first.connection, "the old connection gets no new requests");
}

#[tokio::test]
async fn a_front_proxy_needs_tls() {
    let directory = tempfile::tempdir().unwrap();
    let (certificate, key) = write(directory.path(), "proxy", &Ca::new().client("proxy"));
    let files = FrontProxyConfig { certificate, key };
    let config = config(Some("http://127.0.0.1:1".to_owned()), None, false);
    let own_upstream = Upstream::new(&config, metrics()).await.unwrap();
    let error = own_upstream.front_proxy(&files).await.err().unwrap().to_string();
    assert!(error.contains("plain HTTP"), "{error}");
}
