//! The numbers of one moment, of which all contents are made.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::admin::api::relists::Relists;
use crate::admin::numbers::Numbers;
use crate::admin::totals::Totals;

/// The numbers of a moment.
#[derive(Debug)]
pub(super) struct Moment {
    pub(super) at: Duration,
    pub(super) time: SystemTime,
    pub(super) numbers: Numbers,
    pub(super) totals: Arc<Totals>,
    /// The rates over the last ten seconds, and over the last minute.
    pub(super) rates: [Totals; 2],
    /// How often caches listed again: in all, and in the last hour.
    pub(super) relists: [Relists; 2],
    /// The checks of `/readyz` that fail, with their reasons.
    pub(super) failing: Vec<(&'static str, String)>,
}
