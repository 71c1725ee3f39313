//! `/debug/pprof/profile`: a CPU profile of this process, for those who may see details. The path
//! and its parameters are those of Go's programs, so that `go tool pprof URL` works.

use std::ops::RangeInclusive;
use std::time::Duration;

use http::header::CONTENT_DISPOSITION;
use http::{HeaderValue, Method, Response, StatusCode};
use prometheus::Registry;

use crate::admin::numbers::Numbers;
use crate::admin::respond::{method_not_allowed, respond, text};
use crate::api::query::Query;
use crate::server::http::body::Body;
use crate::telemetry::cpu_profile::{self, MEMORY_BYTES, ProfileError};

/// The path of the profile.
pub(super) const PATH: &str = "/debug/pprof/profile";

/// Records a profile, and returns it.
pub(super) async fn answer(method: &Method, query: &str, registry: &Registry) -> Response<Body> {
    if method != Method::GET {
        return method_not_allowed("GET");
    }
    let recording = match Recording::parse(query) {
        Ok(recording) => recording,
        Err(message) => return text(StatusCode::BAD_REQUEST, message),
    };
    if memory_left(registry).is_some_and(|bytes| bytes < MEMORY_BYTES as f64) {
        return text(StatusCode::SERVICE_UNAVAILABLE, NO_MEMORY);
    }
    match cpu_profile::record(recording.length, recording.frequency).await {
        Ok(profile) => {
            let mut response = respond(StatusCode::OK, "application/octet-stream", profile);
            let name = HeaderValue::from_static("attachment; filename=\"weir.pb.gz\"");
            response.headers_mut().insert(CONTENT_DISPOSITION, name);
            response
        }
        Err(error) => {
            let status = match error {
                ProfileError::Busy => StatusCode::CONFLICT,
                ProfileError::Unsupported => StatusCode::NOT_IMPLEMENTED,
                ProfileError::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
            };
            text(status, format!("{error}\n"))
        }
    }
}

/// The parameters of a request.
#[derive(Debug, PartialEq, Eq)]
struct Recording {
    length: Duration,
    /// Samples for each second of CPU time.
    frequency: u32,
}

impl Recording {
    /// Parses the query of a URL. The error is for whoever asks.
    fn parse(query: &str) -> Result<Self, String> {
        let query = Query::parse(query);
        let number = |name: &str, default: u32, range: RangeInclusive<u32>| {
            let Some(text) = query.first(name) else { return Ok(default) };
            let number = text.parse().ok().filter(|number| range.contains(number));
            let wrong =
                || format!("{name} must be a number from {} to {}\n", range.start(), range.end());
            number.ok_or_else(wrong)
        };
        let seconds = number("seconds", SECONDS_DEFAULT, 1..=SECONDS_MAX)?;
        let frequency = number("frequency", FREQUENCY_DEFAULT, 1..=FREQUENCY_MAX)?;
        Ok(Self { length: Duration::from_secs(seconds.into()), frequency })
    }
}

/// Returns how many bytes this process may still use; `None` without a limit.
fn memory_left(registry: &Registry) -> Option<f64> {
    let numbers = Numbers::gather(registry);
    let limit = numbers.find("weir_memory_limit_bytes", &[]);
    let limit = limit.filter(|limit| limit.is_finite() && *limit > 0.0)?;
    Some(limit - numbers.find("process_resident_memory_bytes", &[])?)
}

const SECONDS_DEFAULT: u32 = 10;
/// A longer one is several.
const SECONDS_MAX: u32 = 60;
/// No multiple of the period of a timer, so that no timer's work is always or never sampled.
const FREQUENCY_DEFAULT: u32 = 99;
/// The handler of a sample takes some microseconds, and so at most some percent of the time.
const FREQUENCY_MAX: u32 = 1_000;
const NO_MEMORY: &str = "too near the memory limit: a profile needs up to 256 MiB\n";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::metrics::{float_gauge, gauge};

    #[test]
    fn the_length_and_the_frequency_are_bounded() {
        let recording =
            |seconds, frequency| Ok(Recording { length: Duration::from_secs(seconds), frequency });
        assert_eq!(Recording::parse(""), recording(10, 99));
        assert_eq!(Recording::parse("seconds=60&frequency=1000&debug=1"), recording(60, 1_000));
        for seconds in ["0", "61", "-1", "1.5", "x", ""] {
            let error = Recording::parse(&format!("seconds={seconds}")).unwrap_err();
            assert_eq!(error, "seconds must be a number from 1 to 60\n");
        }
        for frequency in ["0", "1001", "99Hz"] {
            let error = Recording::parse(&format!("frequency={frequency}")).unwrap_err();
            assert_eq!(error, "frequency must be a number from 1 to 1000\n");
        }
    }

    #[tokio::test]
    async fn what_cannot_be_recorded_is_refused() {
        let registry = Registry::new();
        let ask = async |method: Method, query: &str| answer(&method, query, &registry).await;
        assert_eq!(ask(Method::HEAD, "").await.status(), StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(ask(Method::GET, "seconds=61").await.status(), StatusCode::BAD_REQUEST);
        let limit = float_gauge(&registry, "weir_memory_limit_bytes", "Bytes.").unwrap();
        limit.set(300e6);
        gauge(&registry, "process_resident_memory_bytes", "Bytes.").unwrap().set(200_000_000);
        assert_eq!(ask(Method::GET, "seconds=1").await.status(), StatusCode::SERVICE_UNAVAILABLE);
        limit.set(f64::INFINITY);
        assert_eq!(memory_left(&registry), None);
    }
}
