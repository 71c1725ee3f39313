//! Figures of failover: a steady load through Weir, while API servers fail.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Method;
use http_body_util::BodyExt;
use parking_lot::Mutex;
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::cluster::Cluster;
use super::writers::mark_of;
use crate::control_plane::{ADMIN, ApiServer};
use crate::suite::objects::create;
use crate::suite::wire::{Answer, Call, Endpoint};
use crate::support::Weir;

/// One of three API servers in a list is killed, hangs, and drains.
pub(crate) fn failover() {
    let mut rig = Rig::start(3);
    rig.phase("steady", |_| std::thread::sleep(PHASE));
    rig.phase("API server 0 is killed", |cluster| {
        cluster.servers[0].kill();
        std::thread::sleep(PHASE);
    });
    rig.phase("API server 0 starts", |cluster| {
        cluster.servers[0].start();
        std::thread::sleep(PHASE);
    });
    rig.phase("API server 1 hangs", |cluster| {
        cluster.servers[1].pause();
        std::thread::sleep(PHASE);
    });
    rig.phase("API server 1 goes on", |cluster| {
        cluster.servers[1].resume();
        std::thread::sleep(PHASE);
    });
    rig.phase("API server 2 drains", |cluster| {
        cluster.servers[2].stop();
        std::thread::sleep(PHASE);
    });
    rig.phase("API server 2 starts", |cluster| {
        cluster.servers[2].start();
        std::thread::sleep(PHASE);
    });
    rig.finish();
}

/// All API servers are killed, and come back.
pub(crate) fn away() {
    let mut rig = Rig::start(3);
    rig.phase("steady", |_| std::thread::sleep(PHASE));
    rig.phase("all API servers are killed", |cluster| {
        cluster.kill_servers();
        std::thread::sleep(PHASE);
    });
    rig.phase("they start", |cluster| {
        cluster.servers.iter_mut().for_each(ApiServer::spawn);
        cluster.servers.iter().for_each(ApiServer::wait_until_ready);
    });
    let ready = Instant::now();
    rig.phase("they are ready", |_| std::thread::sleep(PHASE));
    let samples = rig.samples.lock();
    for kind in KINDS {
        let after = samples.iter().filter(|sample| sample.kind == kind && sample.at > ready);
        let failed = after.filter(|sample| !sample.is_good()).map(|sample| sample.at + sample.took);
        let last = failed.max().map_or(Duration::ZERO, |last| last - ready);
        eprintln!("{kind}: the last failure is {last:.1?} after all API servers are ready");
    }
    drop(samples);
    rig.finish();
}

struct Rig {
    cluster: Cluster,
    weir: Weir,
    samples: Samples,
    windows: Vec<(&'static str, Instant, Instant)>,
    tasks: JoinSet<()>,
    runtime: Runtime,
}

type Samples = Arc<Mutex<Vec<Sample>>>;

struct Sample {
    kind: &'static str,
    at: Instant,
    took: Duration,
    outcome: String,
    mark: String,
}

impl Sample {
    fn is_good(&self) -> bool {
        self.outcome.starts_with('2')
    }

    fn was_refused(&self) -> bool {
        self.outcome.starts_with("503") || self.outcome.starts_with("429")
    }

    /// How long it ran within a phase.
    fn overlap(&self, begin: Instant, end: Instant) -> Duration {
        (self.at + self.took).min(end).saturating_duration_since(self.at.max(begin))
    }
}

impl Rig {
    fn start(servers: usize) -> Self {
        let runtime = Runtime::new().unwrap();
        let cluster = Cluster::start(runtime.handle(), servers);
        let ports = cluster.ports();
        let urls: Vec<_> = ports.iter().map(|port| format!("https://127.0.0.1:{port}")).collect();
        let config = format!("upstream:\n  endpoints:\n    static: {urls:?}\n");
        let weir = Weir::start(&cluster.kubeconfig(ports[0], ADMIN), &config);
        let samples = Samples::default();
        let mut tasks = JoinSet::new();
        runtime.block_on(async {
            let mut direct = cluster.servers[0].endpoint(ADMIN).connection();
            for n in 0..50 {
                let object = json!({"metadata": {"name": format!("o{n}")}});
                create(&mut direct, COLLECTION, &object).await;
            }
            let plain = Endpoint::plain(([127, 0, 0, 1], weir.plain_port()).into());
            while plain.send(&Call::get(format!("{COLLECTION}?resourceVersion=0"))).await.cache()
                != "hit"
            {}
            for kind in KINDS {
                for client in 0..CLIENTS {
                    let (endpoint, samples) = (plain.clone(), Arc::clone(&samples));
                    tasks.spawn(repeat(endpoint, kind, client, samples));
                }
            }
        });
        Self { cluster, weir, samples, windows: Vec::new(), tasks, runtime }
    }

    fn phase(&mut self, name: &'static str, act: impl FnOnce(&mut Cluster)) {
        let began = Instant::now();
        act(&mut self.cluster);
        self.windows.push((name, began, Instant::now()));
    }

    fn finish(mut self) {
        self.tasks.abort_all();
        let samples = self.samples.lock();
        for (name, begin, end) in &self.windows {
            eprintln!("{name} ({:.0?})", *end - *begin);
            for kind in KINDS {
                // A long request belongs to the phase that it waited in, not to its first one.
                let is_here = |sample: &&Sample| {
                    let here = sample.overlap(*begin, *end);
                    sample.kind == kind && !here.is_zero() && here * 2 >= sample.took
                };
                let within: Vec<_> = samples.iter().filter(is_here).collect();
                let mut outcomes: BTreeMap<&str, usize> = BTreeMap::new();
                within.iter().for_each(|sample| *outcomes.entry(&sample.outcome).or_default() += 1);
                let mut took: Vec<_> = within.iter().map(|sample| sample.took).collect();
                took.sort();
                let at = |quantile: usize| {
                    let last = took.len().saturating_sub(1);
                    took.get(last * quantile / 100).copied().unwrap_or_default()
                };
                eprintln!(
                    "  {kind}: {outcomes:?}, p50 {:.2?}, p99 {:.2?}, longest {:.2?}",
                    at(50),
                    at(99),
                    at(100)
                );
            }
        }
        let list = self.runtime.block_on(async {
            let direct = self.cluster.servers[0].endpoint(ADMIN);
            direct.send(&Call::get(COLLECTION)).await.json()
        });
        let mut made: BTreeMap<String, usize> = BTreeMap::new();
        for item in list["items"].as_array().unwrap() {
            let name = item["metadata"]["name"].as_str().unwrap();
            *made.entry(mark_of(name).to_owned()).or_default() += 1;
        }
        let creations: Vec<_> = samples.iter().filter(|sample| sample.kind == "create").collect();
        let count = |wrong: &dyn Fn(&Sample, usize) -> bool| {
            let times = |sample: &&&Sample| made.get(&sample.mark).copied().unwrap_or(0);
            creations.iter().filter(|sample| wrong(sample, times(sample))).count()
        };
        eprintln!(
            "of {} creations {} happened twice, {} were confirmed and did not happen, {} got 503 \
             or 429 and happened",
            creations.len(),
            count(&|_, times| times > 1),
            count(&|sample, times| sample.is_good() && times == 0),
            count(&|sample, times| sample.was_refused() && times > 0)
        );
        let retries = self.weir.admin("/metrics").unwrap().1;
        retries
            .lines()
            .filter(|line| line.starts_with("weir_upstream") && line.contains("retr"))
            .for_each(|line| eprintln!("{line}"));
    }
}

async fn repeat(endpoint: Endpoint, kind: &'static str, client: usize, samples: Samples) {
    let mut connection = endpoint.connection();
    for n in 0_usize.. {
        let mark = format!("mark-{client}-{n}-");
        let object = format!("{COLLECTION}/o{}", n % 50);
        let call = match kind {
            "get at 0" => Call::get(format!("{object}?resourceVersion=0")),
            "consistent get" => Call::get(object),
            "consistent list" => Call::get(COLLECTION),
            _ => {
                let object = json!({"metadata": {"generateName": mark}});
                Call::json(Method::POST, COLLECTION, &object)
            }
        };
        let at = Instant::now();
        let outcome = match kind {
            "consistent list" => outcome_of_list(&endpoint, &call).await,
            _ => outcome_of(&connection.send(&call).await),
        };
        samples.lock().push(Sample { kind, at, took: at.elapsed(), outcome, mark });
        tokio::time::sleep(INTERVAL).await;
    }
}

fn outcome_of(answer: &Answer) -> String {
    match answer.broken {
        Some(how) => how.to_owned(),
        None if answer.status < 400 => answer.status.to_string(),
        None => format!("{} {}", answer.status, answer.json()["message"]),
    }
}

/// Sends a list. Weir cannot send a request again once its response has begun, so the outcome shows
/// whether a long list waited for its head or for the rest of its body.
async fn outcome_of_list(endpoint: &Endpoint, call: &Call) -> String {
    let Some(response) = endpoint.open(call).await else { return "no answer".to_owned() };
    let status = response.status().as_u16();
    let began = Instant::now();
    match response.into_body().collect().await {
        Err(_) => "in the middle".to_owned(),
        Ok(_) if began.elapsed() > LONG_BODY => format!("{status}, waited in its body"),
        Ok(_) => status.to_string(),
    }
}

const COLLECTION: &str = "/api/v1/namespaces/default/configmaps";
const KINDS: [&str; 4] = ["get at 0", "consistent get", "consistent list", "create"];
const CLIENTS: usize = 4;
const INTERVAL: Duration = Duration::from_millis(50);
const PHASE: Duration = Duration::from_secs(12);
/// Longer than the body of any list of healthy API servers takes.
const LONG_BODY: Duration = Duration::from_secs(1);
