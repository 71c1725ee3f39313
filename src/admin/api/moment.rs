//! The state of one moment, of which all contents are made.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::admin::totals::Totals;
use crate::cache::metrics::CacheTotals;
use crate::cache::registry::CacheDescription;
use crate::server::{FlowFigures, OverloadFigures, ServerFigures};
use crate::telemetry::process::ProcessFigures;
use crate::upstream::metrics::UpstreamFigures;

/// The state of a moment.
#[derive(Debug)]
pub(super) struct Moment {
    pub(super) at: Duration,
    pub(super) time: SystemTime,
    pub(super) figures: Figures,
    /// The caches by name, and the figures of all together.
    pub(super) caches: Vec<CacheDescription>,
    pub(super) all_caches: CacheTotals,
    pub(super) process: ProcessFigures,
    pub(super) totals: Arc<Totals>,
    /// The rates over the last ten seconds, and over the last minute.
    pub(super) rates: [Totals; 2],
    /// The checks of `/readyz` that fail, with their reasons.
    pub(super) failing: Vec<(&'static str, String)>,
}

/// What the parts of Weir show of themselves at one moment.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Requests, watches and connections of clients.
    pub server: ServerFigures,
    /// Requests and connections to the upstream.
    pub upstream: UpstreamFigures,
    /// Weir's own overload.
    pub overload: OverloadFigures,
    /// The seats of the API servers.
    pub flow: FlowFigures,
    /// The bytes of the compressed lists in memory, and their limit.
    pub gzip: [f64; 2],
    /// The configuration in use.
    pub configuration: ConfigurationFigures,
    /// When certificates expire, in seconds since 1970, by their use.
    pub certificates: Vec<(&'static str, i64)>,
}

/// The configuration in use.
#[derive(Clone, Debug, Default)]
pub struct ConfigurationFigures {
    /// The beginning of its hash.
    pub hash: String,
    /// When it was read.
    pub read: Option<SystemTime>,
    /// The number of changed fields that need a restart.
    pub pending: usize,
}
