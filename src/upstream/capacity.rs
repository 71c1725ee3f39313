//! The capacity of one API server: the seats that its metrics name, and how long a short request of
//! Weir's own takes there (`docs/decisions/adaptive-limits.md`).

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use http::StatusCode;
use http_body_util::BodyExt;
use tokio::time::Instant;

use crate::upstream::Upstream;
use crate::upstream::bounded::{read_body, with_timeout};
use crate::upstream::endpoints::ApiServer;
use crate::upstream::error::{UpstreamError, chain};
use crate::upstream::fetch::Get;
use crate::upstream::one_server::OneServer;
use crate::upstream::pool;

/// Asks an API server for its metrics, and returns the seats of all its priority levels together:
/// `--max-requests-inflight` and `--max-mutating-requests-inflight`, which it divides among them.
/// `None` if it has no priority and fairness.
pub(crate) async fn nominal_seats(
    upstream: &Upstream,
    server: &Arc<ApiServer>,
) -> Result<Option<u64>, UpstreamError> {
    let asked = async {
        let mut server = OneServer::connect_to(upstream, server).await?;
        let get = Get { accept: "text/plain", ..Get::json("/metrics") };
        sum_of_levels(get.send_to(&mut server).await?.into_body()).await
    };
    with_timeout(METRICS_TIMEOUT, asked).await
}

/// Reads metrics until the seats of the levels end, or [`METRICS_BYTES_MAX`]. The metrics of a
/// large cluster have many megabytes, which are not kept.
async fn sum_of_levels(mut body: pool::Body) -> Result<Option<u64>, UpstreamError> {
    let (mut levels, mut line, mut read) = (LevelSeats::default(), Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| UpstreamError::Lost(chain(&error)))?;
        let Ok(chunk) = frame.into_data() else { continue };
        read += chunk.len();
        let mut lines = chunk.split(|byte| *byte == b'\n').peekable();
        while let Some(piece) = lines.next() {
            if line.len() + piece.len() <= LINE_BYTES_MAX {
                line.extend_from_slice(piece);
            }
            let is_whole = lines.peek().is_some();
            if is_whole && levels.add(&std::mem::take(&mut line)) {
                return Ok(levels.sum);
            }
        }
        if read > METRICS_BYTES_MAX {
            return Err(UpstreamError::TooLong(METRICS_BYTES_MAX));
        }
    }
    levels.add(&line);
    Ok(levels.sum)
}

/// The sum of the seats of the levels, as far as the metrics were read.
#[derive(Debug, Default)]
struct LevelSeats {
    sum: Option<u64>,
}

impl LevelSeats {
    /// Adds a line. Returns whether the lines of all levels were read: they follow each other.
    fn add(&mut self, line: &[u8]) -> bool {
        let Some(sample) = line.strip_prefix(NOMINAL_SEATS) else { return self.sum.is_some() };
        let text = std::str::from_utf8(sample).ok();
        let value = text.and_then(|text| text.rsplit(' ').next()?.parse::<f64>().ok());
        if let Some(value) = value.filter(|value| (0.0..SEATS_MAX).contains(value)) {
            self.sum = Some(self.sum.unwrap_or(0) + value as u64);
        }
        false
    }
}

/// Short requests to one API server, one after the other, over one connection.
pub(crate) struct ShortRequests {
    server: Arc<ApiServer>,
    connection: Option<OneServer>,
}

impl ShortRequests {
    pub(crate) fn new(server: Arc<ApiServer>) -> Self {
        Self { server, connection: None }
    }

    /// Returns how long the next one takes: `Some(None)` if it is refused, or gets no answer in
    /// [`SHORT_TIMEOUT`]. `None` says nothing about the load: the server is away, or has closed the
    /// connection.
    pub(crate) async fn next(&mut self, upstream: &Upstream) -> Option<Option<Duration>> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => {
                let opened = OneServer::connect_to(upstream, &self.server).boxed();
                match with_timeout(SHORT_TIMEOUT, opened).await {
                    Ok(connection) => connection,
                    Err(UpstreamError::Timeout(_)) => return Some(None),
                    Err(_) => return None,
                }
            }
        };
        let began = Instant::now();
        let asked = async {
            let body = Get::json("/version").send_to(&mut connection).await?.into_body();
            read_body(body, VERSION_BYTES_MAX).await
        };
        match with_timeout(SHORT_TIMEOUT, asked).await {
            Err(UpstreamError::Timeout(_)) => Some(None),
            Err(UpstreamError::Status { code, .. })
                if code == StatusCode::TOO_MANY_REQUESTS || code.is_server_error() =>
            {
                Some(None)
            }
            Ok(_) | Err(UpstreamError::Status { .. }) => {
                let latency = began.elapsed();
                self.connection = Some(connection);
                Some(Some(latency))
            }
            Err(_) => None,
        }
    }
}

/// The sample of one priority level, without its labels.
const NOMINAL_SEATS: &[u8] = b"apiserver_flowcontrol_nominal_limit_seats{";
/// More than any API server has.
const SEATS_MAX: f64 = 1e6;
const METRICS_TIMEOUT: Duration = Duration::from_secs(10);
const METRICS_BYTES_MAX: usize = 256 << 20;
const LINE_BYTES_MAX: usize = 16 << 10;
/// The longest wait for a short request.
const SHORT_TIMEOUT: Duration = Duration::from_secs(1);
const VERSION_BYTES_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seats_of_all_levels_are_added_up() {
        let lines = [
            "# TYPE apiserver_flowcontrol_nominal_limit_seats gauge",
            "apiserver_flowcontrol_nominal_limit_seats{priority_level=\"catch-all\"} 13",
            "apiserver_flowcontrol_nominal_limit_seats{priority_level=\"exempt\"} 0",
            "apiserver_flowcontrol_nominal_limit_seats{priority_level=\"odd\"} NaN",
            "apiserver_flowcontrol_nominal_limit_seats{priority_level=\"system\"} 7.4e+01",
        ];
        let mut levels = LevelSeats::default();
        for line in lines {
            assert!(!levels.add(line.as_bytes()), "{line}");
        }
        assert!(levels.add(b"# HELP apiserver_flowcontrol_priority_level_request_utilization"));
        assert_eq!(levels.sum, Some(87));
        assert!(!LevelSeats::default().add(b"go_goroutines 7"));
    }
}
