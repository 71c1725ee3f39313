//! A small Kubernetes API server in-process: the upstream of `weir demo` and of the whole-proxy tests.
//!
//! It answers as `semantics.md` says that kube-apiserver 1.36 does, as far as a caching proxy and plain kubectl can tell:
//! one revision over all resources, lists and watches with all their resourceVersion rules, bookmarks, expiry,
//! discovery, tables, reviews, in JSON and in protobuf. It keeps everything in memory, and does without admission, defaulting
//! beyond the least, server-side apply and graceful deletion. It shares no parser with the proxy, so that a
//! misreading of Kubernetes does not cancel itself out in a test.
//!
//! Lock order: none; no two of its locks are ever held together.

mod answer;
mod api;
mod authorizer;
mod bootstrap;
mod cluster;
mod defaults;
mod discovery;
mod encode;
mod faults;
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
mod render;
mod request;
mod request_log;
mod review;
mod router;
mod scale;
mod selector;
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
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

pub use self::api::{Api, Refused};
pub use self::cluster::Cluster;
pub use self::faults::{Action, Cut, Fault, Faults};
pub use self::options::{ClientCertificates, Rule, ServerCertificate, SimulatorOptions, User};
pub use self::request_log::{LoggedRequest, RequestLog};
pub use self::store::Snapshot;

use self::identity::ClientCas;
use self::shared::Shared;
use self::store::Store;
use self::tokens::Tokens;

/// A running simulator. Dropping it stops it.
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
    /// Listens and serves, with the namespaces that every cluster has.
    pub async fn start(options: SimulatorOptions) -> io::Result<Self> {
        let listener = TcpListener::bind(options.listen).await?;
        let address = listener.local_addr()?;
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
            store: Store::new(options.history_events_max),
            options,
            faults: Faults::default(),
            log: RequestLog::default(),
            aggregated: Default::default(),
        });
        bootstrap::bootstrap(&shared.store, shared.options.client_certificates.as_ref());
        let simulator = Self { shared, address, tls, running: Mutex::default() };
        simulator.serve(listener);
        Ok(simulator)
    }

    /// `http://127.0.0.1:port`, or `https`.
    pub fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Where it listens; the same after a restart.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The certificate of the CA that signed its own; `None` without TLS.
    pub fn ca_pem(&self) -> Option<&str> {
        self.tls.as_ref().map(|tls| tls.ca_pem.as_str())
    }

    /// A kubeconfig, in JSON, which is YAML, for the holder of a token; an empty token stands for none.
    pub fn kubeconfig(&self, token: &str) -> String {
        let mut cluster = json!({"server": self.url()});
        if let (Some(ca), Some(map)) = (self.ca_pem(), cluster.as_object_mut()) {
            let data = base64::engine::general_purpose::STANDARD.encode(ca);
            map.insert("certificate-authority-data".to_owned(), data.into());
        }
        // Over TLS kubectl asks for a password if it has no credential; where anyone may come, any will do.
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

    /// What reached it.
    pub fn requests(&self) -> &RequestLog {
        &self.shared.log
    }

    /// The faults to inject.
    pub fn faults(&self) -> &Faults {
        &self.shared.faults
    }

    /// Reads and writes past HTTP, with the same rules and the same events.
    pub fn store(&self) -> Api {
        Api::new(Arc::clone(&self.shared))
    }

    /// Forgets all history: every resourceVersion before the present one is gone. Running watches go on.
    pub fn compact(&self) {
        self.shared.store.compact();
    }

    /// The present state, for [`rewind`](Self::rewind).
    pub fn snapshot(&self) -> Snapshot {
        self.shared.store.snapshot()
    }

    /// Goes back to a state as after the restore of an etcd backup: its objects, its revision, no history; watches end.
    pub fn rewind(&self, snapshot: &Snapshot) {
        self.shared.store.restore(snapshot);
    }

    /// Ends all running watches cleanly.
    pub fn end_watches(&self) {
        self.shared.store.end_watches();
    }

    /// Stops listening and drops all connections; the objects stay.
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
                // The accept loop may not have let go of the port yet.
                Err(error) if tries == REBIND_TRIES => return Err(error),
                Err(_) => tries += 1,
            }
            tokio::time::sleep(REBIND_INTERVAL).await;
        };
        self.serve(listener);
        Ok(())
    }

    /// Registers a fixed answer of an aggregated API server: the JSON that a GET of a path gets. A group-version's path, as
    /// `/apis/metrics.k8s.io/v1beta1` with an `APIResourceList`, makes it show up in discovery and as an APIService.
    pub fn add_aggregated(&self, path: &str, answer: serde_json::Value) {
        let words: Vec<&str> = path.trim_matches('/').split('/').collect();
        if let ["apis", group, version] = *words.as_slice() {
            let service = Some(("kube-system", "aggregated"));
            write::register(&self.shared.store, group, version, service);
        }
        self.shared.aggregated.write().insert(path.to_owned(), answer);
    }

    fn serve(&self, listener: TcpListener) {
        let stop = CancellationToken::new();
        *self.running.lock() = stop.clone();
        let acceptor = self.tls.as_ref().map(|tls| tls.acceptor.clone());
        tokio::spawn(http::serve(listener, acceptor, Arc::clone(&self.shared), stop));
    }
}

impl Drop for Simulator {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Without the key.
impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

/// How often a restart tries to get its port back.
const REBIND_TRIES: u32 = 50;
const REBIND_INTERVAL: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests;
