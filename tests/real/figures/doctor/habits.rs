//! Fifteen clients, each with the bad habit of one rule, which is its user. Beside it, each does
//! what keeps it clear of the other rules.

use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use http::Method;
use tokio::time::timeout;

use super::client::{Client, Who, read};

/// A client with a bad habit.
pub(super) struct Planted {
    pub(super) who: Who,
    /// Rules that the habit breaks too.
    pub(super) also: &'static [&'static str],
    pub(super) run: fn(Client) -> BoxFuture<'static, ()>,
}

impl Planted {
    fn new(rule: &'static str, run: fn(Client) -> BoxFuture<'static, ()>) -> Self {
        Self { who: Who::named(rule), also: &[], run }
    }

    /// The rule that is to find it.
    pub(super) fn rule(&self) -> &'static str {
        self.who.user
    }
}

/// Returns one for each rule.
pub(super) fn planted() -> [Planted; 15] {
    let mut clients = [
        Planted::new("poll-list", |client| lists(client, CONFIG_MAPS, 8).boxed()),
        Planted::new("unset-list", |client| unset_lists(client).boxed()),
        Planted::new("unpaged-list", |client| lists(client, "/api/v1/podtemplates", 75).boxed()),
        Planted::new("relist-loop", |client| relists(client).boxed()),
        Planted::new("poll-get", |client| gets(client).boxed()),
        Planted::new("watch-churn", |client| short_watches(client).boxed()),
        Planted::new("dead-watch", |client| dead_watches(client).boxed()),
        Planted::new("twin-watches", |client| twin_watches(client).boxed()),
        Planted::new("node-agent", |client| on_each_node(client).boxed()),
        Planted::new("retries", |client| evictions(client).boxed()),
        Planted::new("deprecated", |client| lists(client, ENDPOINTS, 60).boxed()),
        Planted::new("no-gzip", |client| lists(client, LARGE, 75).boxed()),
        Planted::new("json", |client| watch(client, CHANGING).boxed()),
        Planted::new("whole-objects", |client| objects_and_metadata(client).boxed()),
        Planted::new("no-agent", |client| many_watches(client).boxed()),
    ];
    for client in &mut clients {
        match client.rule() {
            // It gives up each watch that is not answered with 410, which then is short.
            "dead-watch" => client.also = &["watch-churn"],
            "no-gzip" => client.who.takes_gzip = false,
            "json" => {
                client.who.agent = "json/v1.2.0 (linux/amd64) kubernetes/4f1e2d3".to_owned();
                // A typed client; a dynamic one accepts nothing else.
                client.who.accept = "application/json, */*";
            }
            "no-agent" => client.who.agent = String::new(),
            _ => {}
        }
    }
    clients
}

/// Lists again and again over one connection.
async fn lists(mut client: Client, path: &'static str, seconds: u64) {
    loop {
        client.call(Method::GET, path, String::new()).await;
        pause(seconds).await;
    }
}

/// Keeps a watch open.
async fn watch(mut client: Client, path: impl AsRef<str>) {
    loop {
        if let Some(response) = client.get(path.as_ref()).await {
            read(response).await;
        }
        pause(1).await;
    }
}

/// Lists over new connections, so that this is no loop of one informer, beside a watch.
async fn unset_lists(client: Client) {
    let path = "/api/v1/namespaces/default/events";
    let again = async {
        loop {
            client.reconnected().call(Method::GET, path, String::new()).await;
            pause(8).await;
        }
    };
    tokio::join!(watch(client.reconnected(), format!("{path}?watch=1&resourceVersion=0")), again);
}

async fn relists(client: Client) {
    tokio::join!(watch(client.reconnected(), WATCH), lists(client, CONFIG_MAPS, 20));
}

async fn gets(mut client: Client) {
    let path = "/api/v1/namespaces/default/configmaps/small-0?resourceVersion=0";
    loop {
        client.call(Method::GET, path, String::new()).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

async fn short_watches(client: Client) {
    watch(client, format!("{WATCH}&timeoutSeconds=15")).await;
}

/// Watches from a resourceVersion that no server knows any more.
async fn dead_watches(mut client: Client) {
    loop {
        let path = "/api/v1/namespaces/default/configmaps?watch=1&resourceVersion=1";
        if let Some(response) = client.get(path).await {
            // A watch that begins before the gateway has a cache is forwarded, and goes on.
            drop(timeout(DEAD_WITHIN, read(response)).await);
        }
        pause(20).await;
    }
}

/// Watches the same four times over one connection.
async fn twin_watches(mut client: Client) {
    loop {
        let mut open = Vec::new();
        for _ in 0..4 {
            open.extend(client.get(WATCH).await);
        }
        join_all(open.into_iter().map(read)).await;
        pause(1).await;
    }
}

/// Watches all pods on each of twelve nodes.
async fn on_each_node(client: Client) {
    let nodes = (1..=12).map(|node| client.on([127, 0, 0, node]));
    join_all(nodes.map(|client| watch(client, "/api/v1/pods?watch=1&resourceVersion=0"))).await;
}

/// Evicts a pod again and again, which its disruption budget forbids for now: the API server
/// answers 429 with `Retry-After: 10`.
async fn evictions(mut client: Client) {
    let path = "/api/v1/namespaces/default/pods/guarded/eviction";
    let body = r#"{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"guarded","namespace":"default"}}"#;
    loop {
        let status = client.call(Method::POST, path, body.to_owned()).await;
        assert!(matches!(status, Some(429) | None), "the eviction was not refused: {status:?}");
        pause(3).await;
    }
}

/// Has an informer of metadata, and reads the same as whole objects once.
async fn objects_and_metadata(mut client: Client) {
    client.call(Method::GET, "/api/v1/podtemplates?resourceVersion=0", String::new()).await;
    client.who.accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    watch(client, "/api/v1/podtemplates?watch=1&resourceVersion=0").await;
}

/// Has informers of twelve resources.
async fn many_watches(client: Client) {
    let watched = WATCHED.map(|path| format!("{path}?watch=1&resourceVersion=0"));
    join_all(watched.map(|path| watch(client.reconnected(), path))).await;
}

async fn pause(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

const DEAD_WITHIN: Duration = Duration::from_secs(5);
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps?resourceVersion=0";
const WATCH: &str = "/api/v1/namespaces/default/configmaps?watch=1&resourceVersion=0";
const ENDPOINTS: &str = "/api/v1/namespaces/default/endpoints?resourceVersion=0";
const LARGE: &str = "/api/v1/namespaces/large/configmaps?resourceVersion=0";
const CHANGING: &str = "/api/v1/namespaces/changing/configmaps?watch=1&resourceVersion=0";
const WATCHED: [&str; 12] = [
    "/api/v1/configmaps",
    "/api/v1/services",
    "/api/v1/nodes",
    "/api/v1/namespaces",
    "/api/v1/serviceaccounts",
    "/api/v1/replicationcontrollers",
    "/apis/apps/v1/deployments",
    "/apis/apps/v1/replicasets",
    "/apis/apps/v1/statefulsets",
    "/apis/apps/v1/daemonsets",
    "/apis/batch/v1/jobs",
    "/apis/batch/v1/cronjobs",
];
