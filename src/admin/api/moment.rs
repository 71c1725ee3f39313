//! The state of one moment, of which all contents are made.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::admin::figures::Figures;
use crate::admin::totals::Totals;
use crate::cache::metrics::CacheTotals;
use crate::cache::registry::CacheDescription;
use crate::telemetry::process::ProcessFigures;

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
