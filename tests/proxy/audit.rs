//! The audit log of a gateway: each response of Weir's own is logged once, with user and result,
//! and no response of the upstream is.

use std::path::Path;

use serde_json::Value;
use weir::config::{AuditOutput, AuditRule};
use weir::simulator::Rule;

use crate::client::{Call, Watch};
use crate::harness::{Proxy, alice_and_bob, as_gateway, upstream_of};
use crate::wait::eventually;

const LIST: &str = "/api/v1/namespaces/ns1/configmaps?resourceVersion=0";
const WATCH: &str = "/api/v1/namespaces/ns1/configmaps?resourceVersion=0&watch=1&timeoutSeconds=1";

/// Asks for discovery in one document, which Weir keeps.
const DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

async fn gateway(log: &Path) -> Proxy {
    let read = Rule::new(&["get", "list", "watch"], &["configmaps"], &["ns1"]);
    let upstream = upstream_of(alice_and_bob(vec![read])).await;
    Proxy::before(upstream, "weirs-own", |config| {
        as_gateway(config);
        config.audit.output = Some(AuditOutput::File(log.to_owned()));
        config.audit.policy.rules = vec![AuditRule::default()];
    })
    .await
}

fn call(path: &str, token: &str, id: &str) -> Call {
    Call::get(path).header("authorization", &format!("Bearer {token}")).header("audit-id", id)
}

/// Waits for `count` events and returns those with an Audit-ID.
async fn events(log: &Path, id: &str, count: usize) -> Vec<Value> {
    let read = || {
        let text = std::fs::read_to_string(log).unwrap_or_default();
        let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        events.filter(|event| event["auditID"] == id).collect::<Vec<_>>()
    };
    eventually("the request is logged", async || read().len() >= count).await;
    read()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_response_of_weirs_own_is_audited_once() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("audit.log");
    let proxy = gateway(&log).await;
    eventually("the cache is warm", async || {
        proxy.call(&call(LIST, "alices", "warm")).await.cache() == "hit"
    })
    .await;

    let answer = proxy.call(&call(LIST, "alices", "a-list")).await;
    assert_eq!((answer.cache(), answer.headers["audit-id"].to_str().unwrap()), ("hit", "a-list"));
    let logged = events(&log, "a-list", 1).await;
    assert_eq!(logged.len(), 1);
    let event = &logged[0];
    for (pointer, value) in [
        ("/kind", "Event"),
        ("/apiVersion", "audit.k8s.io/v1"),
        ("/level", "Metadata"),
        ("/stage", "ResponseComplete"),
        ("/verb", "list"),
        ("/requestURI", LIST),
        ("/user/username", "alice"),
        ("/objectRef/resource", "configmaps"),
        ("/objectRef/namespace", "ns1"),
        ("/annotations/authorization.k8s.io~1decision", "allow"),
    ] {
        assert_eq!(event.pointer(pointer).and_then(Value::as_str), Some(value), "{pointer}");
    }
    assert_eq!(event["responseStatus"]["code"], 200);

    // A watch is logged at its head and at its end.
    let mut watch = Watch::open(proxy.plain(), &call(WATCH, "alices", "a-watch")).await;
    watch.rest().await;
    let stages: Vec<_> = events(&log, "a-watch", 2).await;
    let stages: Vec<_> = stages.iter().map(|event| event["stage"].as_str().unwrap()).collect();
    assert_eq!(stages, ["ResponseStarted", "ResponseComplete"]);

    for (token, id, code, user) in
        [("bobs", "a-no", 403, Some("bob")), ("nobodys", "a-stranger", 401, None)]
    {
        assert_eq!(proxy.call(&call(LIST, token, id)).await.status.as_u16(), code);
        let logged = events(&log, id, 1).await;
        assert_eq!(logged.len(), 1, "{id}");
        assert_eq!(logged[0]["responseStatus"]["code"], code, "{id}");
        assert_eq!(logged[0]["user"]["username"].as_str(), user, "{id}");
    }

    // Weir rejects these itself, so only Weir can log them.
    let odd = call(LIST, "alices", "a-trick").header("connection", "x-remote-user");
    let odd = odd.header("x-weir-cache", "bypass");
    assert_eq!(proxy.call(&odd).await.status, 400);
    assert_eq!(events(&log, "a-trick", 1).await[0]["responseStatus"]["code"], 400);

    // Forwarded requests are in the upstream's log.
    let consistent = "/api/v1/namespaces/ns1/configmaps";
    assert_eq!(proxy.call(&call(consistent, "alices", "not-here")).await.status, 200);
    assert_eq!(proxy.call(&call(LIST, "alices", "the-last")).await.cache(), "hit");
    events(&log, "the-last", 1).await;
    assert_eq!(events(&log, "not-here", 0).await, Vec::<Value>::new());
    let text = std::fs::read_to_string(&log).unwrap();
    for secret in ["alices", "bobs", "nobodys", "weirs-own"] {
        assert!(!text.contains(&format!("{secret}\"")) && !text.contains("Bearer"), "{secret}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_document_from_memory_is_audited() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("audit.log");
    let proxy = gateway(&log).await;
    let apis = |id| call("/apis", "alices", id).header("accept", DISCOVERY);
    assert_eq!(proxy.call(&apis("fetched")).await.status, 200);
    assert_eq!(proxy.call(&apis("revalidated")).await.cache(), "hit");
    proxy.upstream.stop();
    let is_unverified =
        async || proxy.call(&apis("unverified")).await.cache().contains("upstream=away");
    eventually("the document is from memory", is_unverified).await;
    let logged = events(&log, "unverified", 1).await;
    let last = logged.last().unwrap();
    assert_eq!(last["responseStatus"]["code"], 200);
    assert_eq!(
        (&last["requestURI"], &last["user"]["username"]),
        (&"/apis".into(), &"alice".into())
    );
    assert_eq!(events(&log, "revalidated", 0).await, Vec::<Value>::new());
}
