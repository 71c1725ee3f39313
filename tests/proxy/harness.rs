//! A whole Weir in-process before a simulator, over real sockets.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use weir::app::App;
use weir::app::reload::ConfigSource;
use weir::config::GATEWAY_FLOW_CONTROL;
use weir::config::resolve::Overrides;
use weir::config::seams::Seams;
use weir::config::{CertificateConfig, Config, ListenerConfig, Mode, ProxyNetworks};
use weir::server::{BoundListener, ListenerKind};
use weir::simulator::{Rule, Simulator, SimulatorOptions, User};

use crate::client::{self, Answer, Call, Watch, within};
use crate::wait::eventually;

/// A pod of [`seed`].
pub(crate) const POD: &str = "/api/v1/namespaces/ns1/pods/pod-0";

const CONFIG_FILE: &str = "weir.yaml";

/// A running Weir and its upstream. Dropping it stops both.
pub(crate) struct Proxy {
    /// Several Weirs may share it.
    pub(crate) upstream: Arc<Simulator>,
    pub(crate) listeners: Vec<BoundListener>,
    pub(crate) stop: CancellationToken,
    pub(crate) running: Option<JoinHandle<()>>,
    pub(crate) dir: TempDir,
    /// The configuration of the start.
    pub(crate) config: Config,
    /// Has the configuration read again.
    pub(crate) hangup: Arc<Notify>,
    admin: SocketAddr,
}

impl Proxy {
    /// Starts Weir with the usual settings in front of a seeded upstream.
    pub(crate) async fn seeded() -> Self {
        let upstream = Simulator::start(SimulatorOptions::default()).await.unwrap();
        seed(&upstream);
        Self::before(upstream, "", |_| {}).await
    }

    /// Starts Weir in front of this upstream, and waits until discovery is known; the token is
    /// Weir's identity.
    pub(crate) async fn before(
        upstream: impl Into<Arc<Simulator>>,
        token: &str,
        adjust: impl FnOnce(&mut Config),
    ) -> Self {
        Self::before_with(Seams::default(), upstream, token, adjust).await
    }

    /// Works like [`Proxy::before`] with other constants.
    pub(crate) async fn before_with(
        seams: Seams,
        upstream: impl Into<Arc<Simulator>>,
        token: &str,
        adjust: impl FnOnce(&mut Config),
    ) -> Self {
        let proxy = Self::start_with(seams, upstream, token, adjust).await;
        eventually("discovery is known", async || {
            proxy.admin("/readyz/discovery").await.status == 200
        })
        .await;
        proxy
    }

    /// Starts Weir like [`Proxy::before`], and does not wait: the upstream may be away.
    pub(crate) async fn start(
        upstream: impl Into<Arc<Simulator>>,
        token: &str,
        adjust: impl FnOnce(&mut Config),
    ) -> Self {
        Self::start_with(Seams::default(), upstream, token, adjust).await
    }

    async fn start_with(
        seams: Seams,
        upstream: impl Into<Arc<Simulator>>,
        token: &str,
        adjust: impl FnOnce(&mut Config),
    ) -> Self {
        let upstream = upstream.into();
        let dir = tempfile::tempdir().unwrap();
        let kubeconfig = dir.path().join("upstream.kubeconfig");
        std::fs::write(&kubeconfig, upstream.kubeconfig(token)).unwrap();
        let mut config = Config::default();
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        config.upstream.kubeconfig = Some(kubeconfig);
        config.admin.listen = Some(any);
        config.server.listeners = vec![
            ListenerConfig::Plain { address: any, proxies: ProxyNetworks::default() },
            ListenerConfig::Tls {
                address: any,
                certificate: CertificateConfig::Generated { names: Vec::new() },
                proxies: ProxyNetworks::default(),
            },
            ListenerConfig::Unix { path: dir.path().join("weir.sock") },
        ];
        config.server.shutdown_timeout = Duration::from_secs(5);
        adjust(&mut config);
        let source = ConfigSource {
            path: dir.path().join(CONFIG_FILE),
            text: config.to_yaml(),
            overrides: Overrides::default(),
            poll_interval: Duration::from_millis(100),
        };
        std::fs::write(&source.path, &source.text).unwrap();
        let app = Box::pin(App::start(config.clone(), seams)).await.unwrap();
        let listeners = app.listeners().to_vec();
        let admin = app.admin_address().unwrap();
        app.write_kubeconfig(&dir.path().join("kubeconfig")).unwrap();
        let stop = CancellationToken::new();
        let hangup = Arc::new(Notify::new());
        let reloading = app.reloader(source, None).run(Arc::clone(&hangup));
        let serving = app.run(stop.clone());
        let running = Some(tokio::spawn(async move {
            tokio::select! {
                () = serving => {}
                never = reloading => match never {},
            }
        }));
        Self { upstream, listeners, stop, running, dir, config, hangup, admin }
    }

    /// Returns the file of the configuration.
    pub(crate) fn config_file(&self) -> PathBuf {
        self.dir.path().join(CONFIG_FILE)
    }

    /// Returns the address of the plain listener.
    pub(crate) fn plain(&self) -> SocketAddr {
        self.address(ListenerKind::Plain)
    }

    /// Returns the first listener of a kind that has an address.
    pub(crate) fn address(&self, kind: ListenerKind) -> SocketAddr {
        let listener = self.listeners.iter().find(|listener| listener.kind == kind).unwrap();
        listener.address.parse().unwrap()
    }

    /// Sends a GET through Weir.
    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.call(&Call::get(path)).await
    }

    /// Sends a request through Weir.
    pub(crate) async fn call(&self, call: &Call) -> Answer {
        client::fetch(self.plain(), call).await
    }

    /// Sends a request to the upstream directly.
    pub(crate) async fn direct(&self, call: &Call) -> Answer {
        client::fetch(self.upstream.address(), call).await
    }

    /// Opens a watch through Weir.
    pub(crate) async fn watch(&self, path: &str) -> Watch {
        Watch::open(self.plain(), &Call::get(path)).await
    }

    /// Opens a watch at the upstream directly.
    pub(crate) async fn watch_direct(&self, path: &str) -> Watch {
        Watch::open(self.upstream.address(), &Call::get(path)).await
    }

    /// Sends a GET to the admin listener.
    pub(crate) async fn admin(&self, path: &str) -> Answer {
        client::fetch(self.admin, &Call::get(path)).await
    }

    /// Returns the address of the admin listener.
    pub(crate) fn admin_address(&self) -> SocketAddr {
        self.admin
    }

    /// Returns the sum of a metric over the series that have all of the labels, such as
    /// `cache_status="hit"`.
    pub(crate) async fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        let text = self.admin("/metrics").await.text();
        text.lines()
            .filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])))
            .filter(|line| labels.iter().all(|label| line.contains(label)))
            .filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok())
            .sum()
    }

    /// Waits until a list from any resourceVersion comes from the cache.
    pub(crate) async fn warm(&self, path: &str) {
        let separator = if path.contains('?') { '&' } else { '?' };
        let list = format!("{path}{separator}resourceVersion=0");
        eventually("the cache is warm", async || self.get(&list).await.cache() == "hit").await;
    }

    /// Waits until the cache of a collection has the upstream's last write, which must be one of
    /// that collection.
    pub(crate) async fn catch_up(&self, path: &str) {
        let list = format!("{path}?resourceVersion={}", self.upstream.store().revision());
        eventually("weir has it all", async || self.get(&list).await.cache() == "hit").await;
    }

    /// Waits until a cache of a resource has its watch open, which its first reads do not wait for.
    pub(crate) async fn until_watched(&self, resource: &str) {
        let labels = [&*format!("resource=\"{resource}\""), "state=\"watching\""];
        eventually("the watch is open", async || {
            self.metric("weir_reflector_state", &labels).await > 0.0
        })
        .await;
    }

    /// Stops Weir and waits for its end.
    pub(crate) async fn stop(&mut self) {
        self.stop.cancel();
        let running = self.running.take().unwrap();
        within("weir stops", running).await.unwrap();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Makes a configuration a gateway's, with the mode of flow control that one has by default.
pub(crate) fn as_gateway(config: &mut Config) {
    config.authentication.mode = Mode::Gateway;
    config.flow_control.mode = GATEWAY_FLOW_CONTROL;
}

/// Starts an upstream with the usual objects and these users.
pub(crate) async fn upstream_of(users: Vec<User>) -> Simulator {
    let options = SimulatorOptions { users, ..SimulatorOptions::default() };
    let upstream = Simulator::start(options).await.unwrap();
    seed(&upstream);
    upstream
}

/// Returns Weir's own user, Alice, whom `rules` allow, and Bob, who may do nothing.
pub(crate) fn alice_and_bob(rules: Vec<Rule>) -> Vec<User> {
    let alice = User::with_rules("alices", "alice", rules);
    vec![User::admin("weirs-own", "weir"), alice, User::with_rules("bobs", "bob", Vec::new())]
}

/// Starts a Weir with the usual settings whose upstream uses TLS: it speaks HTTP/2, and all streams
/// share connections.
pub(crate) async fn over_tls() -> Proxy {
    let options = SimulatorOptions { tls: true, ..SimulatorOptions::default() };
    let upstream = Simulator::start(options).await.unwrap();
    seed(&upstream);
    Proxy::before(upstream, "", |_| {}).await
}

/// Objects whose names, labels and namespaces show errors of order and selection (docs/semantics.md
/// §3.1).
pub(crate) fn seed(upstream: &Simulator) {
    let api = upstream.store();
    for namespace in ["ns1", "ns1-a", "ns2"] {
        let object =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        api.create(object).unwrap();
        for (number, name) in ["cm-a", "cm-b", "cm-d-x", "cm-d.x"].into_iter().enumerate() {
            api.create(configmap(namespace, name, number)).unwrap();
        }
        for number in 0..3 {
            api.create(pod(namespace, &format!("pod-{number}"), &format!("node-{number}")))
                .unwrap();
        }
    }
    for number in 0..2 {
        let name = format!("node-{number}");
        let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        api.create(object).unwrap();
    }
    api.create(json!({"apiVersion": "v1", "kind": "Endpoints",
        "metadata": {"name": "old", "namespace": "ns1"}}))
        .unwrap();
    api.create(widgets()).unwrap();
    for name in ["w1", "w2"] {
        api.create(widget("ns1", name, "red")).unwrap();
    }
}

pub(crate) fn configmap(namespace: &str, name: &str, number: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace,
            "labels": {"number": number.to_string(), "app": if number.is_multiple_of(2) { "even" } else { "odd" }}},
        "data": {"text": "<a&b>\u{2028}ü", "n": number.to_string()},
    })
}

pub(crate) fn pod(namespace: &str, name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"node": node}},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "none"}]},
    })
}

/// The CRD of [`widget`]s.
pub(crate) fn widgets() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "selectableFields": [{"jsonPath": ".spec.color"}],
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    })
}

pub(crate) fn widget(namespace: &str, name: &str, color: &str) -> Value {
    json!({
        "apiVersion": "example.com/v1", "kind": "Widget",
        "metadata": {"name": name, "namespace": namespace}, "spec": {"color": color},
    })
}
