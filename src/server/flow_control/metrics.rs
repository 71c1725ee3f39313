//! Metrics of flow control. Labels are the names of FlowSchemas and priority levels, which the
//! cluster's administrators choose, and never those of users, agents or namespaces.

use std::sync::Arc;
use std::time::Duration;

use prometheus::{Counter, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry};
use prometheus::{CounterVec, Histogram, HistogramVec};

use crate::flow::cost::Cost;
use crate::flow::doctor::{Finding, Rule, Weight};
use crate::flow::schedule::request::{Load, RejectReason};
use crate::server::flow_control::limits::metrics::LimitFamilies;
use crate::server::metrics::CacheStatus;
use crate::telemetry::metrics::{Labelled, families, saturating_i64, sum};

/// The metrics of flow control. Cheap to clone.
#[derive(Clone, Debug)]
pub struct FlowMetrics {
    families: Arc<FlowFamilies>,
    limits: LimitFamilies,
}

families! {
    #[derive(Debug)]
    struct FlowFamilies {
        /// Client requests, by FlowSchema, priority level and cache status.
        requests: IntCounterVec = counter_vec(
            "weir_flowcontrol_requests_total",
            &["flow_schema", "priority_level", "cache_status"],
        ),
        /// Bytes of response bodies, by FlowSchema and priority level.
        bytes: IntCounterVec = counter_vec("weir_flowcontrol_response_bytes_total", &CLASS),
        /// Estimated seats of the API server, times the seconds for which forwarded requests took
        /// them.
        seat_seconds: CounterVec =
            counter_vec("weir_flowcontrol_seat_seconds_total", &CLASS),
        /// Where the FlowSchemas in use come from: 1 for the cluster, or for those built in.
        source: IntGaugeVec = gauge_vec("weir_flowcontrol_config_source", &["source"]),
        /// FlowSchemas and PriorityLevelConfigurations whose last version is not used.
        invalid: IntGaugeVec = gauge_vec("weir_flowcontrol_invalid_objects", &["resource"]),
        /// Habits of clients that cost more than they must, by rule and weight. The admin listener
        /// shows the clients at /api/findings.
        findings: IntGaugeVec = gauge_vec("weir_client_findings", &["rule", "weight"]),
        /// How often a client took the place of a lighter one among the heaviest.
        replaced: IntCounter = counter("weir_flowcontrol_clients_replaced_total"),
        /// Estimated seats of the API servers that forwarded requests of a priority level take.
        seats: IntGaugeVec = gauge_vec("weir_flowcontrol_seats", &LEVEL),
        /// Seats of the API servers that a priority level has by its shares.
        nominal_seats: IntGaugeVec = gauge_vec("weir_flowcontrol_nominal_seats", &LEVEL),
        /// Requests of a priority level that wait to be forwarded.
        waiting: IntGaugeVec = gauge_vec("weir_flowcontrol_waiting_requests", &LEVEL),
        /// Requests of a priority level that had to wait, or in the mode observe would have had to.
        queued: IntCounterVec = counter_vec("weir_flowcontrol_queued_requests_total", &LEVEL),
        /// Requests of a priority level that were refused before they were forwarded, by reason.
        rejected: IntCounterVec = counter_vec(
            "weir_flowcontrol_rejected_requests_total",
            &["priority_level", "reason"],
        ),
        /// Forwarded responses whose clients read slowly: their seats were narrowed to one, or they
        /// were dropped for others that waited.
        slow: IntCounterVec = counters_of(
            "weir_flowcontrol_slow_responses_total",
            ("outcome", &["narrowed", "dropped"]),
        ),
        /// How long requests of a priority level waited before they were forwarded.
        wait: HistogramVec = histogram_vec("weir_flowcontrol_wait_seconds", &LEVEL, &WAIT_SECONDS),
        /// Requests that a rule of flowControl.rules refused, or gave another level, by effect;
        /// those that it only observes are not enforced.
        ruled: IntCounterVec = counter_vec(
            "weir_flowcontrol_rule_effects_total",
            &["rule", "effect", "enforced"],
        ),
    }
}

#[derive(Debug)]
pub(super) struct RuleMetrics {
    name: Arc<str>,
    requests: IntCounterVec,
}

#[derive(Debug)]
pub(super) struct LevelMetrics {
    seats: IntGauge,
    nominal_seats: IntGauge,
    waiting: IntGauge,
    queued: IntCounter,
    rejected: Labelled<RejectReason, IntCounter>,
    wait: Histogram,
}

#[derive(Debug)]
pub(super) struct ClassMetrics {
    requests: Labelled<CacheStatus, IntCounter>,
    bytes: IntCounter,
    seat_seconds: Counter,
}

/// The figures of flow control. There are no seats while nothing is limited.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlowFigures {
    /// Seats of the API servers that forwarded requests take.
    pub seats: Option<f64>,
    /// The most of them.
    pub seats_max: Option<f64>,
    /// Requests that were refused before they were forwarded.
    pub rejected: f64,
}

impl FlowMetrics {
    /// Returns the figures.
    pub fn figures(&self) -> FlowFigures {
        let FlowFamilies { seats, rejected, .. } = &*self.families;
        FlowFigures {
            seats: sum(seats),
            seats_max: self.limits.seats_max(),
            rejected: sum(rejected).unwrap_or(0.0),
        }
    }

    pub(super) fn slow_response(&self, outcome: &str) {
        self.families.slow.with_label_values(&[outcome]).inc();
    }

    /// Registers the metrics. May be called once per registry.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let families = Arc::new(FlowFamilies::register(registry)?);
        Ok(Self { families, limits: LimitFamilies::register(registry)? })
    }

    pub(super) fn limits(&self) -> LimitFamilies {
        self.limits.clone()
    }

    pub(super) fn rule(&self, name: &Arc<str>) -> RuleMetrics {
        RuleMetrics { name: Arc::clone(name), requests: self.families.ruled.clone() }
    }

    pub(super) fn level(&self, level: &str) -> LevelMetrics {
        let FlowFamilies { seats, nominal_seats, waiting, queued, rejected, wait, .. } =
            &*self.families;
        LevelMetrics {
            seats: seats.with_label_values(&[level]),
            nominal_seats: nominal_seats.with_label_values(&[level]),
            waiting: waiting.with_label_values(&[level]),
            queued: queued.with_label_values(&[level]),
            rejected: Labelled::of_each(|reason: RejectReason| {
                rejected.with_label_values(&[level, reason.as_str()])
            }),
            wait: wait.with_label_values(&[level]),
        }
    }

    pub(super) fn remove_level(&self, level: &str) {
        let FlowFamilies { seats, nominal_seats, waiting, queued, rejected, wait, .. } =
            &*self.families;
        for reason in RejectReason::ALL {
            drop(rejected.remove_label_values(&[level, reason.as_str()]));
        }
        for gauge in [seats, nominal_seats, waiting] {
            drop(gauge.remove_label_values(&[level]));
        }
        drop(queued.remove_label_values(&[level]));
        drop(wait.remove_label_values(&[level]));
    }

    pub(super) fn class(&self, schema: &str, level: &str) -> ClassMetrics {
        let FlowFamilies { requests, bytes, seat_seconds, .. } = &*self.families;
        ClassMetrics {
            requests: Labelled::of_each(|status: CacheStatus| {
                requests.with_label_values(&[schema, level, status.as_str()])
            }),
            bytes: bytes.with_label_values(&[schema, level]),
            seat_seconds: seat_seconds.with_label_values(&[schema, level]),
        }
    }

    pub(super) fn remove(&self, schema: &str, level: &str) {
        let FlowFamilies { requests, bytes, seat_seconds, .. } = &*self.families;
        for status in CacheStatus::ALL {
            // One that is missing already is as well.
            drop(requests.remove_label_values(&[schema, level, status.as_str()]));
        }
        drop(bytes.remove_label_values(&[schema, level]));
        drop(seat_seconds.remove_label_values(&[schema, level]));
    }

    pub(super) fn set_source(&self, is_cluster: bool) {
        for (source, is_used) in [("cluster", is_cluster), ("builtin", !is_cluster)] {
            self.families.source.with_label_values(&[source]).set(i64::from(is_used));
        }
    }

    pub(super) fn set_invalid(&self, resource: &str, count: usize) {
        let count = saturating_i64(count as u64);
        self.families.invalid.with_label_values(&[resource]).set(count);
    }

    pub(super) fn set_findings(&self, findings: &[Finding]) {
        for (rule, weight) in
            Rule::ALL.into_iter().flat_map(|rule| Weight::ALL.map(|weight| (rule, weight)))
        {
            let is_it = |finding: &&Finding| finding.rule == rule && finding.weight == weight;
            let count = saturating_i64(findings.iter().filter(is_it).count());
            let labels = [rule.as_str(), weight.as_str()];
            self.families.findings.with_label_values(&labels).set(count);
        }
    }

    /// Shows how often a client took the place of another, until now. One call at a time.
    pub(super) fn show_replaced(&self, count: u64) {
        let reported = self.families.replaced.get();
        self.families.replaced.inc_by(count.saturating_sub(reported));
    }
}

impl RuleMetrics {
    pub(super) fn count(&self, effect: &str, is_enforced: bool) {
        let enforced = if is_enforced { "true" } else { "false" };
        self.requests.with_label_values(&[&*self.name, effect, enforced]).inc();
    }
}

impl LevelMetrics {
    pub(super) fn show(&self, load: Load) {
        self.seats.set(saturating_i64(load.seats));
        self.waiting.set(saturating_i64(load.waiting));
        self.nominal_seats.set(saturating_i64(load.nominal));
    }

    pub(super) fn queue(&self) {
        self.queued.inc();
    }

    pub(super) fn reject(&self, reason: RejectReason) {
        self.rejected.get(reason).inc();
    }

    /// Notes how long a request waited that is sent now.
    pub(super) fn waited(&self, time: Duration) {
        self.wait.observe(time.as_secs_f64());
    }
}

impl ClassMetrics {
    /// Counts a request that a cache answered, and the bytes of its body.
    pub(super) fn add_hit(&self, bytes: u64) {
        self.requests.get(CacheStatus::Hit).inc();
        self.bytes.inc_by(bytes);
    }

    /// Adds the cost of a request, or of a part of one.
    pub(super) fn add(&self, cost: &Cost) {
        let Cost { requests, forwarded, refused, bytes, seat_seconds, .. } = *cost;
        if requests > 0.0 {
            let status = match (forwarded > 0.0, refused > 0.0) {
                (true, _) => CacheStatus::Forward,
                (false, true) => CacheStatus::Error,
                (false, false) => CacheStatus::Hit,
            };
            self.requests.get(status).inc_by(requests as u64);
        }
        if bytes > 0.0 {
            self.bytes.inc_by(bytes as u64);
        }
        if seat_seconds > 0.0 {
            self.seat_seconds.inc_by(seat_seconds);
        }
    }
}

const CLASS: [&str; 2] = ["flow_schema", "priority_level"];
const LEVEL: [&str; 1] = ["priority_level"];
const WAIT_SECONDS: [f64; 9] = [0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0];
