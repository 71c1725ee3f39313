//! The demo's own clients: two controllers with informers, kubelets, a person with kubectl, and a
//! script that lists everything each second.
//!
//! A kubelet watches its pods, and reads its node each ten seconds at resourceVersion 0, as real
//! ones do before they write its status: so the cache has requests to answer.
//!
//! They speak HTTP over the plain listener, as any client does. The script has the habits that
//! Weir's doctor finds; the others have none.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::{Buf, BytesMut};
use http::StatusCode;
use http_body_util::BodyExt;
use jiff::Timestamp;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::cli::demo::delays::Delays;
use crate::cli::http::Connection;

/// Starts the clients, which run until the set is dropped. The delays of events are those of node
/// leases, which contain the time of their change.
pub(super) fn start(address: SocketAddr, nodes: u32, delays: &Arc<Delays>) -> JoinSet<()> {
    let mut clients = JoinSet::new();
    for (agent, collection) in CONTROLLERS {
        let informer = Informer::new(address, agent, collection, "");
        clients.spawn(informer.run(Arc::clone(delays)));
    }
    for node in 1..=nodes.min(KUBELETS_MAX) {
        let selector = format!("fieldSelector=spec.nodeName%3Dnode-{node:04}&");
        let informer = Informer::new(address, KUBELET, "/api/v1/pods", &selector);
        clients.spawn(informer.run(Arc::clone(delays)));
        // Not all at the same moment.
        let first = Duration::from_millis(fastrand::u64(500..10_000));
        let path = format!("/api/v1/nodes/node-{node:04}?resourceVersion=0");
        let reads =
            Repeated { agent: KUBELET, path, accept: JSON, first, interval: STATUS_INTERVAL };
        clients.spawn(reads.run(address));
    }
    let first = Duration::ZERO;
    for (agent, path, accept, seconds) in [
        (SCRIPT, "/api/v1/pods", JSON, 1),
        (KUBECTL, "/api/v1/namespaces/shop/pods?limit=500", TABLE, 5),
    ] {
        let (path, interval) = (path.to_owned(), Duration::from_secs(seconds));
        clients.spawn(Repeated { agent, path, accept, first, interval }.run(address));
    }
    clients
}

/// A client that lists once and then watches, as client-go's reflector does.
struct Informer {
    address: SocketAddr,
    agent: &'static str,
    collection: &'static str,
    selector: String,
}

impl Informer {
    fn new(
        address: SocketAddr,
        agent: &'static str,
        collection: &'static str,
        selector: &str,
    ) -> Self {
        Self { address, agent, collection, selector: selector.to_owned() }
    }

    async fn run(self, delays: Arc<Delays>) {
        // Not all at the same moment.
        tokio::time::sleep(Duration::from_millis(fastrand::u64(..500))).await;
        let mut connection = None;
        loop {
            if let Err(error) = self.follow(&mut connection, &delays).await {
                tracing::debug!(agent = self.agent, %error, "a client of the demo begins again");
                connection = None;
            }
            tokio::time::sleep(RETRY_DELAY).await;
        }
    }

    /// Lists, and follows the changes until that fails.
    async fn follow(
        &self,
        connection: &mut Option<Connection>,
        delays: &Delays,
    ) -> anyhow::Result<()> {
        let Self { address, agent, collection, selector } = self;
        let connection = match connection {
            Some(connection) => connection,
            None => connection.insert(Connection::open(&address.to_string(), agent).await?),
        };
        let path = format!("{collection}?{selector}resourceVersion=0");
        let (status, list) = connection.read(&path, JSON, LIST_BYTES_MAX).await?;
        if status != StatusCode::OK {
            bail!("the list was answered with {status}");
        }
        let list: Value = serde_json::from_slice(&list)?;
        let mut version = resource_version(&list).context("a list without a version")?;
        loop {
            let options = "allowWatchBookmarks=true&timeoutSeconds=300&watch=true";
            let path = format!("{collection}?{selector}{options}&resourceVersion={version}");
            let response = connection.get(&path, JSON).await?;
            if response.status() != StatusCode::OK {
                bail!("the watch was answered with {}", response.status());
            }
            let mut body = response.into_body();
            let mut unread = BytesMut::new();
            while let Some(frame) = body.frame().await {
                let Ok(data) = frame?.into_data() else { continue };
                unread.extend_from_slice(&data);
                while let Some(end) = memchr::memchr(b'\n', &unread) {
                    let event: Value = serde_json::from_slice(&unread.split_to(end))?;
                    unread.advance(1);
                    version = note(&event, delays)?;
                }
                if unread.len() > EVENT_BYTES_MAX {
                    bail!("an event is too long");
                }
            }
        }
    }
}

/// Notes the delay of an event, and returns the resourceVersion from which a watch resumes.
fn note(event: &Value, delays: &Delays) -> anyhow::Result<String> {
    if event.get("type").and_then(Value::as_str) == Some("ERROR") {
        bail!("the watch ended with an error");
    }
    let object = event.get("object").context("an event without an object")?;
    if let Some(renewed) = object.pointer("/spec/renewTime").and_then(Value::as_str) {
        let late = Timestamp::now().duration_since(renewed.parse()?);
        delays.add(Duration::try_from(late).unwrap_or_default());
    }
    resource_version(object).context("an event without a version")
}

fn resource_version(object: &Value) -> Option<String> {
    object.pointer("/metadata/resourceVersion")?.as_str().map(str::to_owned)
}

/// A client that sends the same request again and again.
struct Repeated {
    agent: &'static str,
    path: String,
    accept: &'static str,
    /// When the first one is sent.
    first: Duration,
    interval: Duration,
}

impl Repeated {
    async fn run(self, address: SocketAddr) {
        let Self { agent, path, accept, first, interval } = self;
        let mut ticks = tokio::time::interval_at(Instant::now() + first, interval);
        let mut connection = None;
        loop {
            ticks.tick().await;
            let once = async {
                let connection = match &mut connection {
                    Some(connection) => connection,
                    None => connection.insert(Connection::open(&address.to_string(), agent).await?),
                };
                connection.read(&path, accept, LIST_BYTES_MAX).await
            };
            if let Err(error) = once.await {
                tracing::debug!(agent, %error, "a client of the demo begins again");
                connection = None;
            }
        }
    }
}

/// The controllers: their agents, and what they follow.
const CONTROLLERS: [(&str, &str); 4] = [
    (CONTROLLER_MANAGER, "/apis/coordination.k8s.io/v1/leases"),
    (CONTROLLER_MANAGER, "/apis/apps/v1/deployments"),
    (AUTOSCALER, "/api/v1/nodes"),
    (AUTOSCALER, "/api/v1/pods"),
];
const CONTROLLER_MANAGER: &str = "demo-controller-manager/1.0";
const AUTOSCALER: &str = "demo-autoscaler/1.0";
const KUBELET: &str = "demo-kubelet/1.0";
const KUBECTL: &str = "kubectl/v1.36.2 (linux/amd64) kubernetes/4f1e2d3";
/// The agent of every program that uses the Python client.
const SCRIPT: &str = "OpenAPI-Generator/37.0.2/python";
const JSON: &str = "application/json";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
/// The interval at which a kubelet writes the status of its node.
const STATUS_INTERVAL: Duration = Duration::from_secs(10);
/// Each has a connection with a watch, and one for its node.
const KUBELETS_MAX: u32 = 20;
/// The list of the most pods that the demo can have.
const LIST_BYTES_MAX: usize = 1 << 30;
/// The largest object that etcd takes, twice.
const EVENT_BYTES_MAX: usize = 3 << 20;
const RETRY_DELAY: Duration = Duration::from_secs(1);
