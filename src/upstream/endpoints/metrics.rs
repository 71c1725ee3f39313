//! Metrics of each API server, and of the addresses that may not be used. The label `server` is its
//! URL: there are at most [`SERVERS_MAX`](crate::config::endpoints::SERVERS_MAX) and those that
//! left the set are removed.

use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry};

use super::health::State;
use crate::telemetry::metrics::{counter, counter_vec, gauge, gauge_vec};

/// The metrics of all API servers. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct EndpointsMetrics {
    states: IntGaugeVec,
    admitted: IntGaugeVec,
    requests: IntCounterVec,
    errors: IntCounterVec,
    ejections: IntCounterVec,
    /// Whether addresses were found and cannot be checked.
    pub(crate) unverified: IntGauge,
    retries: IntCounter,
    retries_refused: IntCounter,
    /// Reads that went to an API server which may lag behind the one before it.
    pub(crate) uncertain_reads: IntCounter,
}

impl EndpointsMetrics {
    pub(crate) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        Ok(Self {
            states: gauge_vec(
                registry,
                "weir_upstream_server_state",
                "Whether an API server is in a state: usable, draining, ejected, half-open, unreachable.",
                &["server", "state"],
            )?,
            admitted: gauge_vec(
                registry,
                "weir_upstream_server_admitted",
                "Whether an API server may be used: 0 for one of another cluster, or not known to be of this one.",
                &["server"],
            )?,
            requests: counter_vec(
                registry,
                "weir_upstream_server_requests_total",
                "Requests that were sent to an API server.",
                &["server"],
            )?,
            errors: counter_vec(
                registry,
                "weir_upstream_server_errors_total",
                "Requests to an API server without a response: there was no connection, or it broke.",
                &["server"],
            )?,
            ejections: counter_vec(
                registry,
                "weir_upstream_server_ejections_total",
                "How often an API server was ejected because requests failed.",
                &["server"],
            )?,
            unverified: gauge(
                registry,
                "weir_upstream_servers_unverified",
                "Addresses of API servers that were found and are not used, since Weir may not read the namespace kube-system.",
            )?,
            retries: counter(
                registry,
                "weir_upstream_retries_total",
                "Requests that were sent again, because the API server surely did not process them, or was overloaded.",
            )?,
            retries_refused: counter(
                registry,
                "weir_upstream_retries_refused_total",
                "Requests that were not sent again, because too many others were.",
            )?,
            uncertain_reads: counter(
                registry,
                "weir_upstream_uncertain_reads_total",
                "Reads that may show an older state than their client was shown: its API server changed, and no other was found to be as far.",
            )?,
        })
    }

    /// Counts a request that is sent again, or is not because too many others were.
    pub(crate) fn retried(&self, may: bool) {
        if may { &self.retries } else { &self.retries_refused }.inc();
    }

    /// Returns the metrics of one API server. They are looked up once: a request that still runs
    /// after the server has left the set then cannot bring a series back.
    pub(super) fn server(&self, url: &str) -> ServerMetrics {
        ServerMetrics {
            families: self.clone(),
            states: STATES.map(|word| self.states.with_label_values(&[url, word])),
            admitted: self.admitted.with_label_values(&[url]),
            requests: self.requests.with_label_values(&[url]),
            errors: self.errors.with_label_values(&[url]),
            ejections: self.ejections.with_label_values(&[url]),
            url: url.to_owned(),
        }
    }
}

/// The metrics of one API server.
#[derive(Debug)]
pub(crate) struct ServerMetrics {
    families: EndpointsMetrics,
    url: String,
    /// One for each of [`STATES`].
    states: [IntGauge; STATES.len()],
    admitted: IntGauge,
    requests: IntCounter,
    errors: IntCounter,
    ejections: IntCounter,
}

impl ServerMetrics {
    /// Counts a request.
    pub(crate) fn sent(&self) {
        self.requests.inc();
    }

    pub(super) fn failed(&self) {
        self.errors.inc();
    }

    pub(super) fn ejected(&self, times: u64) {
        self.ejections.inc_by(times);
    }

    pub(super) fn admitted(&self, is_admitted: bool) {
        self.admitted.set(i64::from(is_admitted));
    }

    pub(super) fn state(&self, state: State) {
        for (word, gauge) in STATES.iter().zip(&self.states) {
            gauge.set(i64::from(*word == state.as_str()));
        }
    }

    /// Removes the series of a server that left the set.
    pub(super) fn remove(&self) {
        for word in STATES {
            drop(self.families.states.remove_label_values(&[self.url.as_str(), word]));
        }
        drop(self.families.admitted.remove_label_values(&[&self.url]));
        for family in [&self.families.requests, &self.families.errors, &self.families.ejections] {
            drop(family.remove_label_values(&[&self.url]));
        }
    }
}

/// The words of [`State::as_str`].
const STATES: [&str; 5] = ["usable", "draining", "ejected", "half-open", "unreachable"];
