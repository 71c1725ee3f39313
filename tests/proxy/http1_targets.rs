//! Request targets over HTTP/1.1 that no library sends: Weir reads them as Go's server does, or
//! refuses them with a Status.

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use weir::simulator::{Rule, Simulator, SimulatorOptions, User};

use crate::client::{Call, within};
use crate::harness::{Proxy, as_gateway, seed};

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

/// Sends a request, and returns the status and the body of its answer.
async fn send(proxy: &Proxy, method: &str, target: &[u8], body: &str) -> (u16, String) {
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

async fn config_maps(proxy: &Proxy) -> Value {
    let call = Call::get(&format!("{COLLECTION}?limit=500"));
    let mut list = proxy.direct(&call.header("authorization", "Bearer alices")).await.json();
    list["items"].take()
}

/// Go reads `#` as part of the path or the query, where it makes a name or a value that does not
/// exist.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_number_sign_never_widens_a_write_of_http1() {
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
        ] {
            let body = if method == "PATCH" { r#"{"data":{"n":"9"}}"# } else { "" };
            let path = format!("{COLLECTION}{target}");
            let (status, answer) = send(&proxy, method, path.as_bytes(), body).await;
            assert_eq!(config_maps(&proxy).await, before, "{method} {target}: {answer}");
            assert!(matches!(status, 404 | 422), "{method} {target}: {status} {answer}");
        }
    }
}

/// Go serves these bytes as they are, and an answer to what cannot be carried is a Status.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn targets_that_go_serves_are_answered() {
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
            let (status, body) = send(&proxy, "GET", &path, "").await;
            assert_eq!(status, expected, "{}: {body}", target.escape_ascii());
            assert!(!body.is_empty(), "{}", target.escape_ascii());
        }
        let long = format!("{COLLECTION}?labelSelector={}", "a".repeat(70_000));
        let (status, body) = send(&proxy, "GET", long.as_bytes(), "").await;
        assert_eq!(status, 414, "{body}");
        assert!(body.contains(r#""kind":"Status""#), "{body}");
    }
}
