//! Request targets over HTTP/2 that no library sends: Weir reads them as Go's server does, or
//! refuses them.

use serde_json::Value;
use weir::simulator::{Rule, Simulator, SimulatorOptions, User};

use crate::client::within;
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

async fn send(proxy: &Proxy, method: &str, path: &[u8], body: &[u8]) -> Outcome {
    let patch: &[u8] = b"application/merge-patch+json";
    let fields = [("authorization", &b"Bearer alices"[..]), ("content-type", patch)];
    let head = raw_h2::head(method, path, &fields);
    within("an outcome", raw_h2::request(proxy.plain(), &head, body)).await
}

async fn config_maps(proxy: &Proxy) -> Value {
    let list = format!("{COLLECTION}?limit=500");
    let call = crate::client::Call::get(&list).header("authorization", "Bearer alices");
    let mut list = proxy.direct(&call).await.json();
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
            let body: &[u8] = if method == "PATCH" { br#"{"data":{"n":"9"}}"# } else { b"" };
            let outcome = send(&proxy, method, path.as_bytes(), body).await;
            assert_eq!(config_maps(&proxy).await, before, "{method} {target}: {outcome:?}");
            let Outcome::Answer { status, .. } = outcome else { panic!("{target}: {outcome:?}") };
            assert!(matches!(status, 404 | 422), "{method} {target}: {status}");
        }
    }
}

/// Bytes that `http::Uri` refuses, and Go's server takes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_bytes_are_read_as_by_go() {
    for proxy in proxies().await {
        for query in [&b"labelSelector=number>1"[..], b"x=<\"`\xFF\xC3 y", b"x=#"] {
            let path = [COLLECTION.as_bytes(), b"?", query].concat();
            let outcome = send(&proxy, "GET", &path, b"").await;
            assert!(matches!(outcome, Outcome::Answer { status: 200, .. }), "{outcome:?}");
        }
        for path in [&b"/api\0"[..], b"/api#\x01", b"api", b""] {
            let outcome = send(&proxy, "GET", path, b"").await;
            assert_eq!(outcome, Outcome::Reset(1), "{}", path.escape_ascii());
        }
        let long = format!("{COLLECTION}?labelSelector=app+in+({})", "x,".repeat(40_000));
        let outcome = send(&proxy, "GET", long.as_bytes(), b"").await;
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
