//! A scrape: a registry in Prometheus' text format, compressed for clients that accept gzip, as
//! Prometheus does. The names of metrics and labels repeat, so that a text shrinks to a tenth.

use std::io::{self, Write as _};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{CONTENT_ENCODING, VARY};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use prometheus::{Registry, TEXT_FORMAT, TextEncoder};

use crate::admin::respond::{respond, text};
use crate::api::media_type::accepts_gzip;
use crate::server::http::body::Body;

/// Returns the metrics of a registry.
pub(super) fn answer(registry: &Registry, headers: &HeaderMap) -> Response<Body> {
    match Scrape::encode(registry, headers) {
        Ok(Scrape { body, is_compressed }) => {
            let mut response = respond(StatusCode::OK, TEXT_FORMAT, body);
            response.headers_mut().insert(VARY, HeaderValue::from_static("Accept-Encoding"));
            if is_compressed {
                let gzip = HeaderValue::from_static("gzip");
                response.headers_mut().insert(CONTENT_ENCODING, gzip);
            }
            response
        }
        Err(error) => {
            tracing::error!(%error, "metrics cannot be written");
            text(StatusCode::INTERNAL_SERVER_ERROR, "metrics cannot be written; see the log\n")
        }
    }
}

/// The body of a scrape.
struct Scrape {
    body: Bytes,
    /// Whether it is a gzip member.
    is_compressed: bool,
}

impl Scrape {
    /// Encodes the metrics of a registry for a client with these headers.
    fn encode(registry: &Registry, headers: &HeaderMap) -> Result<Self, prometheus::Error> {
        let text = TextEncoder::new().encode_to_string(&registry.gather())?;
        let is_compressed = text.len() >= COMPRESSED_BYTES_MIN && accepts_gzip(headers);
        let compressed = is_compressed.then(|| compress(&text)).and_then(Result::ok);
        let is_compressed = compressed.is_some();
        Ok(Self { body: compressed.unwrap_or_else(|| Bytes::from(text)), is_compressed })
    }
}

fn compress(metrics: &str) -> io::Result<Bytes> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(metrics.as_bytes())?;
    Ok(encoder.finish()?.into())
}

/// A shorter text fits into one packet.
const COMPRESSED_BYTES_MIN: usize = 1024;

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;
    use crate::telemetry::metrics::gauge_vec;
    use crate::testing::headers;

    fn scrape(series: usize, accepted: &'static str) -> Scrape {
        let registry = Registry::new();
        let family: prometheus::IntGaugeVec =
            gauge_vec(&registry, "weir_test", "A metric.", &["number"]).unwrap();
        (0..series).for_each(|number| family.with_label_values(&[&number.to_string()]).set(1));
        Scrape::encode(&registry, &headers(&[("accept-encoding", accepted)])).unwrap()
    }

    #[test]
    fn a_long_scrape_is_compressed_for_clients_that_accept_it() {
        let plain = scrape(300, "identity");
        assert!(!plain.is_compressed);
        let compressed = scrape(300, "gzip");
        assert!(compressed.is_compressed);
        assert!(compressed.body.len() * 5 < plain.body.len(), "{}", compressed.body.len());
        let mut text = Vec::new();
        flate2::read::GzDecoder::new(&*compressed.body).read_to_end(&mut text).unwrap();
        assert_eq!(text, plain.body);
        assert!(!scrape(3, "gzip").is_compressed);
    }
}
