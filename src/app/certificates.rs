//! `weir_certificate_expiry_timestamp_seconds`: when the certificates in use expire, read at each
//! scrape, so that it follows their rotation.

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntGaugeVec, Opts, Registry};

use crate::telemetry::metrics::register;

/// Returns when certificates expire, in seconds since 1970; `None` without any.
pub(super) type Expiry = Box<dyn Fn() -> Option<i64> + Send + Sync>;

/// Registers the metric of these certificates, by their use.
pub(super) fn register_expiries(
    registry: &Registry,
    sources: Vec<(&'static str, Expiry)>,
) -> Result<(), prometheus::Error> {
    let options = Opts::new(
        "weir_certificate_expiry_timestamp_seconds",
        "When the first certificate of a use expires, in seconds since the epoch: serving (to clients), client and front-proxy (to the API server), ca (of the API server).",
    );
    let family = IntGaugeVec::new(options, &["use"])?;
    register(registry, CertificateCollector { sources, family })
}

struct CertificateCollector {
    sources: Vec<(&'static str, Expiry)>,
    family: IntGaugeVec,
}

impl Collector for CertificateCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.family.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.family.reset();
        for (label, expiry) in &self.sources {
            if let Some(at) = expiry() {
                self.family.with_label_values(&[label]).set(at);
            }
        }
        self.family.collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicI64, Ordering};

    use prometheus::TextEncoder;

    use super::*;

    #[test]
    fn each_scrape_reads_the_certificates_in_use() {
        let registry = Registry::new();
        let end = Arc::new(AtomicI64::new(1_893_456_000));
        let read = Arc::clone(&end);
        let serving: Expiry = Box::new(move || Some(read.load(Ordering::Relaxed)));
        let none: Expiry = Box::new(|| None);
        register_expiries(&registry, vec![("serving", serving), ("client", none)]).unwrap();
        let text = || TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        let name = "weir_certificate_expiry_timestamp_seconds";
        assert!(text().contains(&format!("{name}{{use=\"serving\"}} 1893456000\n")), "{}", text());
        assert!(!text().contains("client\"}"));
        end.store(1_924_992_000, Ordering::Relaxed);
        assert!(text().contains(&format!("{name}{{use=\"serving\"}} 1924992000\n")));
    }
}
