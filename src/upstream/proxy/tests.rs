//! Tests of the choice of a proxy, with the cases of Go's own tests, and of connections through
//! proxies, with TLS to an upstream behind them.

use std::net::SocketAddr;

use http::Request;
use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::upstream::testing::{Ca, ServerOptions, TestServer, answer, config, metrics};
use crate::upstream::{RequestBody, TrafficClass, Upstream, empty_body};

fn proxies(variables: &[(&str, &str)]) -> Proxies {
    let variables: Vec<_> =
        variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Proxies::from_variables(move |name| {
        variables.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone())
    })
}

fn selected(proxies: &Proxies, https: bool, host: &str, port: u16) -> Option<String> {
    proxies.select(https, host, port).map(ToString::to_string)
}

/// The cases of `TestUseProxy` of golang.org/x/net/http/httpproxy: whether a proxy is used for port
/// 80 of a host.
const USES_PROXY: [(&str, bool); 29] = [
    ("localhost", false),
    ("127.0.0.1", false),
    ("127.0.0.2", false),
    ("::1", false),
    ("::2", true),
    ("192.168.1.1", false),
    ("192.168.1.2", true),
    ("192.168.1.3", false),
    ("192.168.1.4", true),
    ("10.0.0.2", false),
    ("2001:db8::52:0:1", false),
    ("2001:db8::52:0:2", true),
    ("2001:db8::52:0:3", false),
    ("2002:db8:a::123", false),
    ("fe80::424b:c8be:1643:a1b6", true),
    ("barbaz.net", true),
    ("www.barbaz.net", false),
    ("WWW.barbaz.NET", false),
    ("foobar.com", false),
    ("www.foobar.com", false),
    ("foofoobar.com", true),
    ("baz.com", true),
    ("localhost.net", true),
    ("local.localhost", true),
    ("barbarbaz.net", true),
    ("wildcard.io", true),
    ("nested.wildcard.io", false),
    ("awildcard.io", true),
    ("::ffff:10.0.0.2", false),
];

const NO_PROXY: &str = "foobar.com, .barbaz.net, *.wildcard.io, 192.168.1.1, 192.168.1.2:81, \
                        192.168.1.3:80, 10.0.0.0/30, 2001:db8::52:0:1, [2001:db8::52:0:2]:443, \
                        [2001:db8::52:0:3]:80, 2002:db8:a::45/64";

#[test]
fn no_proxy_is_read_as_go_reads_it() {
    let proxies_with_exceptions = proxies(&[("HTTPS_PROXY", "proxy"), ("NO_PROXY", NO_PROXY)]);
    let nothing_proxied = proxies(&[("HTTPS_PROXY", "proxy"), ("NO_PROXY", "a.b, *")]);
    for (host, uses_proxy) in USES_PROXY {
        assert_eq!(proxies_with_exceptions.select(true, host, 80).is_some(), uses_proxy, "{host}");
        assert_eq!(nothing_proxied.select(true, host, 80), None, "{host}");
    }
    // A port without a host, an empty one, a prefix that is too long.
    let odd = proxies(&[("HTTPS_PROXY", "proxy"), ("NO_PROXY", ":1,,b.com:, 10.0.0.0/33, [::2]")]);
    assert!(odd.select(true, "example.com", 1).is_some());
    assert!(odd.select(true, "10.0.0.1", 80).is_some());
    assert!(odd.select(true, "::2", 80).is_some());
    assert_eq!(odd.select(true, "a.b.com", 80), None);
    let names = proxies(&[("HTTPS_PROXY", "proxy"), ("NO_PROXY", "example.com:6443")]);
    assert_eq!(names.select(true, "api.example.com", 6443), None);
    assert!(names.select(true, "api.example.com", 443).is_some());
}

#[test]
fn the_proxy_is_chosen_by_scheme_and_variable() {
    let both = [("HTTP_PROXY", "http.proxy.tld"), ("HTTPS_PROXY", "https://secure.proxy.tld:8443")];
    let set = proxies(&both);
    assert_eq!(selected(&set, false, "a", 80).unwrap(), "http://http.proxy.tld:80");
    assert_eq!(selected(&set, true, "a", 80).unwrap(), "https://secure.proxy.tld:8443");
    let only_http = proxies(&both[..1]);
    assert_eq!(only_http.select(true, "a", 443), None);
    for (value, expected) in [
        ("127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("cache.corp.example.com", "http://cache.corp.example.com:80"),
        ("localhost", "http://localhost:80"),
        ("https://cache.corp.example.com/x", "https://cache.corp.example.com:443"),
        ("socks5://127.0.0.1", "socks5://127.0.0.1:1080"),
        ("http://[fd00::1]:3128", "http://[fd00::1]:3128"),
    ] {
        let upper = proxies(&[("HTTPS_PROXY", value), ("https_proxy", "other")]);
        assert_eq!(selected(&upper, true, "a", 443).unwrap(), expected);
        let lower = proxies(&[("HTTPS_PROXY", ""), ("https_proxy", value)]);
        assert_eq!(selected(&lower, true, "a", 443).unwrap(), expected);
    }
    for unusable in ["foo://host", "http://", "http://a b"] {
        assert_eq!(proxies(&[("HTTPS_PROXY", unusable)]).select(true, "a", 443), None);
    }
    let cgi = proxies(&[both[0], both[1], ("REQUEST_METHOD", "GET")]);
    assert_eq!(cgi.select(false, "a", 80), None);
    assert!(cgi.select(true, "a", 80).is_some());
    assert_eq!(proxies(&[]), Proxies::default());
}

#[test]
fn the_proxy_of_a_kubeconfig_is_used_for_every_host() {
    let fixed = Proxies::new(Some(Proxy::parse("socks5://10.0.0.1").unwrap()));
    assert_eq!(selected(&fixed, true, "localhost", 443).unwrap(), "socks5://10.0.0.1:1080");
    for url in ["10.0.0.1:80", "socks4://a", "http://", "http://a%b@c"] {
        assert!(Proxy::parse(url).is_err(), "{url}");
    }
}

#[test]
fn credentials_of_a_proxy_are_never_shown() {
    let proxy = Proxy::parse("http://me:hunt%40er2@proxy:3128").unwrap();
    assert_eq!(proxy.credentials.as_ref().unwrap().password, "hunt@er2");
    assert_eq!(format!("{proxy} {proxy:?}"), "http://proxy:3128 Proxy(http://proxy:3128)");
    for url in ["http://me:hunter2@", "http://me:hunter%2@a", "x://me:hunter2@a"] {
        assert!(!Proxy::parse(url).unwrap_err().contains("hunter"), "{url}");
    }
}

/// A proxy that connects to whatever is requested, and what it was asked for.
struct TestProxy {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

impl TestProxy {
    async fn start(socks5: bool, tls: Option<Arc<rustls::ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, requests) = (listener.local_addr().unwrap(), Arc::default());
        let log: Arc<Mutex<Vec<String>>> = Arc::clone(&requests);
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let (log, tls) = (log.clone(), tls.clone());
                tokio::spawn(async move {
                    let client: Box<dyn Connection> = match tls {
                        None => Box::new(tcp),
                        Some(tls) => {
                            let acceptor = tokio_rustls::TlsAcceptor::from(tls);
                            Box::new(acceptor.accept(tcp).await.unwrap())
                        }
                    };
                    let mut client = BufReader::new(client);
                    let connected = match socks5 {
                        true => serve_socks5(&mut client, &log).await,
                        false => serve_connect(&mut client, &log).await,
                    };
                    if let Some(mut server) = connected {
                        let copied = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                        drop(copied);
                    }
                });
            }
        });
        Self { address, requests }
    }
}

type Client = BufReader<Box<dyn Connection>>;

/// Accepts the user `me` with the password `pass word`, and everybody without credentials.
async fn serve_connect(client: &mut Client, log: &Mutex<Vec<String>>) -> Option<TcpStream> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        client.read_line(&mut head).await.unwrap();
    }
    log.lock().push(head.clone());
    let target = head.strip_prefix("CONNECT ").unwrap().split(' ').next().unwrap();
    let has_credentials = head.to_lowercase().contains("proxy-authorization");
    if has_credentials && !head.contains("Basic bWU6cGFzcyB3b3Jk\r\n") {
        let refusal = "HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n";
        client.write_all(refusal.as_bytes()).await.unwrap();
        return None;
    }
    let Ok(server) = TcpStream::connect(target).await else {
        client.write_all(b"HTTP/1.1 503 No Route\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        return None;
    };
    client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.unwrap();
    Some(server)
}

/// The same over SOCKS5. It requires credentials where they are offered.
async fn serve_socks5(client: &mut Client, log: &Mutex<Vec<String>>) -> Option<TcpStream> {
    assert_eq!(client.read_u8().await.unwrap(), 5);
    let mut methods = vec![0; usize::from(client.read_u8().await.unwrap())];
    client.read_exact(&mut methods).await.unwrap();
    if methods.contains(&2) {
        client.write_all(&[5, 2]).await.unwrap();
        assert_eq!(client.read_u8().await.unwrap(), 1);
        let (user, password) = (read_text(client).await, read_text(client).await);
        let is_right = (user.as_str(), password.as_str()) == ("me", "pass word");
        client.write_all(&[1, u8::from(!is_right)]).await.unwrap();
        if !is_right {
            return None;
        }
    } else {
        client.write_all(&[5, 0]).await.unwrap();
    }
    let mut head = [0; 4];
    client.read_exact(&mut head).await.unwrap();
    let host = match head {
        [5, 1, 0, 1] => {
            let mut octets = [0; 4];
            client.read_exact(&mut octets).await.unwrap();
            std::net::Ipv4Addr::from(octets).to_string()
        }
        [5, 1, 0, 3] => read_text(client).await,
        _ => panic!("{head:?}"),
    };
    let port = client.read_u16().await.unwrap();
    log.lock().push(format!("{host}:{port}"));
    let Ok(server) = TcpStream::connect((host.as_str(), port)).await else {
        client.write_all(&[5, 5, 0, 1, 0, 0, 0, 0, 0, 0]).await.unwrap();
        return None;
    };
    client.write_all(&[5, 0, 0, 3, 1, b'x', 0, 1]).await.unwrap();
    Some(server)
}

async fn read_text(client: &mut Client) -> String {
    let mut text = vec![0; usize::from(client.read_u8().await.unwrap())];
    client.read_exact(&mut text).await.unwrap();
    String::from_utf8(text).unwrap()
}

/// Sends a request to `server` (a host and port) through the proxy with this URL.
async fn send_through(proxy: &str, server: &str, ca: &Ca) -> Result<u16, String> {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("ca.crt"), &ca.pem).unwrap();
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         contexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
         clusters: [{{name: k, cluster: {{server: 'https://{server}', \
         certificate-authority: ca.crt, proxy-url: '{proxy}'}}}}]\n\
         users: [{{name: u, user: {{token: secret}}}}]\n"
    );
    let path = directory.path().join("config");
    std::fs::write(&path, text).unwrap();
    let config = config(None, Some(path), true);
    let upstream = Upstream::new(&config, metrics()).await.map_err(|error| error.to_string())?;
    let request: Request<RequestBody> = Request::get("/x").body(empty_body()).unwrap();
    let sent = upstream.send(TrafficClass::Request, request).await;
    sent.map(|response| response.status().as_u16()).map_err(|error| error.to_string())
}

async fn tls_server(ca: &Ca) -> TestServer {
    let tls = Some(ca.server(&["localhost", "127.0.0.1"], &["h2", "http/1.1"]));
    let options = ServerOptions { http2: true, tls, max_streams: 100 };
    TestServer::start(options, |_| async { answer(202, "x") }).await
}

#[tokio::test]
async fn tls_with_the_upstream_goes_through_each_kind_of_proxy() {
    let ca = Ca::new();
    let server = tls_server(&ca).await;
    let named = format!("localhost:{}", server.address.port());
    let plain = TestProxy::start(false, None).await;
    let secure = TestProxy::start(false, Some(ca.server(&["localhost"], &["http/1.1"]))).await;
    let socks5 = TestProxy::start(true, None).await;
    for credentials in ["", "me:pass%20word@"] {
        for (scheme, proxy) in [("http", &plain), ("https", &secure), ("socks5", &socks5)] {
            let url = format!("{scheme}://{credentials}localhost:{}", proxy.address.port());
            assert_eq!(send_through(&url, &named, &ca).await, Ok(202), "{url}");
            let requests = std::mem::take(&mut *proxy.requests.lock());
            assert_eq!(requests.len(), 1, "{url}");
            assert!(requests[0].contains(&named), "the proxy resolves the name: {requests:?}");
        }
    }
    assert_eq!(server.accepted(), 6);
}

#[tokio::test]
async fn errors_of_proxies_name_the_proxy_and_no_credential() {
    let ca = Ca::new();
    let server = tls_server(&ca).await.address.to_string();
    let (_unused, refusing) = crate::upstream::testing::refusing_address();
    for socks5 in [false, true] {
        let proxy = TestProxy::start(socks5, None).await;
        let scheme = if socks5 { "socks5" } else { "http" };
        let place = format!("{scheme}://{}", proxy.address);
        let wrong = format!("{scheme}://me:hunter2@{}", proxy.address);
        let refused = send_through(&wrong, &server, &ca).await.unwrap_err();
        assert!(refused.contains(&place) && !refused.contains("hunter2"), "{refused}");
        let unreachable = send_through(&place, &refusing.to_string(), &ca).await.unwrap_err();
        assert!(unreachable.contains("refuses to connect"), "{unreachable}");
    }
    let absent = send_through(&format!("http://a:hunter2@{refusing}"), &server, &ca).await;
    let absent = absent.unwrap_err();
    assert!(absent.contains("proxy") && !absent.contains("hunter2"), "{absent}");
    let bad = send_through("ftp://a:hunter2@b", &server, &ca).await.unwrap_err();
    assert!(bad.contains("proxy-url must begin") && !bad.contains("hunter2"), "{bad}");
}
