//! Ten minutes of the client doctor in a gateway before a real kube-apiserver. Fifteen clients have
//! one bad habit each, and are to be found. The controller manager, the scheduler, kubectl and
//! informers of kube-rs have none, and nothing is to be found about them at any time.
//!
//! `WEIR_SECONDS` is how long it lasts (600). A shorter run requires no finding.
//! `WEIR_CONTROLLERS` is a program, such as one of controller-runtime, that reads KUBECONFIG and
//! behaves well, too.

mod client;
mod habits;
mod informers;
mod load;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use kube::runtime::watcher;
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use self::client::{Gateway, Who};
use self::habits::{Planted, planted};
use super::components::Component;
use crate::control_plane::{ADMIN, ControlPlane, write_kubeconfig};
use crate::support::{Weir, free_port};

/// The rule, the user, the user agent and the resource of a finding.
type Key = [String; 4];

/// When a finding was seen first, and what it said last.
struct Seen {
    after: Duration,
    weight: String,
    evidence: String,
}

pub(super) fn ten_minutes() {
    let seconds = std::env::var("WEIR_SECONDS").ok().and_then(|text| text.parse().ok());
    let time = Duration::from_secs(seconds.unwrap_or(TEN_MINUTES));
    let dir = tempfile::tempdir().unwrap();
    let plane = ControlPlane::start_with(&[&tokens(&dir)]);
    let credentials = plane.kubeconfig(ADMIN).parent().unwrap().to_owned();
    let port = free_port();
    let weir = gateway(&plane, &credentials, port);
    let runtime = Runtime::new().unwrap();
    runtime.block_on(load::fill(&plane.endpoint(ADMIN)));

    let kubeconfig = |user: &str| write_kubeconfig(&credentials, port, user);
    let _components = components(&kubeconfig, dir.path());
    let controllers = std::env::var_os("WEIR_CONTROLLERS").map(PathBuf::from);
    let _controllers = controllers
        .as_deref()
        .map(|path| Component::program(path, &kubeconfig("controllers"), dir.path(), CONTROLLERS));
    let events = runtime.block_on(async {
        let pages = watcher::Config::default();
        let streams = watcher::Config::default().streaming_lists();
        [
            informers::start(&kubeconfig("pages"), "informers-by-pages/1.0", &pages).await,
            informers::start(&kubeconfig("streams"), "informers-by-streams/1.0", &streams).await,
        ]
    });
    let gateway = Gateway::new(&credentials.join("ca.crt"), port);
    let clients = planted();
    runtime.block_on(async {
        tokio::spawn(load::change(gateway.client(&Who::named("load"))));
        for client in &clients {
            tokio::spawn((client.run)(gateway.client(&client.who)));
        }
    });
    let seen = watch_findings(&weir, time);

    let events = events.map(|events| events.load(Ordering::Relaxed));
    let lines = |name| std::fs::read_to_string(dir.path().join(name)).unwrap().lines().count();
    let [pods, config_maps] = [PODS, CONFIG_MAPS].map(lines);
    eprintln!(
        "{} s; {} requests; events of kube-rs' informers {events:?}; lines of kubectl get -w: {pods} of pods, {config_maps} of config maps",
        time.as_secs(),
        weir.metric("weir_requests_total", &[]),
    );
    if controllers.is_some() {
        let text = std::fs::read_to_string(dir.path().join(CONTROLLERS)).unwrap();
        eprintln!(
            "{} lines of the controllers, the last: {:?}",
            text.lines().count(),
            text.lines().last()
        );
    }
    let (found_clients, wrong) = report(&clients, &seen);
    assert!(events.iter().all(|count| *count > 20) && pods > 10, "the load did not run");
    if time.as_secs() >= TEN_MINUTES {
        assert_eq!((found_clients, wrong), (clients.len(), 0), "found, and wrong findings");
    }
}

/// Returns the argument of the API server with a token for each client, which is also its user.
fn tokens(dir: &TempDir) -> String {
    let clients = planted();
    let users = OTHER_USERS.into_iter().chain(clients.iter().map(|client| client.who.user));
    let line = |user| format!("{user},{user},uid-{user},\"system:masters\"\n");
    let text: String = users.map(line).collect();
    let path = dir.path().join("tokens.csv");
    std::fs::write(&path, format!("{ADMIN},admin,uid-admin,\"system:masters\"\n{text}")).unwrap();
    format!("--token-auth-file={}", path.display())
}

/// Starts Weir as a gateway at a port.
fn gateway(plane: &ControlPlane, credentials: &Path, port: u16) -> Weir {
    let dir = credentials.display();
    let config = format!(
        "server:\n  listeners:\n  - listen: https://127.0.0.1:{port}\n    \
         certificate: {{certificateFile: {dir}/server.crt, privateKeyFile: {dir}/server.key}}\n\
         authentication: {{mode: gateway}}\naudit: {{output: none}}\n\
         cache: {{exclude: [podtemplates]}}\n"
    );
    let weir = Weir::spawn_gateway(&plane.kubeconfig(ADMIN), &config, port, "info");
    weir.wait_until_ready();
    weir
}

/// Starts the well-behaved processes of Kubernetes.
fn components(kubeconfig: &dyn Fn(&str) -> PathBuf, dir: &Path) -> [Component; 4] {
    let [manager, scheduler, kubectl] = ["manager", "scheduler", "kubectl"].map(kubeconfig);
    // Without a kubelet and a controller of budgets: see `load`.
    let controllers = "--controllers=*,-disruption-controller,-node-lifecycle-controller";
    let watch = |output, arguments: &[&str]| {
        let arguments = [&["get", "--watch"], arguments].concat();
        Component::kubectl(&kubectl, dir, output, &arguments)
    };
    [
        Component::start("kube-controller-manager", &manager, dir, &[controllers]),
        Component::start("kube-scheduler", &scheduler, dir, &[]),
        watch(PODS, &["pods", "--all-namespaces"]),
        watch(CONFIG_MAPS, &["configmaps", "--output=name"]),
    ]
}

/// Collects all findings that are there at any time.
fn watch_findings(weir: &Weir, time: Duration) -> BTreeMap<Key, Seen> {
    let (began, mut seen) = (Instant::now(), BTreeMap::<Key, Seen>::new());
    while began.elapsed() < time {
        std::thread::sleep(POLL_INTERVAL);
        let after = began.elapsed();
        let Some((200, text)) = weir.admin("/api/findings?limit=200") else {
            eprintln!("{after:.0?}: no findings could be read");
            continue;
        };
        let findings: Value = serde_json::from_str(&text).unwrap();
        for finding in findings["items"].as_array().unwrap() {
            let text = |name: &str| finding[name].as_str().unwrap().to_owned();
            let key = ["rule", "user", "userAgent", "resource"].map(text);
            let (weight, evidence) = (text("weight"), text("evidence"));
            let first = || Seen { after, weight: String::new(), evidence: String::new() };
            let entry = seen.entry(key).or_insert_with(first);
            (entry.weight, entry.evidence) = (weight, evidence);
        }
    }
    seen
}

/// Prints what was found. Returns how many clients were, and the number of wrong findings.
fn report(clients: &[Planted], seen: &BTreeMap<Key, Seen>) -> (usize, usize) {
    let mut found_clients = 0;
    for client in clients {
        let finding = seen
            .iter()
            .find(|([rule, user, ..], _)| rule == client.rule() && user == client.who.user);
        found_clients += usize::from(finding.is_some());
        let text = finding.map_or("not found".to_owned(), |([_, _, agent, resource], seen)| {
            let Seen { after, weight, evidence } = seen;
            format!("{:>3} s | {agent} | {resource} | {weight}: {evidence}", after.as_secs())
        });
        eprintln!("{:<13} | {text}", client.rule());
    }
    let mut wrong = 0;
    for ([rule, user, agent, resource], Seen { after, weight, evidence }) in seen {
        let client = clients.iter().find(|client| client.who.user == user);
        if client.is_some_and(|client| client.rule() == rule) {
            continue;
        }
        let is_justified = client.is_some_and(|client| client.also.contains(&rule.as_str()));
        wrong += usize::from(!is_justified);
        let what = if is_justified { "justified" } else { "WRONG" };
        eprintln!(
            "{what}: {rule} after {} s: {user}, {agent}: {resource}: {weight}: {evidence}",
            after.as_secs()
        );
    }
    eprintln!("found {found_clients} of {}, wrong findings {wrong}", clients.len());
    (found_clients, wrong)
}

const TEN_MINUTES: u64 = 600;
const OTHER_USERS: [&str; 7] =
    ["manager", "scheduler", "kubectl", "pages", "streams", "controllers", "load"];
const POLL_INTERVAL: Duration = Duration::from_secs(3);
/// The output of the program in `WEIR_CONTROLLERS`.
const CONTROLLERS: &str = "controllers.txt";
/// The output of kubectl.
const PODS: &str = "pods.txt";
const CONFIG_MAPS: &str = "config-maps.txt";
