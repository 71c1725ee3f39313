//! The simulator, Weir, and the watchers.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};
use weir::simulator::{Action, Simulator, SimulatorOptions, User};

use crate::args::Args;
use crate::bounds::{Bounds, Costs};
use crate::client::Endpoint;
use crate::crowd::Crowd;
use crate::report;
use crate::token::token;
use crate::watcher::Watcher;
use crate::weir_process::{Weir, free_address};

/// The resources that are watched: the path of the collection, and the kind.
pub(crate) const RESOURCES: [(&str, &str); 4] = [
    ("/api/v1/configmaps", "ConfigMap"),
    ("/api/v1/endpoints", "Endpoints"),
    ("/api/v1/pods", "Pod"),
    ("/api/v1/serviceaccounts", "ServiceAccount"),
];
const NAMESPACE: &str = "default";
const WEIR: &str = "weirs-own";
/// Within this time all watchers must have resumed, and have all events.
const TIMEOUT: Duration = Duration::from_secs(120);
/// The number of objects of a resource that are watched by name.
const QUIET_NAMES: usize = 10;
/// The time between two changes. Each changes one object of one resource.
const TICK_INTERVAL: Duration = Duration::from_millis(250);

pub(crate) struct Testbed {
    pub(crate) args: Args,
    pub(crate) upstream: Arc<Simulator>,
    pub(crate) admin: SocketAddr,
    pub(crate) endpoint: Endpoint,
    crowd: Arc<Crowd>,
    weir: Option<Weir>,
    watchers: JoinSet<()>,
    /// The last change of each resource.
    ticks: Arc<[AtomicU64; RESOURCES.len()]>,
    directory: TempDir,
    /// Whether a bound was exceeded.
    is_failed: bool,
}

impl Testbed {
    /// Starts the simulator and Weir.
    pub(crate) async fn start(args: Args) -> Self {
        let mut users: Vec<_> = (0..args.tokens)
            .map(|number| User::with_rules(&token(&name(number)), &name(number), Vec::new()))
            .collect();
        users.push(User::admin(WEIR, "weir"));
        let options = SimulatorOptions { users, ..SimulatorOptions::default() };
        let upstream = Arc::new(Simulator::start(options).await.expect("a simulator"));
        seed(&upstream, args.objects);
        let delay = Duration::from_millis(args.review_ms);
        if !delay.is_zero() {
            for resource in ["tokenreviews", "subjectaccessreviews"] {
                upstream.faults().add("create", resource, u32::MAX, Action::Delay(delay));
            }
        }
        let directory = tempfile::tempdir().expect("a directory");
        let tls = args.tls.then(|| client_config(directory.path()));
        let endpoint = Endpoint { address: free_address(), tls, addresses: args.addresses };
        let ticks = Arc::new([0; RESOURCES.len()].map(AtomicU64::new));
        tokio::spawn(change(Arc::clone(&upstream), Arc::clone(&ticks)));
        Self {
            crowd: Arc::new(Crowd::new(args.watchers)),
            admin: free_address(),
            endpoint,
            args,
            upstream,
            weir: None,
            watchers: JoinSet::new(),
            ticks,
            directory,
            is_failed: false,
        }
    }

    pub(crate) fn runs(&self, phase: &str) -> bool {
        self.args.runs(phase)
    }

    /// Starts Weir, and counts from the moment at which it listens.
    pub(crate) async fn start_weir(&mut self) {
        self.start_weir_with(json!({})).await;
    }

    /// Starts Weir with this section `cache` of its configuration.
    pub(crate) async fn start_weir_with(&mut self, cache: Value) {
        let address = self.endpoint.address;
        let mut listener = json!({"listen": format!("http://{address}")});
        if self.endpoint.tls.is_some() {
            let file = |name: &str| self.directory.path().join(name);
            listener = json!({"listen": format!("https://{address}"), "certificate": {
                "certificateFile": file("tls.crt"), "privateKeyFile": file("tls.key")}});
        }
        let sections = json!({
            "server": {"listeners": [listener], "connectionsPerAddressMax": 60_000},
            "authentication": {"mode": "gateway"},
            "authorization": {"rbac": {"enabled": self.args.rbac}},
            "audit": {"output": "none"},
            "admin": {"listen": self.admin.to_string()},
            "cache": cache,
        });
        self.upstream.requests().reset();
        let weir = Weir::start_at(address, &self.upstream.kubeconfig(WEIR), sections).await;
        self.weir = Some(weir);
        self.crowd.start_clock();
    }

    /// Kills Weir, and waits until all watchers have noticed.
    pub(crate) async fn kill_weir(&mut self) {
        self.crowd.start_phase();
        self.weir = None;
        self.crowd.all_closed().await;
    }

    /// Lets the API server be gone for a time. Its requests are counted from the end of that.
    pub(crate) async fn stop_server(&self, outage: Duration) {
        if self.weir.is_some() {
            self.crowd.start_phase();
        }
        self.upstream.stop();
        sleep(outage).await;
    }

    /// Starts the API server again, and counts its requests from now on.
    pub(crate) async fn start_server(&self, is_forgetful: bool) {
        if is_forgetful {
            self.upstream.restart_caches(0);
        }
        self.upstream.requests().reset();
        self.upstream.restart().await.expect("the server restarts");
        self.crowd.start_clock();
    }

    /// Starts Weir and the watchers, each at the present resourceVersion.
    pub(crate) async fn open_watches(&mut self) {
        self.crowd.start_phase();
        self.start_weir().await;
        let (tokens, kinds) = (self.args.tokens, RESOURCES.len());
        let after = self.upstream.store().revision();
        for number in 0..self.args.watchers {
            let (path, _) = RESOURCES.get(number / tokens % kinds).expect("a resource");
            let selector = match is_quiet(number, tokens) {
                true => format!("&fieldSelector=metadata.name%3Dquiet-{}", number % QUIET_NAMES),
                false => String::new(),
            };
            let watcher = Watcher {
                number,
                endpoint: self.endpoint.clone(),
                token: token(&name(number % tokens)),
                path: (*path).to_owned(),
                selector,
                after,
                crowd: Arc::clone(&self.crowd),
            };
            self.watchers.spawn(watcher.run());
        }
        // A change may lie between the resourceVersion and the first one that a watcher sees.
        for number in 0..self.args.watchers {
            self.crowd.listed(number, UNKNOWN);
        }
        self.finish("first watches", Bounds::of_weir()).await;
    }

    /// Waits until all watchers are open and have all events, and prints what it took.
    pub(crate) async fn finish(&mut self, title: &str, bounds: Bounds) {
        let resumed = self.crowd.all_open(TIMEOUT).await;
        let newest = self.ticks.each_ref().map(|tick| tick.load(Ordering::Relaxed));
        let tokens = self.args.tokens;
        let newest_of = |number| {
            let newest = newest.get(number / tokens % RESOURCES.len()).copied();
            newest.filter(|_| !is_quiet(number, tokens))
        };
        let complete = resumed && self.crowd.all_have(TIMEOUT, newest_of).await;
        // Requests of reflectors after their first list count too.
        sleep(Duration::from_secs(2)).await;
        let seen = self.crowd.take_seen();
        report::print(title, self, &seen, self.crowd.wrong_events()).await;
        if !complete {
            self.fail(format!("{title}: not all have resumed and have all events in time"));
        }
        for exceeded in bounds.exceeded(&seen, &self.costs()) {
            self.fail(format!("{title}: {exceeded}"));
        }
    }

    fn costs(&self) -> Costs {
        let mut of_resources = self.requests_for_caches();
        let proofs = self.recent_for_caches(is_proof);
        let pages = self.recent_for_caches(is_next_page);
        let small = proofs.iter().zip(&pages).map(|(proofs, pages)| proofs + pages);
        of_resources.iter_mut().zip(small).for_each(|(total, small)| *total -= small);
        let [token_reviews, access_reviews] = self.reviews();
        Costs {
            of_resources,
            proofs,
            token_reviews,
            access_reviews,
            tokens: self.args.tokens as u64,
            permissions: self.permissions() as u64,
            wrong_events: self.crowd.wrong_events(),
        }
    }

    /// Returns the number of lists and watches of each resource.
    fn requests_for_caches(&self) -> [u64; RESOURCES.len()] {
        let requests = self.upstream.requests();
        RESOURCES.map(|(path, _)| {
            let resource = path.rsplit('/').next().unwrap_or_default();
            requests.count("list", resource) + requests.count("watch", resource)
        })
    }

    /// Returns the number of those of the last requests whose query is of a kind.
    pub(crate) fn recent_for_caches(
        &self,
        is_counted: impl Fn(&str) -> bool,
    ) -> [u64; RESOURCES.len()] {
        let recent = self.upstream.requests().recent();
        RESOURCES.map(|(path, _)| {
            let of_one = recent.iter().filter(|request| request.path == path);
            of_one.filter(|request| is_counted(&request.query)).count() as u64
        })
    }

    /// Returns the number of token reviews and of access reviews.
    pub(crate) fn reviews(&self) -> [u64; 2] {
        let requests = self.upstream.requests();
        ["tokenreviews", "subjectaccessreviews"].map(|resource| requests.count("create", resource))
    }

    /// Returns the number of distinct permissions that the users of all watches need.
    pub(crate) fn permissions(&self) -> usize {
        let tokens = self.args.tokens;
        let permission = |number: usize| {
            let quiet = is_quiet(number, tokens).then_some(number % QUIET_NAMES);
            (number % tokens, number / tokens % RESOURCES.len(), quiet)
        };
        (0..self.args.watchers).map(permission).collect::<HashSet<_>>().len()
    }

    /// Notes that a bound was exceeded.
    pub(crate) fn fail(&mut self, failure: String) {
        println!("  EXCEEDED {failure}");
        self.is_failed = true;
    }

    pub(crate) async fn print_metrics(&self) {
        report::print_metrics(self.admin).await;
    }

    /// Ends the watchers. Fails if a bound was exceeded.
    pub(crate) async fn end(mut self) -> ExitCode {
        self.crowd.stop();
        self.watchers.shutdown().await;
        if self.is_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }

    pub(crate) fn weir(&self) -> &Weir {
        self.weir.as_ref().expect("Weir runs")
    }
}

/// Whether a watcher watches one quiet object.
fn is_quiet(number: usize, tokens: usize) -> bool {
    (number / (tokens * RESOURCES.len())) % 5 == 4
}

pub(crate) fn name(number: usize) -> String {
    format!("user{number}.")
}

/// Creates the objects, and lets all users read them.
fn seed(upstream: &Simulator, objects: usize) {
    let api = upstream.store();
    let create = |object: Value| {
        api.create(object).expect("the object is created");
    };
    for (_, kind) in RESOURCES {
        for number in 0..objects {
            create(object(kind, &format!("quiet-{number}"), 0, &format!("node-{}", number % 100)));
        }
        create(object(kind, "ticker", 0, "node-0"));
    }
    create(json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "readers"},
        "rules": [{"apiGroups": [""], "verbs": ["get", "list", "watch"],
            "resources": ["configmaps", "endpoints", "pods", "serviceaccounts"]}]}));
    create(json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "readers"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "readers"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:authenticated"}]}));
}

fn object(kind: &str, name: &str, tick: u64, node: &str) -> Value {
    let mut metadata = json!({"name": name, "namespace": NAMESPACE,
        "annotations": {"filler": "x".repeat(500)}});
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut)
        && name == "ticker"
    {
        annotations.insert("tick".to_owned(), tick.to_string().into());
    }
    let mut object = json!({"apiVersion": "v1", "kind": kind, "metadata": metadata});
    if let (Some(object), "Pod") = (object.as_object_mut(), kind) {
        let spec = json!({"nodeName": node, "containers": [{"name": "c", "image": "none"}]});
        object.insert("spec".to_owned(), spec);
    }
    object
}

/// Changes one object of each resource in turn, for ever.
async fn change(upstream: Arc<Simulator>, ticks: Arc<[AtomicU64; RESOURCES.len()]>) {
    let mut due = interval(TICK_INTERVAL);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        for ((_, kind), tick) in RESOURCES.iter().zip(ticks.iter()) {
            due.tick().await;
            let next = tick.load(Ordering::Relaxed) + 1;
            let object = object(kind, "ticker", next, "node-0");
            upstream.store().update(object).expect("the object is updated");
            tick.store(next, Ordering::Relaxed);
        }
    }
}

/// Writes a serving certificate to `directory`, and returns the settings of clients that trust it.
fn client_config(directory: &Path) -> Arc<rustls::ClientConfig> {
    let generated = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]);
    let generated = generated.expect("a certificate");
    let pem = generated.cert.pem();
    std::fs::write(directory.join("tls.crt"), &pem).expect("a file");
    std::fs::write(directory.join("tls.key"), generated.signing_key.serialize_pem())
        .expect("a file");
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).expect("PEM")).expect("a root");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}

/// The change that a watcher has before its first event.
pub(crate) const UNKNOWN: u64 = u64::MAX;

/// Whether a request of Weir's asks how fresh its state is: it is for one object at most, or ends
/// after 3 s.
pub(crate) fn is_proof(query: &str) -> bool {
    query.split('&').any(|part| matches!(part, "limit=1" | "timeoutSeconds=3"))
        || query.contains("labelSelector=weir.dev%2Fnone")
}

/// Whether a request is for a page that is not the first one.
pub(crate) fn is_next_page(query: &str) -> bool {
    query.contains("continue=")
}
