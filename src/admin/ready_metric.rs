//! `weir_ready`: whether `/readyz` would pass now, for alerts on the ordinary scrape.

use std::sync::Arc;

use prometheus::{IntGaugeVec, Opts, Registry};

use crate::admin::health::Checks;
use crate::telemetry::metrics::{OnScrape, register};

/// Registers `weir_ready`, for which each scrape runs the checks.
pub(crate) fn register_ready(
    registry: &Registry,
    checks: Arc<Checks>,
) -> Result<(), prometheus::Error> {
    let options = Opts::new("weir_ready", "Whether a check of /readyz passes now.");
    let family = IntGaugeVec::new(options, &["check"])?;
    let fill = move |family: &IntGaugeVec| {
        for (check, passes) in checks.ready_now() {
            family.with_label_values(&[check]).set(i64::from(passes));
        }
    };
    register(registry, OnScrape { family, fill })
}

#[cfg(test)]
mod tests {
    use prometheus::TextEncoder;

    use super::*;
    use crate::admin::health::Endpoint;

    fn text(registry: &Registry) -> String {
        TextEncoder::new().encode_to_string(&registry.gather()).unwrap()
    }

    #[test]
    fn each_scrape_shows_what_readyz_would_say() {
        let registry = Registry::new();
        let is_away = Arc::new(std::sync::atomic::AtomicBool::new(true));
        let read = Arc::clone(&is_away);
        let checks = Checks::new().ready("upstream", move || {
            match read.load(std::sync::atomic::Ordering::Relaxed) {
                true => Err("is away".to_owned()),
                false => Ok(()),
            }
        });
        register_ready(&registry, Arc::new(checks)).unwrap();
        let away = text(&registry);
        assert!(away.contains("weir_ready{check=\"ping\"} 1\n"), "{away}");
        assert!(away.contains("weir_ready{check=\"upstream\"} 0\n"), "{away}");
        is_away.store(false, std::sync::atomic::Ordering::Relaxed);
        assert!(text(&registry).contains("weir_ready{check=\"upstream\"} 1\n"));
    }

    /// The text is that of a component of Kubernetes.
    #[test]
    fn the_results_of_checks_are_counted_as_in_kubernetes() {
        let checks = Checks::new().ready("upstream", || Err("is away".to_owned()));
        checks.report(Endpoint::Ready, None, "").unwrap();
        checks.report(Endpoint::Ready, Some("upstream"), "").unwrap();
        checks.report(Endpoint::Ready, None, "exclude=upstream").unwrap();
        checks.report(Endpoint::Live, None, "").unwrap();
        assert_eq!(
            text(checks.observed.registry()),
            "\
# HELP kubernetes_healthcheck This metric records the result of a single healthcheck.
# TYPE kubernetes_healthcheck gauge
kubernetes_healthcheck{name=\"ping\",type=\"livez\"} 1
kubernetes_healthcheck{name=\"ping\",type=\"readyz\"} 1
kubernetes_healthcheck{name=\"upstream\",type=\"readyz\"} 0
# HELP kubernetes_healthchecks_total This metric records the results of all healthcheck.
# TYPE kubernetes_healthchecks_total counter
kubernetes_healthchecks_total{name=\"ping\",status=\"success\",type=\"livez\"} 1
kubernetes_healthchecks_total{name=\"ping\",status=\"success\",type=\"readyz\"} 2
kubernetes_healthchecks_total{name=\"upstream\",status=\"error\",type=\"readyz\"} 2
"
        );
    }
}
