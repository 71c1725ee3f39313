//! The header `Retry-After`, by which servers say when to come again (RFC 9110, section 10.2.3).

use std::time::Duration;

use http::HeaderMap;
use http::header::RETRY_AFTER;

/// Returns the `Retry-After` of a response, if it is in seconds, as Kubernetes writes it. It may
/// have the form of a date instead.
pub fn parse_retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn only_seconds_are_read() {
        let read = |value: &'static [u8]| {
            let value = HeaderValue::from_bytes(value).unwrap();
            parse_retry_after(&HeaderMap::from_iter([(RETRY_AFTER, value)]))
        };
        assert_eq!(read(b"7"), Some(Duration::from_secs(7)));
        assert_eq!(read(b" 0 "), Some(Duration::ZERO));
        for value in [&b""[..], b"-1", b"1.5", b"\xff", b"Wed, 21 Oct 2099 07:28:00 GMT"] {
            assert_eq!(read(value), None);
        }
        assert_eq!(parse_retry_after(&HeaderMap::new()), None);
    }
}
