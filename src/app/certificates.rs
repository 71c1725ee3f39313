//! When the certificates in use expire: `weir_certificate_expiry_timestamp_seconds`, read at each
//! scrape, so that it follows their rotation, and notable events in the last week.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use prometheus::{IntGaugeVec, Opts, Registry};

use crate::server::Server;
use crate::telemetry::events::{EventKind, Events};
use crate::telemetry::metrics::{OnScrape, register};
use crate::upstream::Upstream;

/// Returns when certificates expire, in seconds since 1970; `None` without any.
pub(super) type Expiry = Arc<dyn Fn() -> Option<i64> + Send + Sync>;

/// The certificates of a Weir, by their use.
pub(super) type Expiries = Vec<(&'static str, Expiry)>;

/// Returns the certificates of a Weir, whose expiries are metrics of the registry.
pub(super) fn expiries(
    registry: &Registry,
    upstream: &Upstream,
    front_proxy: Option<Upstream>,
    server: &Server,
) -> anyhow::Result<Expiries> {
    let (client, ca) = (upstream.clone(), upstream.clone());
    let front_proxy = move || front_proxy.as_ref()?.certificate_expiries().client;
    let expiries: Expiries = vec![
        ("serving", Arc::new(server.serving_expiry())),
        ("client", Arc::new(move || client.certificate_expiries().client)),
        ("front-proxy", Arc::new(front_proxy)),
        ("ca", Arc::new(move || ca.certificate_expiries().ca)),
    ];
    register_expiries(registry, expiries.clone()).context("cannot register metrics")?;
    Ok(expiries)
}

/// The nearness of the expiry of a certificate. The alerts have the same bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Far,
    Week,
    Day,
    Expired,
}

impl Stage {
    /// Returns the stage for these seconds until the expiry.
    fn from_seconds(seconds: i64) -> Self {
        match seconds {
            ..=0 => Self::Expired,
            1..DAY => Self::Day,
            DAY..WEEK => Self::Week,
            _ => Self::Far,
        }
    }

    fn describe(self) -> &'static str {
        match self {
            Self::Far => "The certificate was renewed.",
            Self::Week => "The certificate expires within a week.",
            Self::Day => "The certificate expires within a day.",
            Self::Expired => "The certificate has expired.",
        }
    }
}

/// Logs and notes when certificates expire soon and when they were renewed, until the future is
/// dropped.
pub(super) async fn run(sources: Expiries, events: Events) {
    let mut stages = vec![Stage::Far; sources.len()];
    loop {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        for ((name, expiry), stage) in sources.iter().zip(&mut stages) {
            let left = expiry().map(|at| at.saturating_sub(now));
            if let Some(changed) = change(stage, left) {
                let text = changed.describe();
                events.notable(EventKind::Certificate, name, text, |left_out| match changed {
                    Stage::Far => tracing::info!(certificate = name, left_out, "{text}"),
                    _ => tracing::warn!(certificate = name, left_out, "{text}"),
                });
            }
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Returns the stage that was reached since the last call.
fn change(last: &mut Stage, left: Option<i64>) -> Option<Stage> {
    let stage = Stage::from_seconds(left?);
    (std::mem::replace(last, stage) != stage).then_some(stage)
}

const DAY: i64 = 24 * 3600;
const WEEK: i64 = 7 * DAY;
/// Certificates are renewed hours before they expire.
const INTERVAL: Duration = Duration::from_secs(60);

/// Registers the metric of these certificates, by their use.
pub(super) fn register_expiries(
    registry: &Registry,
    sources: Expiries,
) -> Result<(), prometheus::Error> {
    let options = Opts::new(
        "weir_certificate_expiry_timestamp_seconds",
        "When the first certificate of a use expires, in seconds since the epoch: serving (to clients), client and front-proxy (to the API server), ca (of the API server).",
    );
    let family = IntGaugeVec::new(options, &["use"])?;
    let fill = move |family: &IntGaugeVec| {
        family.reset();
        for (label, expiry) in &sources {
            if let Some(at) = expiry() {
                family.with_label_values(&[label]).set(at);
            }
        }
    };
    register(registry, OnScrape { family, fill })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use prometheus::TextEncoder;

    use super::*;

    #[test]
    fn each_scrape_reads_the_certificates_in_use() {
        let registry = Registry::new();
        let end = Arc::new(AtomicI64::new(1_893_456_000));
        let read = Arc::clone(&end);
        let serving: Expiry = Arc::new(move || Some(read.load(Ordering::Relaxed)));
        let none: Expiry = Arc::new(|| None);
        register_expiries(&registry, vec![("serving", serving), ("client", none)]).unwrap();
        let text = || TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        let name = "weir_certificate_expiry_timestamp_seconds";
        assert!(text().contains(&format!("{name}{{use=\"serving\"}} 1893456000\n")), "{}", text());
        assert!(!text().contains("client\"}"));
        end.store(1_924_992_000, Ordering::Relaxed);
        assert!(text().contains(&format!("{name}{{use=\"serving\"}} 1924992000\n")));
    }

    #[test]
    fn each_stage_is_noted_once_and_so_is_the_renewal() {
        let mut stage = Stage::Far;
        let mut noted = Vec::new();
        for left in [30 * DAY, 6 * DAY, 5 * DAY, DAY - 1, 1, 0, -5, 90 * DAY, 80 * DAY] {
            noted.extend(change(&mut stage, Some(left)));
        }
        assert_eq!(noted, [Stage::Week, Stage::Day, Stage::Expired, Stage::Far]);
        assert_eq!(change(&mut stage, None), None, "there is no certificate");
    }

    #[tokio::test(start_paused = true)]
    async fn an_expired_certificate_is_a_notable_event() {
        let events = Events::default();
        let expired: Expiry = Arc::new(|| Some(1));
        let running = tokio::spawn(run(vec![("serving", expired)], events.clone()));
        tokio::time::sleep(5 * INTERVAL).await;
        running.abort();
        let noted = events.since(0);
        assert_eq!(noted.len(), 1);
        assert_eq!((&*noted[0].subject, noted[0].count), ("serving", 1));
        assert_eq!(&*noted[0].text, "The certificate has expired.");
    }
}
