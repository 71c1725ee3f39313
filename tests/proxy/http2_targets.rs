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
