//! Flow control: classifies requests as the API server's priority and fairness does, adds up their
//! costs, by client (`docs/decisions/client-costs.md`), and lets those that are forwarded wait for
//! seats of the API server (`docs/decisions/fair-queueing.md`).
//!
//! The plan of FlowSchemas is replaced as a whole ([`source`]); a request sees one plan. [`meter`]
//! counts what a response costs while it is sent. [`report`] is for operators, on the admin
//! listener only; [`metrics`] name no client.
//!
//! Costs are added to one of several batches, so that threads do not wait for each other, and a
//! full batch is added to the windows. A GET that a cache answers is charged as the last one of its
//! connection that was like it ([`memo`]).
//!
//! Lock order: the doctor, then a batch, then the costs; `sources`, then the [`queue`], whose lock
//! is otherwise taken alone. No lock is held across an await.

mod hit_charges;
mod learning;
pub(crate) mod limits;
pub(crate) mod memo;
pub(crate) mod meter;
pub(crate) mod metrics;
mod plan;
pub(crate) mod queue;
pub(crate) mod reading;
mod report;
pub(crate) mod requester;
pub(crate) mod rules;
pub(crate) mod sample;
pub(crate) mod seats;
mod signs;
pub(crate) mod source;
mod twins;
mod upstream_cost;

use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::header::{ACCEPT, ACCEPT_ENCODING};
use http::{HeaderMap, HeaderValue};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::api::keyed_hash::BuildKeyedHash;
use crate::api::request_info::{RequestInfo, Verb};
use crate::config::{FlowControlConfig, FlowControlMode};
use crate::flow::cost::Cost;
use crate::flow::costs::{Batch, Costs, Origin, Text};
use crate::flow::doctor::{Doctor, Finding};
use crate::flow::habit::{AskedForm, Habit, Start};
use crate::flow::plan::Plan;
use crate::flow::rules::Rule;
use crate::server::flow_control::limits::ServerLimits;
use crate::server::flow_control::metrics::FlowMetrics;
pub(crate) use crate::server::flow_control::plan::Placement;
use crate::server::flow_control::plan::{ActivePlan, Class};
use crate::server::flow_control::queue::Queue;
use crate::server::flow_control::rules::Rules;
use crate::server::flow_control::twins::TwinWatches;
use crate::server::request::resolved::Resolved;
use crate::upstream::Upstream;

/// Classifies requests and adds up their costs.
pub struct FlowControl {
    active: ArcSwap<ActivePlan>,
    plan_number: AtomicU64,
    batches: Box<[Mutex<Batch>]>,
    costs: Mutex<Costs>,
    doctor: Mutex<Doctor>,
    started: Instant,
    hasher: BuildKeyedHash,
    /// Whether users are known, so that requests have levels.
    by_user: bool,
    charges: bool,
    queue: Arc<Queue>,
    /// The limits of the API servers, which the queue keeps.
    limits: Arc<ServerLimits>,
    rules: ArcSwap<Rules>,
    /// Whether there are rules, so that a request without them does not load them.
    has_rules: AtomicBool,
    /// The plan of the cluster, and what operators add to it.
    sources: Mutex<(Plan, Vec<Rule>)>,
    metrics: FlowMetrics,
    twins: TwinWatches,
    tended: AtomicUsize,
}

struct Classified {
    class: Arc<Class>,
    /// The hash of the client, the verb and the resource.
    origin: u64,
    /// The hash of these and the habit.
    hash: u64,
    habit: Habit,
}

impl FlowControl {
    /// Begins with kube-apiserver's own plan. `by_user` is whether users are known; else the limit
    /// of seats holds in every mode.
    pub fn new(by_user: bool, config: &FlowControlConfig, metrics: FlowMetrics) -> Arc<Self> {
        let enforces = config.mode == FlowControlMode::Enforce || !by_user;
        let queue = Queue::new(enforces, config.seats_assumed(), metrics.clone());
        let plan = by_user.then(Plan::built_in);
        queue.set_plan(plan.as_ref());
        let rules = config.compiled_rules();
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let active = ActivePlan::new(Plan::built_in(), &rules, &metrics);
        Arc::new(Self {
            plan_number: AtomicU64::new(active.number),
            active: ArcSwap::from_pointee(active),
            batches: (0..threads.min(BATCHES_MAX)).map(|_| Mutex::default()).collect(),
            costs: Mutex::new(Costs::new(Duration::ZERO, by_user)),
            doctor: Mutex::default(),
            started: Instant::now(),
            hasher: BuildKeyedHash::default(),
            by_user,
            charges: config.mode != FlowControlMode::Off,
            queue,
            limits: ServerLimits::new(config, by_user && enforces, metrics.limits()),
            has_rules: AtomicBool::new(!rules.is_empty()),
            rules: ArcSwap::from_pointee(Rules::new(&rules, &metrics)),
            sources: Mutex::new((Plan::built_in(), rules)),
            metrics,
            twins: TwinWatches::default(),
            tended: AtomicUsize::new(0),
        })
    }

    /// Learns and evaluates how many seats the API servers have, until it is dropped.
    pub async fn run_limits(self: Arc<Self>, upstream: Upstream) {
        let (limits, queue) = (&self.limits, &self.queue);
        let learned = learning::learn_seats(limits, &upstream);
        let learned_wide = learning::learn_wide(limits, queue, &upstream);
        tokio::join!(limits::run(limits, queue, &upstream), learned, learned_wide);
    }

    /// Replaces the plan. Requests that were classified keep their class.
    pub(super) fn set_plan(&self, plan: Plan) {
        let mut sources = self.sources.lock();
        sources.0 = plan;
        self.activate(&sources);
    }

    /// Replaces operators' rules. The use of the limits still counts for rules with the same names.
    pub(crate) fn set_rules(&self, rules: Vec<Rule>) {
        let mut sources = self.sources.lock();
        if sources.1 != rules {
            self.rules.store(Arc::new(self.rules.load().replaced(&rules, &self.metrics)));
            self.has_rules.store(!rules.is_empty(), Ordering::Release);
            sources.1 = rules;
            self.activate(&sources);
        }
    }

    fn activate(&self, (plan, rules): &(Plan, Vec<Rule>)) {
        let active = Arc::new(ActivePlan::new(plan.clone(), rules, &self.metrics));
        if self.by_user {
            self.queue.set_plan(Some(&active.plan));
        }
        let before = self.active.swap(Arc::clone(&active));
        self.plan_number.store(active.number, Ordering::Release);
        let is_gone = |labels: &[&str; 2]| active.labels().all(|other| other != *labels);
        for [schema, level] in before.labels().filter(is_gone) {
            self.metrics.remove(schema, level);
        }
    }

    /// Looks after forwarded responses whose clients do not read, and examines clients' habits from
    /// time to time. Call this about once a second.
    pub fn tend(&self) {
        self.queue.tend();
        if !self.charges {
            return;
        }
        if self.tended.fetch_add(1, Ordering::Relaxed).is_multiple_of(EXAMINED_EACH) {
            drop(self.findings());
        }
    }

    pub(crate) fn charges(&self) -> bool {
        self.charges
    }

    /// Returns what clients could do better, and shows it in the metrics.
    pub fn findings(&self) -> Vec<Finding> {
        let mut doctor = self.doctor.lock();
        self.flush();
        let mut costs = self.costs.lock();
        let now = self.started.elapsed();
        costs.decay(now);
        let findings = doctor.examine(now, &costs);
        self.metrics.set_findings(&findings);
        findings
    }

    /// Returns the class of a request and its flow, found once.
    fn placement<'a>(&self, request: &'a Resolved<'_>) -> &'a Placement {
        request.placement(|| {
            let active = self.active.load();
            let Some(user) = request.user() else { return active.unidentified() };
            let candidates = request.client.flows.candidates(&active, user);
            let place = active.plan.classify(&candidates, &request.info);
            active.place(place, user, requester::agent(request.agent.as_ref()), &request.info)
        })
    }

    /// Classifies a request whose sender is known as far as it will be.
    /// `client` is what [`Self::client`] returns.
    fn classify(&self, request: &Resolved<'_>, client: u64, is_read_again: bool) -> Classified {
        let info = &request.info;
        let Placement { class, flow, .. } = self.placement(request);
        let path = requester::path(info);
        let mut hash = self.hasher.hash_one((client, &class.schema, flow, path, info.verb_label()));
        let mut habit = request.habit;
        habit.is_repeated = is_read_again || self.is_list_repeated(request, hash, habit);
        let origin = hash;
        if matches!(info.verb, Verb::List | Verb::Watch) || habit.is_repeated {
            hash = self.hasher.hash_one((hash, habit));
        }
        Classified { class: Arc::clone(class), origin, hash, habit }
    }

    /// Returns what stands for the sender of a request, its user agent and the resource.
    fn client(&self, request: &Resolved<'_>) -> u64 {
        let agent = request.agent.as_ref().map(HeaderValue::as_bytes);
        let resource =
            request.info.resource.as_ref().map(|resource| (&resource.gvr, &resource.subresource));
        self.hasher.hash_one((request.sender(), agent, resource))
    }

    fn origin(&self, request: &Resolved<'_>, habit: Habit) -> Origin {
        let text = |text: &str| Text::new(&self.hasher, text);
        let info = &request.info;
        let Placement { class, flow, .. } = self.placement(request);
        Origin {
            user: text(&request.sender().name()),
            agent: text(requester::agent(request.agent.as_ref())),
            schema: class.schema.clone(),
            flow: text(flow),
            resource: text(&requester::resource(info)),
            verb: info.verb_label(),
            habit,
        }
    }

    /// Adds costs and counts them in the metrics. `hash` stands for the origin.
    fn charge(&self, hash: u64, class: &Class, cost: &Cost, origin: impl FnOnce() -> Origin) {
        class.metrics.add(cost);
        self.add_cost(hash, cost, origin);
    }

    /// Adds costs that the metrics have counted. `hash` stands for the origin.
    fn add_cost(&self, hash: u64, cost: &Cost, origin: impl FnOnce() -> Origin) {
        let index = THREAD.with(|number| *number) % self.batches.len().max(1);
        let Some(batch) = self.batches.get(index) else { return };
        let mut batch = batch.lock();
        if batch.add(hash, cost, origin) {
            self.add_batch(&mut batch);
        }
    }

    fn flush(&self) {
        self.batches.iter().for_each(|batch| self.add_batch(&mut batch.lock()));
    }

    fn add_batch(&self, batch: &mut Batch) {
        let mut costs = self.costs.lock();
        costs.add(self.started.elapsed(), batch);
        self.metrics.show_replaced(costs.replaced());
    }
}

fn selectors(info: &RequestInfo) -> [Option<&str>; 2] {
    ["labelSelector", "fieldSelector"].map(|name| info.query.first(name))
}

/// Returns how a list or a watch is asked for. Other requests have the default.
#[inline]
pub(crate) fn habit(info: &RequestInfo, headers: &HeaderMap) -> Habit {
    if matches!(info.verb, Verb::List | Verb::Watch) {
        collection_habit(info, headers)
    } else {
        Habit::default()
    }
}

fn collection_habit(info: &RequestInfo, headers: &HeaderMap) -> Habit {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let parameter = |name| info.query.first(name);
    Habit {
        start: Start::from_parameters(parameter("resourceVersion"), parameter("continue")),
        is_limited: parameter("limit").is_some_and(|limit| !matches!(limit, "" | "0")),
        form: AskedForm::from_accept(text(ACCEPT)),
        takes_gzip: text(ACCEPT_ENCODING).contains("gzip"),
        is_repeated: false,
    }
}

thread_local! {
    /// The number of the thread, which chooses its batch.
    static THREAD: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed)
    };
}

/// The metric of findings is as old as some scrapes are apart.
const EXAMINED_EACH: usize = 10;

/// Batches beyond the number of worker threads are not needed, and each may hold 56 origins.
const BATCHES_MAX: usize = 64;
