//! The upstream with its objects, Weir, and the nodes.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base64::Engine as _;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_rustls::TlsConnector;
use weir::simulator::{Api, ClientCertificates, Rule, Simulator, SimulatorOptions, User};

use crate::node::{CHANGED, NAMED, Node, PODS, Seen, WATCHES, name};
use crate::weir_process::{Weir, free_address};

const WEIR: &str = "weirs-own";
const RECOVERY_MAX: Duration = Duration::from_secs(300);

pub(crate) struct Testbed {
    upstream: Simulator,
    weir: Option<Weir>,
    address: SocketAddr,
    sections: Value,
    ca: CertifiedIssuer<'static, KeyPair>,
    nodes: JoinSet<()>,
    seen: Arc<Seen>,
    epoch: Instant,
    changes: Arc<AtomicBool>,
    _dir: TempDir,
}

/// The cost of nodes while nothing happens but their work.
pub(crate) struct Steady {
    pub(crate) cores: f64,
    pub(crate) mebibytes: f64,
    /// Requests a second.
    pub(crate) upstream: f64,
    events: usize,
    lags: [f64; 2],
    leases: f64,
    failed: usize,
    requests: BTreeMap<String, u64>,
}

impl Testbed {
    /// Starts the upstream with the objects of `nodes` nodes, and Weir.
    pub(crate) async fn start(nodes: usize) -> Self {
        let key = || KeyPair::generate().expect("a key");
        let mut ca = CertificateParams::new(Vec::<String>::new()).expect("no names are fine");
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.distinguished_name.push(DnType::CommonName, "rehearsal");
        let ca = CertifiedIssuer::self_signed(ca, key()).expect("a CA");
        let dir = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::write(&path, text).expect("a file");
            path
        };
        let server = CertificateParams::new(["127.0.0.1".to_owned()]).expect("a name");
        let server_key = key();
        let server = server.signed_by(&server_key, &ca).expect("a certificate");
        let address = free_address();
        write("ca.crt", &ca.pem());
        let listener = json!({"listen": format!("https://{address}"), "certificate": {
            "certificateFile": write("tls.crt", &server.pem()),
            "privateKeyFile": write("tls.key", &server_key.serialize_pem())}});
        let sections = json!({
            "server": {"listeners": [listener], "connectionsPerAddressMax": 20_000},
            "authentication": {"mode": "gateway", "impersonate": true},
            "flowControl": {"mode": "enforce"}});
        let rules = vec![
            Rule::new(
                &["get", "list", "watch"],
                &["pods", "nodes", "secrets", "configmaps"],
                &["*"],
            ),
            Rule::new(&["get", "update"], &["leases"], &["*"]),
        ];
        let of_node = |node: usize| User {
            name: format!("system:node:{}", name(node)),
            groups: vec!["system:nodes".to_owned()],
            rules: rules.clone(),
            ..User::default()
        };
        let users = (0..nodes).map(of_node).chain([User::admin(WEIR, "weir")]).collect();
        let client_certificates = Some(ClientCertificates {
            ca: ca.pem(),
            request_header_ca: None,
            request_header_allowed_names: Vec::new(),
        });
        let options = SimulatorOptions {
            tls: true,
            client_certificates,
            users,
            ..SimulatorOptions::default()
        };
        let upstream = Simulator::start(options).await.expect("a simulator");
        fill(&upstream.store(), nodes);
        let mut testbed = Self {
            upstream,
            weir: None,
            address,
            sections,
            ca,
            nodes: JoinSet::new(),
            seen: Arc::default(),
            epoch: Instant::now(),
            changes: Arc::default(),
            _dir: dir,
        };
        testbed.start_weir().await;
        sleep(Duration::from_secs(3)).await;
        testbed
    }

    async fn start_weir(&mut self) {
        let kubeconfig = self.upstream.kubeconfig(WEIR);
        self.weir = Some(Weir::start_at(self.address, &kubeconfig, self.sections.clone()).await);
    }

    /// Connects nodes until there are `nodes`, and waits until all their watches are open.
    pub(crate) async fn connect(&mut self, nodes: usize) {
        for number in self.nodes.len()..nodes {
            let node = Node {
                number,
                weir: self.address,
                tls: self.connector(number),
                seen: Arc::clone(&self.seen),
                epoch: self.epoch,
            };
            self.nodes.spawn(node.run());
        }
        self.until_all_watch().await;
    }

    fn connector(&self, node: usize) -> TlsConnector {
        let mut params = CertificateParams::new(Vec::<String>::new()).expect("no names are fine");
        params.distinguished_name.push(DnType::CommonName, format!("system:node:{}", name(node)));
        params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ClientAuth);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.ca).expect("a certificate");
        let mut roots = rustls::RootCertStore::empty();
        let ca = CertificateDer::from_pem_slice(self.ca.pem().as_bytes()).expect("a certificate");
        roots.add(ca).expect("a CA");
        let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).expect("a key");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("TLS 1.3")
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![certificate.der().clone()], key);
        let mut config = config.expect("a certificate with its key");
        config.alpn_protocols = vec![b"h2".to_vec()];
        Arc::new(config).into()
    }

    fn watches(&self) -> usize {
        self.seen.watches.load(Ordering::Relaxed)
    }

    async fn until_all_watch(&self) -> bool {
        let began = Instant::now();
        while self.watches() < WATCHES * self.nodes.len() && began.elapsed() < RECOVERY_MAX {
            sleep(Duration::from_millis(50)).await;
        }
        let pauses = std::mem::take(&mut *self.seen.pauses.lock());
        if !pauses.is_empty() {
            println!("  refusals by the seconds of Retry-After: {pauses:?}");
        }
        let missing = (WATCHES * self.nodes.len()).saturating_sub(self.watches());
        if missing > 0 {
            println!("  {missing} watches are not open after {RECOVERY_MAX:?}");
        }
        missing == 0
    }

    /// Measures while pods change.
    pub(crate) async fn measure(&self, time: Duration) -> Steady {
        let weir = self.weir.as_ref().expect("weir runs");
        let change = tokio::spawn(change(
            self.upstream.store(),
            self.nodes.len(),
            self.epoch,
            Arc::clone(&self.changes),
        ));
        self.changes.store(true, Ordering::Relaxed);
        sleep(Duration::from_secs(2)).await;
        drop(std::mem::take(&mut *self.seen.lags.lock()));
        let (leases, failed) = (self.leases(), self.seen.failed.load(Ordering::Relaxed));
        let (requests, cpu, began) = (self.requests(), weir.cpu(), Instant::now());
        sleep(time).await;
        let seconds = began.elapsed().as_secs_f64();
        let cpu = weir.cpu().saturating_sub(cpu).as_secs_f64();
        let mut lags = std::mem::take(&mut *self.seen.lags.lock());
        self.changes.store(false, Ordering::Relaxed);
        change.await.expect("it ends");
        lags.sort_by(f64::total_cmp);
        let lag = |percent: usize| {
            lags.get(lags.len().saturating_sub(1) * percent / 100).copied().unwrap_or(f64::NAN)
        };
        let requests = differ(&requests, &self.requests());
        Steady {
            cores: cpu / seconds,
            mebibytes: self.resident(),
            upstream: requests.values().sum::<u64>() as f64 / seconds,
            events: lags.len(),
            lags: [lag(50), lag(99)],
            leases: (self.leases() - leases) as f64 / seconds,
            failed: self.seen.failed.load(Ordering::Relaxed) - failed,
            requests,
        }
    }

    fn leases(&self) -> usize {
        self.seen.leases.load(Ordering::Relaxed)
    }

    fn requests(&self) -> BTreeMap<String, u64> {
        let counts = self.upstream.requests().counts();
        counts
            .into_iter()
            .map(|((verb, resource), count)| (format!("{verb} {resource}"), count))
            .collect()
    }

    /// Returns Weir's resident memory in MiB.
    pub(crate) fn resident(&self) -> f64 {
        let Some(weir) = &self.weir else { return f64::NAN };
        let status = fs::read_to_string(format!("{}/status", weir.proc())).expect("weir runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
        line.trim().trim_end_matches(" kB").parse::<f64>().expect("a number") / 1024.0
    }

    /// Kills Weir, starts it, and shows what the return of the nodes cost.
    pub(crate) async fn restart_weir(&mut self) {
        let before = self.requests();
        self.seen.answers.lock().clear();
        self.weir = None;
        while self.watches() > 0 {
            sleep(Duration::from_millis(20)).await;
        }
        let began = Instant::now();
        self.start_weir().await;
        let listens = began.elapsed();
        self.until_all_watch().await;
        let cpu = self.weir.as_ref().map_or(Duration::ZERO, Weir::cpu);
        println!(
            "  it listens after {:.1} s; all watches are open after {:.1} s, for {:.1} s of Weir's CPU time",
            listens.as_secs_f64(),
            began.elapsed().as_secs_f64(),
            cpu.as_secs_f64(),
        );
        self.show_cost(&before);
    }

    /// Stops the upstream for two seconds, and shows what the clients and the upstream saw.
    pub(crate) async fn restart_upstream(&self) {
        let (before, ended) = (self.requests(), self.seen.ended.load(Ordering::Relaxed));
        self.seen.answers.lock().clear();
        self.upstream.stop();
        sleep(Duration::from_secs(2)).await;
        self.upstream.restart().await.expect("it starts");
        let began = Instant::now();
        drop(std::mem::take(&mut *self.seen.lags.lock()));
        change_one(&self.upstream.store(), 0, self.epoch);
        while self.seen.lags.lock().is_empty() && began.elapsed() < RECOVERY_MAX {
            sleep(Duration::from_millis(20)).await;
        }
        println!(
            "  a change reaches its node {:.1} s after the start; {} watches of clients ended",
            began.elapsed().as_secs_f64(),
            self.seen.ended.load(Ordering::Relaxed) - ended,
        );
        sleep(Duration::from_secs(5)).await;
        self.show_cost(&before);
    }

    fn show_cost(&self, before: &BTreeMap<String, u64>) {
        let expired = self.seen.expired.load(Ordering::Relaxed);
        let answers = std::mem::take(&mut *self.seen.answers.lock());
        println!("  responses to watches: {answers:?}");
        println!(
            "  watches that got 410 so far: {expired}; requests upstream: {:?}",
            differ(before, &self.requests())
        );
    }
}

impl fmt::Display for Steady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cores, mebibytes, upstream, events, lags: [p50, p99], leases, failed, requests } =
            self;
        write!(
            f,
            "  {cores:.3} cores, {mebibytes:.0} MiB; {events} events of pods, lag p50 {p50:.1} p99 {p99:.1} ms; \
             {leases:.1} leases/s, {failed} requests failed; {upstream:.1} requests/s upstream: {requests:?}"
        )
    }
}

fn differ(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let more = after
        .iter()
        .map(|(name, count)| (name.clone(), count - before.get(name).copied().unwrap_or(0)));
    more.filter(|(_, count)| *count > 0).collect()
}

/// Creates the objects of `nodes` nodes.
fn fill(api: &Api, nodes: usize) {
    let create = |object: Value| {
        api.create(object).expect("the object is created");
    };
    let text = base64::engine::general_purpose::STANDARD.encode("x".repeat(200));
    for node in 0..nodes {
        let name = name(node);
        create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}));
        create(json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": name, "namespace": "kube-node-lease"}, "spec": {}}));
        (0..PODS).for_each(|number| create(pod(node, number, 0)));
        for number in 0..NAMED {
            let kind = if number % 2 == 0 { "Secret" } else { "ConfigMap" };
            create(json!({"apiVersion": "v1", "kind": kind,
                "metadata": {"name": format!("{name}-{number}"), "namespace": "default"},
                "data": {"key": text}}));
        }
    }
}

fn pod(node: usize, number: usize, at: u128) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("{}-{number}", name(node)), "namespace": "default",
            "annotations": {CHANGED: at.to_string(), "padding": "x".repeat(3_000)}},
        "spec": {"nodeName": name(node), "containers": [{"name": "main", "image": "none"}]}})
}

/// Changes pods while it is asked to.
async fn change(api: Api, nodes: usize, epoch: Instant, goes_on: Arc<AtomicBool>) {
    let mut ticks = tokio::time::interval(Duration::from_secs_f64(50.0 / nodes.max(1) as f64));
    let mut changed = 0;
    loop {
        ticks.tick().await;
        if changed > 0 && !goes_on.load(Ordering::Relaxed) {
            return;
        }
        change_one(&api, changed % nodes.max(1), epoch);
        changed += 1;
    }
}

fn change_one(api: &Api, node: usize, epoch: Instant) {
    let at = epoch.elapsed().as_micros();
    api.update(pod(node, 0, at)).expect("the pod is changed");
}
