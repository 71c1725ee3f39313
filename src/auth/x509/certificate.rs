//! Reads single fields of a certificate.

use std::ops::Range;

use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

/// Parses a certificate. Returns `None` if it is malformed or followed by other bytes.
pub(super) fn parse(der: &[u8]) -> Option<X509Certificate<'_>> {
    X509Certificate::from_der(der)
        .ok()
        .filter(|(rest, _)| rest.is_empty())
        .map(|(_, parsed)| parsed)
}

/// Returns the seconds in which the certificate is valid.
///
/// The whole second of `notAfter` is included: the limit is inclusive in RFC 5280, and the clock
/// here counts whole seconds. Go compares nanoseconds and refuses the certificate just after that
/// second has begun, so kube-apiserver is up to a second earlier.
pub(super) fn validity(parsed: &X509Certificate<'_>) -> Range<i64> {
    let validity = parsed.validity();
    validity.not_before.timestamp()..validity.not_after.timestamp().saturating_add(1)
}

/// Returns whether the extended key usages, if any, allow client authentication; `None` if they
/// cannot be parsed.
pub(super) fn allows_clients(parsed: &X509Certificate<'_>) -> Option<bool> {
    let usage = parsed.extended_key_usage().ok()?;
    Some(usage.is_none_or(|usage| usage.value.any || usage.value.client_auth))
}
