//! Request targets that no library sends: over both protocols Weir reads them as Go's server does,
//! or refuses them.

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use weir::simulator::{Rule, Simulator, SimulatorOptions, User};

use crate::client::{Call, within};
use crate::harness::{Proxy, as_gateway, seed};
use crate::raw_h2::{self, Outcome};

const COLLECTION: &str = "/api/v1/namespaces/ns1/configmaps";

/// Both modes: the requests have a token, which a sidecar does not need.
async fn proxies() -> [Proxy; 2] {
    let rules = vec![Rule::new(&["*"], &["*"], &["ns1"])];
    let users = vec![User::admin("weirs-own", "weir"), User::with_rules("alices", "alice", rules)];
    let start = async |gateway: bool| {
        let options = SimulatorOptions { users: users.clone(), ..SimulatorOptions::default() };
        let upstream = Simulator::start(options).await.unwrap();
        seed(&upstream);
        Proxy::before(upstream, "weirs-own", |config| {
            if gateway {
                as_gateway(config);
            }
        })
        .await
    };
    [start(false).await, start(true).await]
}

/// Sends a request over HTTP/1.1, and returns the status and the body of its answer.
async fn send_http1(proxy: &Proxy, method: &str, target: &[u8], body: &str) -> (u16, String) {
    let fields = format!(
        " HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer alices\r\nConnection: close\r\n\
         Content-Type: application/merge-patch+json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let bytes = [method.as_bytes(), b" ", target, fields.as_bytes()].concat();
    let mut tcp = TcpStream::connect(proxy.plain()).await.unwrap();
    tcp.write_all(&bytes).await.unwrap();
    let mut answer = Vec::new();
    within("an answer", tcp.read_to_end(&mut answer)).await.unwrap();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer:?}"));
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

async fn send_http2(proxy: &Proxy, method: &str, path: &[u8], body: &[u8]) -> Outcome {
    let patch: &[u8] = b"application/merge-patch+json";
    let fields = [("authorization", &b"Bearer alices"[..]), ("content-type", patch)];
    let head = raw_h2::head(method, path, &fields);
    within("an outcome", raw_h2::request(proxy.plain(), &head, body)).await
}

async fn config_maps(proxy: &Proxy) -> Value {
    let call = Call::get(&format!("{COLLECTION}?limit=500"));
    let mut list = proxy.direct(&call.header("authorization", "Bearer alices")).await.json();
    list["items"].take()
}

/// Go reads `#` as part of the path or the query, where it makes a name or a value that does not
/// exist.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_number_sign_never_widens_a_write() {
    for proxy in proxies().await {
        let before = config_maps(&proxy).await;
        assert_eq!(before.as_array().unwrap().len(), 4);
        for (method, target) in [
            ("DELETE", "/#"),
            ("DELETE", "/#x?dryRun=All"),
            ("DELETE", "#"),
            ("DELETE", "#x?dryRun=All"),
            ("DELETE", "/cm-a#x?dryRun=All"),
            ("DELETE", "/cm-a#"),
            ("DELETE", "?dryRun=All#"),
            ("DELETE", "/cm-a?dryRun=All#"),
            ("PATCH", "/cm-a#?dryRun=All"),
            ("PATCH", "/cm-a?dryRun=All#y"),
            ("GET", "#frag"),
            ("GET", "/cm-a#frag"),
        ] {
            let path = format!("{COLLECTION}{target}");
            let body = if method == "PATCH" { r#"{"data":{"n":"9"}}"# } else { "" };
            let (http1, answer) = send_http1(&proxy, method, path.as_bytes(), body).await;
            assert_eq!(config_maps(&proxy).await, before, "{method} {target}: {answer}");
            assert!(matches!(http1, 404 | 422), "{method} {target}: {http1} {answer}");
            let outcome = send_http2(&proxy, method, path.as_bytes(), body.as_bytes()).await;
            assert_eq!(config_maps(&proxy).await, before, "{method} {target}: {outcome:?}");
            let Outcome::Answer { status: http2, .. } = outcome else { panic!("{outcome:?}") };
            assert_eq!(http2, http1, "{method} {target}");
        }
    }
}

/// Go serves these bytes as they are, and an answer to what cannot be carried is a Status.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_bytes_of_http1_are_read_as_by_go() {
    for proxy in proxies().await {
        for (target, expected) in [
            (&b"#frag"[..], 404),
            (b"/cm-a#frag", 404),
            (b"?labelSelector=num>10", 200),
            (b"?limit=5&x=\"<>`{}|\\^\xFF\xC3\xBC", 200),
            (b"/\xFF", 404),
            (b"/<>", 404),
            (b"/%zz", 400),
            (b"/\x01", 400),
        ] {
            let path = [COLLECTION.as_bytes(), target].concat();
            let (status, body) = send_http1(&proxy, "GET", &path, "").await;
            assert_eq!(status, expected, "{}: {body}", target.escape_ascii());
            assert!(!body.is_empty(), "{}", target.escape_ascii());
        }
        let long = format!("{COLLECTION}?labelSelector={}", "a".repeat(70_000));
        let (status, body) = send_http1(&proxy, "GET", long.as_bytes(), "").await;
        assert_eq!(status, 414, "{body}");
        assert!(body.contains(r#""kind":"Status""#), "{body}");
    }
}

/// Bytes that `http::Uri` refuses, and Go's server takes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_bytes_of_http2_are_read_as_by_go() {
    for proxy in proxies().await {
        for query in [&b"labelSelector=number>1"[..], b"x=<\"`\xFF\xC3 y", b"x=#"] {
            let path = [COLLECTION.as_bytes(), b"?", query].concat();
            let outcome = send_http2(&proxy, "GET", &path, b"").await;
            assert!(matches!(outcome, Outcome::Answer { status: 200, .. }), "{outcome:?}");
        }
        for path in [&b"/api\0"[..], b"/api#\x01", b"api", b""] {
            let outcome = send_http2(&proxy, "GET", path, b"").await;
            assert_eq!(outcome, Outcome::Reset(1), "{}", path.escape_ascii());
        }
        let long = format!("{COLLECTION}?labelSelector=app+in+({})", "x,".repeat(40_000));
        let outcome = send_http2(&proxy, "GET", long.as_bytes(), b"").await;
        let Outcome::Answer { status: 414, body } = outcome else { panic!("{outcome:?}") };
        let status: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((&status["kind"], &status["code"]), (&"Status".into(), &414.into()));
    }
}

/// Go does not read the `Host` of HTTP/2. A sidecar refuses every name that it does not know.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_authority_may_have_any_bytes_in_a_gateway() {
    let [sidecar, gateway] = proxies().await;
    for (authority, in_sidecar) in [(&b"a b"[..], 403), (b"\xFF", 403), (b"", 400)] {
        for (proxy, expected) in [(&sidecar, in_sidecar), (&gateway, 200)] {
            let mut head = vec![0x82, 0x86];
            for (name, value) in [
                (":path", COLLECTION.as_bytes()),
                (":authority", authority),
                ("authorization", b"Bearer alices"),
            ] {
                head.push(0);
                raw_h2::string(name.as_bytes(), &mut head);
                raw_h2::string(value, &mut head);
            }
            let outcome = within("an outcome", raw_h2::request(proxy.plain(), &head, b"")).await;
            let Outcome::Answer { status, .. } = outcome else { panic!("{outcome:?}") };
            assert_eq!(status, expected, "{}", authority.escape_ascii());
        }
    }
}
