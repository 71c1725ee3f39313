//! Metrics of the limits of API servers. The label `server` is a server's URL, as in
//! [`endpoints`](crate::upstream::endpoints): there are few, and those that left are removed.

use prometheus::{GaugeVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use crate::telemetry::metrics::{families, saturating_i64, sum_with};

families! {
    /// The metrics of all API servers. Cheap to clone.
    #[derive(Clone, Debug)]
    pub(crate) struct LimitFamilies {
        /// Seats of an API server that forwarded requests may take, and those of them that requests
        /// of several seats may take, if these are limited.
        limits: IntGaugeVec = gauge_vec(
            "weir_flowcontrol_upstream_limit_seats",
            &["server", "limit"],
        ),
        /// Seats of an API server that forwarded requests take, by estimate.
        seats: IntGaugeVec = gauge_vec("weir_flowcontrol_upstream_seats", &["server"]),
        /// What a priority level may take of an API server that has refused it with 429, in parts
        /// of its nominal seats there.
        levels: GaugeVec = gauge_vec(
            "weir_flowcontrol_upstream_level_ratio",
            &["server", "priority_level"],
        ),
        /// 429s of an API server for its own load, of one priority level or of the whole server.
        refusals: IntCounterVec = counter_vec(
            "weir_flowcontrol_upstream_refusals_total",
            &["server", "of"],
        ),
    }
}

#[derive(Debug)]
pub(super) struct LimitMetrics {
    families: LimitFamilies,
    url: String,
    limits: [IntGauge; LIMITS.len()],
    seats: IntGauge,
    of_levels: IntCounter,
    of_server: IntCounter,
    exported_levels: Vec<std::sync::Arc<str>>,
}

impl LimitFamilies {
    /// Returns the seats of all API servers that forwarded requests may take.
    pub(crate) fn seats_max(&self) -> Option<f64> {
        sum_with(&self.limits, ("limit", ACTUAL))
    }

    pub(super) fn server(&self, url: &str) -> LimitMetrics {
        LimitMetrics {
            families: self.clone(),
            url: url.to_owned(),
            limits: LIMITS.map(|limit| self.limits.with_label_values(&[url, limit])),
            seats: self.seats.with_label_values(&[url]),
            of_levels: self.refusals.with_label_values(&[url, OF_LEVEL]),
            of_server: self.refusals.with_label_values(&[url, OF_SERVER]),
            exported_levels: Vec::new(),
        }
    }
}

impl LimitMetrics {
    /// Shows the seats of [`LIMITS`], and those in use.
    pub(super) fn show(&self, limits: [u64; LIMITS.len()], in_use: u64) {
        self.limits.iter().zip(limits).for_each(|(gauge, seats)| gauge.set(saturating_i64(seats)));
        self.seats.set(saturating_i64(in_use));
    }

    /// Shows the parts of the levels that the server has refused.
    pub(super) fn show_levels<'a>(&mut self, levels: impl Iterator<Item = (&'a str, f64)>) {
        for level in self.exported_levels.drain(..) {
            drop(self.families.levels.remove_label_values(&[&self.url, &*level]));
        }
        for (level, part) in levels {
            self.families.levels.with_label_values(&[&*self.url, level]).set(part);
            self.exported_levels.push(level.into());
        }
    }

    pub(super) fn refused(&self, is_of_level: bool) {
        if is_of_level { &self.of_levels } else { &self.of_server }.inc();
    }
}

impl Drop for LimitMetrics {
    fn drop(&mut self) {
        self.show_levels(std::iter::empty());
        let LimitFamilies { limits, seats, refusals, .. } = &self.families;
        // One that is missing already is as well.
        for limit in LIMITS {
            drop(limits.remove_label_values(&[&*self.url, limit]));
        }
        drop(seats.remove_label_values(&[&self.url]));
        for scope in [OF_LEVEL, OF_SERVER] {
            drop(refusals.remove_label_values(&[&*self.url, scope]));
        }
    }
}

const ACTUAL: &str = "actual";
const LIMITS: [&str; 2] = [ACTUAL, "wide"];
const OF_LEVEL: &str = "level";
const OF_SERVER: &str = "server";
