//! Validates the section of tracing.

use crate::config::file::TracingSection;
use crate::config::resolve::problems::Collector;
use crate::config::tracing::{TracingConfig, TracingEndpoint};

pub(super) fn tracing(section: TracingSection, problems: &mut Collector) -> TracingConfig {
    let mut config = TracingConfig::default();
    let TracingSection { endpoint, ca_file, sampling_rate_per_million } = section;
    let is_set = endpoint.is_some();
    let parse = |text: String| text.parse::<TracingEndpoint>();
    problems.take("tracing.endpoint", endpoint, parse, |parsed| config.endpoint = Some(parsed));
    match (&mut config.endpoint, ca_file) {
        (Some(endpoint), Some(file)) if endpoint.https => endpoint.ca_file = Some(file),
        (Some(endpoint), None) if endpoint.https => {
            let text = "is missing: with https:// it names the CA of the collector";
            problems.add("tracing.caFile", text);
        }
        (Some(_), Some(_)) => problems.add("tracing.caFile", "is for https:// endpoints"),
        (None, Some(_)) if !is_set => problems.add("tracing.caFile", "needs tracing.endpoint"),
        _ => {}
    }
    let rate = |rate| match rate {
        0..=1_000_000 => Ok(rate),
        _ => Err(format!("must be at most 1000000, which samples every request, not {rate}")),
    };
    problems.take("tracing.samplingRatePerMillion", sampling_rate_per_million, rate, |rate| {
        config.sampling_rate_per_million = rate;
    });
    config
}
