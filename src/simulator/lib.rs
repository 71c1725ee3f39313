//! A small Kubernetes API server in-process: the upstream of `weir demo` and of the whole-proxy
//! tests.
//!
//! It answers as `docs/semantics.md` describes for kube-apiserver 1.36, as far as a caching proxy
//! and plain kubectl can observe: one revision over all resources, lists and watches with all their
//! resourceVersion rules, bookmarks, expiry, discovery, tables, and reviews, in JSON and in
//! protobuf. It stores everything in memory. It has no admission, no server-side apply, no graceful
//! deletion, and only the minimum of defaulting. Several API servers may be before the one store,
//! each with watch caches of its own, behind one address. It shares no parser with the proxy, so
//! that a misreading of Kubernetes does not cancel itself out in a test.
//!
//! Lock order: no two of its locks are held together.

#![expect(
    clippy::indexing_slicing,
    reason = "members are set in JSON objects that the simulator has just built"
)]

mod aggregation;
mod answer;
mod api;
mod authorizer;
mod balancer;
mod bootstrap;
mod cluster;
mod defaults;
mod discovery;
mod encode;
mod faults;
mod flights;
mod http;
mod identity;
mod json;
mod kinds;
mod list;
mod negotiate;
mod normalize;
mod object;
mod openapi;
mod options;
mod page;
mod patch;
mod pod;
mod protobuf;
mod raw_bytes;
mod render;
mod request;
mod request_log;
mod review;
mod router;
mod scale;
mod selector;
mod servers;
mod shard;
mod shared;
mod status;
mod store;
mod strategic_merge;
mod table;
mod tls;
mod token_request;
mod tokens;
mod watch;
mod websocket;
mod write;
mod writes;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use parking_lot::Mutex;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

pub use self::api::{Api, WriteError};
pub use self::balancer::Balancing;
pub use self::cluster::Cluster;
pub use self::faults::{Action, Cut, Damage, Fault, Faults};
pub use self::flights::Flight;
pub use self::options::{ClientCertificates, Rule, SimulatorOptions, User};
pub use self::raw_bytes::{json_byte, string_byte};
pub use self::request_log::{LoggedRequest, OpenWatch, RequestLog};
pub use self::store::{Recorded, Snapshot, Write};

use self::balancer::Balancer;
use self::identity::ClientCas;
use self::servers::Servers;
use self::shared::Shared;
use self::store::Store;
use self::tokens::Tokens;

/// A running simulator, which stops when it is dropped.
#[derive(Debug)]
pub struct Simulator {
    shared: Arc<Shared>,
    address: SocketAddr,
    tls: Option<Tls>,
    running: Mutex<CancellationToken>,
}

struct Tls {
    acceptor: TlsAcceptor,
    ca_pem: String,
}

impl Simulator {
    /// Starts to listen and serve, with the namespaces that every cluster has.
    pub async fn start(options: SimulatorOptions) -> io::Result<Self> {
        let listener = TcpListener::bind(options.listen).await?;
        let simulator = Self::new(options, listener.local_addr()?)?;
        simulator.serve(listener);
        Ok(simulator)
    }

    /// Starts to serve without a listener: connections come from [`accept`](Self::accept).
    pub fn without_listener(options: SimulatorOptions) -> io::Result<Self> {
        let address = options.listen;
        Self::new(options, address)
    }

    /// Serves a connection of this process to one API server, counted from 0. Its client speaks no
    /// TLS. It is dropped by a [`stop`](Self::stop). Must be called in a tokio runtime.
    pub fn accept<S>(&self, stream: S, server: usize)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let stop = self.running.lock().clone();
        tokio::spawn(http::serve_one(stream, Arc::clone(&self.shared), server, stop));
    }

    fn new(options: SimulatorOptions, address: SocketAddr) -> io::Result<Self> {
        let tls = if options.tls {
            let (acceptor, ca_pem) = tls::acceptor(&options)?;
            Some(Tls { acceptor, ca_pem })
        } else {
            None
        };
        let certificates = options.client_certificates.as_ref();
        let shared = Arc::new(Shared {
            tokens: Tokens::default(),
            client_cas: certificates.map(ClientCas::new).transpose()?,
            store: Store::new(options.history_events_max, options.servers, options.records_writes),
            balancer: Balancer::new(options.servers),
            servers: Servers::default(),
            options,
            faults: Faults::default(),
            log: RequestLog::default(),
            aggregation: Default::default(),
            frozen: Default::default(),
        });
        bootstrap::bootstrap(&shared.store, shared.options.client_certificates.as_ref());
        Ok(Self { shared, address, tls, running: Mutex::default() })
    }

    /// Returns the base URL: `http://127.0.0.1:port`, or `https` with TLS.
    pub fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Returns the address that it listens on. A restart keeps the address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the PEM certificate of the CA that signed the server's certificate; `None` without
    /// TLS.
    pub fn ca_pem(&self) -> Option<&str> {
        self.tls.as_ref().map(|tls| tls.ca_pem.as_str())
    }

    /// Returns a kubeconfig for the holder of `token`, in JSON, which is valid YAML. An empty token
    /// means no credential.
    pub fn kubeconfig(&self, token: &str) -> String {
        let mut cluster = json!({"server": self.url()});
        if let Some(ca) = self.ca_pem() {
            let data = base64::engine::general_purpose::STANDARD.encode(ca);
            cluster["certificate-authority-data"] = data.into();
        }
        // kubectl prompts for a password over TLS if it has no credential. An open simulator
        // accepts any token.
        let open = self.shared.options.open();
        let token = if token.is_empty() && open { "anyone" } else { token };
        let user = if token.is_empty() { json!({}) } else { json!({"token": token}) };
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "simulator",
            "clusters": [{"name": "simulator", "cluster": cluster}],
            "users": [{"name": "simulator", "user": user}],
            "contexts": [{"name": "simulator",
                "context": {"cluster": "simulator", "user": "simulator"}}],
        });
        config.to_string()
    }

    /// Returns the log of received requests.
    pub fn requests(&self) -> &RequestLog {
        &self.shared.log
    }

    /// Returns the faults to inject.
    pub fn faults(&self) -> &Faults {
        &self.shared.faults
    }

    /// Returns a handle that reads and writes without HTTP, by the same rules and with the same
    /// events.
    pub fn store(&self) -> Api {
        Api::new(Arc::clone(&self.shared))
    }

    /// Discards all history: every resourceVersion before the present one expires. Running watches
    /// continue.
    pub fn compact(&self) {
        self.shared.store.compact();
    }

    /// Returns the present state, for [`rewind`](Self::rewind).
    pub fn snapshot(&self) -> Snapshot {
        self.shared.store.snapshot()
    }

    /// Returns to an earlier state, or to that of another simulator, as the restore of an etcd
    /// backup and another cluster at the address do: it sets the objects and the revision, discards
    /// the history, and ends all watches. No watch cache lags after it.
    pub fn rewind(&self, snapshot: &Snapshot) {
        self.shared.store.restore(snapshot);
    }

    /// Sets how connections are given to the API servers from now on.
    pub fn balance(&self, balancing: Balancing) {
        self.shared.balancer.set(balancing);
    }

    /// Serves one API server, counted from 0, at an address of its own besides the one behind the
    /// balancer; again at the same address after a [`stop_server`](Self::stop_server). Returns the
    /// address.
    pub async fn start_server(&self, server: usize) -> io::Result<SocketAddr> {
        let (listener, address, stop) = self.shared.servers.bind(server).await?;
        let acceptor = self.tls.as_ref().map(|tls| tls.acceptor.clone());
        let shared = Arc::clone(&self.shared);
        tokio::spawn(http::serve(listener, acceptor, shared, stop, Some(server)));
        Ok(address)
    }

    /// Stops one API server at its own address: it drops all connections and no longer listens.
    pub fn stop_server(&self, server: usize) {
        self.shared.servers.stop(server);
    }

    /// Lets `/readyz` of one API server say that it shuts down, until it is started again.
    pub fn drain_server(&self, server: usize) {
        self.shared.servers.drain(server);
    }

    /// Lets the watch caches of one API server, counted from 0, lag: they stay where they are.
    pub fn pause_caches(&self, server: usize) {
        self.shared.store.pause(server, true);
    }

    /// Lets the watch caches of one API server catch up, and follow the store again.
    pub fn resume_caches(&self, server: usize) {
        self.shared.store.pause(server, false);
    }

    /// Lets one API server, counted from 0, forget the history of its watch caches, as its restart
    /// does: they begin at the present revision, and its watches end.
    pub fn restart_caches(&self, server: usize) {
        self.shared.store.restart(server);
    }

    /// Lets the API servers go on with the definitions of custom resources that they know: an
    /// update of one is stored, and its watches show it, but it has no effect yet.
    pub fn hold_definitions(&self) {
        self.shared.store.hold_definitions(true);
    }

    /// Lets the API servers learn of all updated definitions: the watches of their resources end.
    pub fn release_definitions(&self) {
        self.shared.store.hold_definitions(false);
    }

    /// Returns what changed the store, from a position on, if
    /// [`records_writes`](SimulatorOptions::records_writes) is set.
    pub fn recorded_since(&self, position: usize) -> Vec<Recorded> {
        self.shared.store.recorded_since(position)
    }

    /// Ends all running watches cleanly.
    pub fn end_watches(&self) {
        self.shared.store.end_watches();
    }

    /// Freezes the servers, as SIGSTOP does: connections are accepted and carry nothing.
    pub fn freeze(&self) {
        self.shared.frozen.send_replace(true);
    }

    /// Ends a [`freeze`](Self::freeze). The requests that arrived meanwhile are processed.
    pub fn thaw(&self) {
        self.shared.frozen.send_replace(false);
    }

    /// Stops listening and drops all connections. The objects remain.
    pub fn stop(&self) {
        self.running.lock().cancel();
    }

    /// Serves again on the same address after a [`stop`](Self::stop).
    pub async fn restart(&self) -> io::Result<()> {
        self.stop();
        let mut tries = 0;
        let listener = loop {
            match TcpListener::bind(self.address).await {
                Ok(listener) => break listener,
                // The accept loop may not have released the port yet.
                Err(error) if tries == REBIND_TRIES => return Err(error),
                Err(_) => tries += 1,
            }
            tokio::time::sleep(REBIND_INTERVAL).await;
        };
        self.serve(listener);
        Ok(())
    }

    /// Registers a fixed response of an aggregated API server: the JSON body for a GET of `path`.
    /// The path of a group-version, such as `/apis/metrics.k8s.io/v1beta1` with an
    /// `APIResourceList`, also adds it to discovery and creates its APIService.
    pub fn add_aggregated(&self, path: &str, answer: serde_json::Value) {
        let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
        if let ["apis", group, version] = *segments.as_slice() {
            let service = Some(("kube-system", "aggregated"));
            write::register(&self.shared.store, group, version, service);
        }
        self.shared.aggregation.fixed.write().insert(path.to_owned(), answer);
    }

    /// Registers an aggregated API server for a group and version. While the APIService names a
    /// service, `answer` is called with the user and the path of each request: the JSON body for a
    /// GET, of which a watch sends the items; `None` is a 404. Without an APIService that names a
    /// service, the simulator answers itself.
    pub fn aggregate(
        &self,
        group: &str,
        version: &str,
        answer: impl Fn(&str, &str) -> Option<serde_json::Value> + Send + Sync + 'static,
    ) {
        self.shared.aggregation.register(group, version, answer);
    }

    fn serve(&self, listener: TcpListener) {
        let stop = CancellationToken::new();
        *self.running.lock() = stop.clone();
        let acceptor = self.tls.as_ref().map(|tls| tls.acceptor.clone());
        tokio::spawn(http::serve(listener, acceptor, Arc::clone(&self.shared), stop, None));
    }
}

impl Drop for Simulator {
    fn drop(&mut self) {
        self.stop();
        self.shared.servers.stop_all();
    }
}

// Omits the private key.
weir_api::opaque!(Tls);

/// Attempts of a restart to bind its port again.
const REBIND_TRIES: u32 = 50;
const REBIND_INTERVAL: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests;
