//! The truth under fire: several API servers on one etcd, which break in turn while clients of all
//! kinds read through Weir. The states and events that the clients were shown are compared with
//! every change in etcd.
//!
//! Weir reaches the API servers behind a balancer that knows nothing of them, or as a list of
//! addresses. Its identity has its permissions by a role, which is revoked for a time.
//!
//! The guarantees are: each state that a client was shown is one of etcd; each informer's events
//! are a contiguous part of its history; in the end all informers have etcd's objects; no
//! resourceVersion that a client is shown falls, but into a new history; a consistent read has
//! every write that was committed before; no object is created twice. Durations are printed, and
//! not asserted.

mod check;
mod client;
mod cluster;
mod faults;
pub(crate) mod figures;
mod frames;
mod informer;
mod objects;
mod readers;
mod reference;
mod relay;
mod report;
pub(crate) mod upgrade;
mod world;
mod writers;

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use self::check::{Timelines, Verdict};
use self::client::Client;
use self::cluster::Cluster;
use self::informer::{Informed, Informer};
use self::objects::Scope;
use self::reference::{Reference, range};
use self::relay::Relay;
use self::world::World;
use self::writers::Marks;
use crate::control_plane::{ALICE, upgraded_assets};
use crate::cuts::requests::{json_request, send};
use crate::support::Weir;

/// A short run before two API servers behind a balancer.
pub(crate) fn behind_a_balancer() {
    run(2, Form::Balancer, SHORT_PACE);
}

/// A short run before two API servers in a list.
pub(crate) fn in_a_list() {
    run(2, Form::List, SHORT_PACE);
}

/// Ten minutes: three API servers, then two.
pub(crate) fn ten_minutes_behind_a_balancer() {
    run(3, Form::Balancer, LONG_PACE);
    run(2, Form::Balancer, LONG_PACE);
}

/// Ten minutes: three API servers, then two.
pub(crate) fn ten_minutes_in_a_list() {
    run(3, Form::List, LONG_PACE);
    run(2, Form::List, LONG_PACE);
}

/// How Weir reaches the API servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Balancer,
    List,
}

/// How long things last.
#[derive(Clone, Copy)]
struct Pace {
    /// Between two faults, besides the time in which the informers converge.
    calm: Duration,
    /// An API server that is down, slow, or may be read by nobody.
    fault: Duration,
    /// An API server that does not run on.
    pause: Duration,
}

/// Everything of one run.
struct Fire {
    runtime: Runtime,
    cluster: Cluster,
    /// The relays that Weir connects to: one balancer, or one relay for each API server.
    doors: Vec<Relay>,
    /// The relay for writers that do not use Weir.
    direct: Relay,
    form: Form,
    pace: Pace,
    weir: Weir,
    world: Arc<World>,
    informers: Vec<(Scope, Arc<Mutex<Informed>>)>,
    marks: Marks,
    tasks: JoinSet<()>,
}

fn run(servers: usize, form: Form, pace: Pace) {
    let began = Instant::now();
    let mut fire = Fire::start(servers, form, pace, 1);
    eprintln!("{servers} API servers, {form:?}: everything runs after {:.0?}", began.elapsed());
    // Where a next version is given, both are there from now on.
    if let Some(next) = upgraded_assets() {
        fire.fault("an upgrade of one", |fire| fire.upgrade(servers - 1, &next));
    }
    let began = Instant::now();
    fire.calm();
    fire.all_faults();
    eprintln!("{servers} API servers, {form:?}: {:.0?} under fire", began.elapsed());
    fire.finish();
}

impl Fire {
    /// Starts everything. `informers` of each form read each collection.
    fn start(servers: usize, form: Form, pace: Pace, informers: usize) -> Self {
        let runtime = Runtime::new().unwrap();
        let cluster = Cluster::start(runtime.handle(), servers);
        let (doors, direct) = runtime.block_on(async {
            let mut doors = Vec::new();
            match form {
                Form::Balancer => doors.push(Relay::start(cluster.ports()).await),
                Form::List => {
                    for port in cluster.ports() {
                        doors.push(Relay::start(vec![port]).await);
                    }
                }
            }
            (doors, Relay::start(cluster.ports()).await)
        });
        let admin = cluster.admin(direct.port());
        runtime.block_on(prepare(&admin));
        let urls: Vec<_> =
            doors.iter().map(|door| format!("https://127.0.0.1:{}", door.port())).collect();
        let config = match form {
            Form::Balancer => String::new(),
            Form::List => format!("upstream:\n  endpoints:\n    static: {urls:?}\n"),
        };
        let weir = Weir::start(&cluster.kubeconfig(doors[0].port(), ALICE), &config);
        let reference = Arc::new(Reference::default());
        runtime.block_on(async {
            let base = range(cluster.etcd_port()).await;
            reference.begin(cluster.etcd_port(), base);
        });
        let world = Arc::new(World::new(weir.kubeconfig(), admin, reference));
        let (marks, tasks) = (Marks::default(), JoinSet::new());
        let mut fire = Self {
            runtime,
            cluster,
            doors,
            direct,
            form,
            pace,
            weir,
            world,
            informers: Vec::new(),
            marks,
            tasks,
        };
        fire.start_clients(informers);
        fire
    }

    fn start_clients(&mut self, informers: usize) {
        let (world, tasks) = (&self.world, &mut self.tasks);
        self.runtime.block_on(async {
            for n in 0..WRITERS {
                tasks.spawn(writers::write(Arc::clone(world), n));
            }
            for n in 0..CREATORS {
                tasks.spawn(writers::create(Arc::clone(world), Arc::clone(&self.marks), n));
            }
            self.informers = start_informers(world, informers, tasks).await;
            for n in 0..READERS {
                tasks.spawn(readers::read(Client::new(world, format!("reader {n}")).await, n));
                let starter = Client::new(world, format!("starter {n}")).await;
                tasks.spawn(readers::start(starter, n));
            }
        });
    }

    /// Lets everything run for a time without a fault.
    fn calm(&self) {
        std::thread::sleep(self.pace.calm);
        self.converge();
    }

    /// Stops the writers, and waits until all informers have etcd's objects. Returns the time.
    fn converge(&self) -> Duration {
        self.world.set_quiet(true);
        let began = Instant::now();
        let mut differs = self.difference();
        while differs.is_some() && began.elapsed() < CONVERGE_MAX {
            std::thread::sleep(Duration::from_millis(100));
            differs = self.difference();
        }
        if let Some(differs) = differs {
            self.world.report.violation(&format!("after {CONVERGE_MAX:?}: {differs}"));
        }
        self.world.set_quiet(false);
        began.elapsed()
    }

    fn difference(&self) -> Option<String> {
        let revision = self.cluster.revision();
        if self.world.reference.reached() < revision {
            return Some("the truth has not reached etcd's revision".to_owned());
        }
        let (objects, changes) = self.world.reference.now();
        self.informers.iter().enumerate().find_map(|(n, (scope, informed))| {
            let informed = informed.lock();
            let expected = objects.iter().filter(|(key, _)| scope.contains(key));
            let equal = expected.clone().eq(informed.store.iter());
            let reached = informed.runs.last().map_or(0, |run| run.reached);
            (!equal).then(|| {
                let count = expected.count();
                let has = informed.store.len();
                format!(
                    "informer {n} of {scope} at {reached} has {has} objects, not the {count} of \
                     {changes} changes"
                )
            })
        })
    }

    /// Compares everything with the truth.
    fn finish(mut self) {
        self.tasks.abort_all();
        let report = &self.world.report;
        report.print();
        let histories = self.world.reference.histories();
        let timelines = Timelines::new(&histories);
        let lists = report.lists();
        lists.iter().filter_map(|listed| timelines.check_list(listed)).for_each(|wrong| {
            report.violation(&wrong);
        });
        let (mut runs, mut compressed, mut events) = (0, 0, 0);
        for (scope, informed) in &self.informers {
            for run in &informed.lock().runs {
                (runs, events) = (runs + 1, events + run.events.len());
                match timelines.check_run(*scope, run) {
                    Verdict::Complete => {}
                    Verdict::Compressed => compressed += 1,
                    Verdict::Wrong(wrong) => report.violation(&wrong),
                }
            }
        }
        let last = self.world.reference.number();
        for (scope, informed) in &self.informers {
            if informed.lock().runs.last().is_none_or(|run| run.history < last) {
                report.violation(&format!("a stream of {scope} outlived its history"));
            }
        }
        writers::check(&self.marks.lock(), &histories).iter().for_each(|wrong| {
            report.violation(wrong);
        });
        let changes: usize = histories.iter().map(|history| history.changes.len()).sum();
        eprintln!(
            "{changes} changes, {} informers with {runs} beginnings and {events} events, {} states \
             compared, {} creations through Weir",
            self.informers.len(),
            lists.len(),
            self.marks.lock().len()
        );
        let relists = |cause: &str| {
            self.weir.metric("weir_reflector_relists_total", &[&format!("cause=\"{cause}\"")])
        };
        eprintln!(
            "{compressed} runs without the states between two lists of Weir; lists of Weir: \
             {} after a 410, {} after a rewind",
            relists("expired"),
            relists("rewound")
        );
        if compressed > 0 && relists("expired") == 0.0 {
            report.violation("events are missing, but Weir never listed again");
        }
        if let Some(file) = std::env::var_os("FIRE_LOG") {
            std::fs::write(file, self.weir.log()).unwrap();
        }
        let violations = report.violations();
        assert!(violations.is_empty(), "{} violations: {violations:#?}", violations.len());
        assert!(events > 100 && lists.len() > 20, "too little happened");
    }
}

/// Starts informers that read each collection: `of_each_form` with a list first, and as many with a
/// watch.
async fn start_informers(
    world: &Arc<World>,
    of_each_form: usize,
    tasks: &mut JoinSet<()>,
) -> Vec<(Scope, Arc<Mutex<Informed>>)> {
    let mut informers = Vec::new();
    for (n, scope) in Scope::every_scope().into_iter().enumerate() {
        for number in 0..2 * of_each_form {
            let streams = number % 2 == 1;
            let name = format!("informer {n}.{number}, streams: {streams}");
            let client = Client::new(world, name).await;
            let informer = Informer::new(client, scope, streams, (n + number) as u64);
            informers.push((scope, informer.informed()));
            tasks.spawn(informer.run());
        }
    }
    informers
}

/// Creates what is read, and the role of Weir's identity.
async fn prepare(admin: &std::path::Path) {
    let client = crate::churn::client(admin).await;
    crate::cuts::objects::prepare(&client).await;
    let rules = json!([
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
        {"nonResourceURLs": ["*"], "verbs": ["*"]},
    ]);
    let role = json!({"metadata": {"name": "weir"}, "rules": rules});
    let path = format!("{RBAC}/clusterroles");
    client.send(json_request("POST", &path, &role)).await.unwrap();
    give_back_role(&client).await;
    // An API server behind the balancer may not have the definition yet.
    for _ in 0..10 {
        while send(&client, "/apis/example.com/v1/widgets", &[]).await.unwrap().status() != 200 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

async fn give_back_role(client: &kube::Client) {
    let binding = json!({
        "metadata": {"name": "weir"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "weir"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}],
    });
    let path = format!("{RBAC}/clusterrolebindings");
    let response = client.send(json_request("POST", &path, &binding)).await.unwrap();
    assert!(response.status().is_success(), "{}", response.status());
}

async fn revoke_role(client: &kube::Client) {
    let path = format!("{RBAC}/clusterrolebindings/weir");
    let response = client.send(json_request("DELETE", &path, &json!({}))).await.unwrap();
    assert!(response.status().is_success(), "{}", response.status());
}

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const WRITERS: u64 = 3;
const CREATORS: usize = 2;
const READERS: u64 = 4;
const CONVERGE_MAX: Duration = Duration::from_secs(60);
const SHORT_PACE: Pace = Pace {
    calm: Duration::from_secs(1),
    fault: Duration::from_secs(3),
    pause: Duration::from_secs(5),
};
const LONG_PACE: Pace = Pace {
    calm: Duration::from_secs(10),
    fault: Duration::from_secs(12),
    pause: Duration::from_secs(20),
};
