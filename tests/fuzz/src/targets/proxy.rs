//! The header of the PROXY protocol.

use std::net::IpAddr;

use crate::proxy_protocol::{HEAD_BYTES, Head, HeaderError, REST_BYTES_MAX, Source, is_header};

/// A header that is accepted begins as no TLS and no HTTP does, is bounded, and names an address
/// that is in it. A shorter one is never accepted with another address.
pub fn proxy_protocol(data: &[u8]) {
    let Some((first, behind)) = data.split_first_chunk::<HEAD_BYTES>() else { return };
    let Ok(head) = Head::parse(*first) else { return };
    assert!(is_header(data) && is_header(&data[..12]));
    assert!(head.rest_bytes() <= REST_BYTES_MAX);
    let rest = &behind[..head.rest_bytes().min(behind.len())];
    let source = head.source(rest);
    if let Ok(Source::Address(client)) = source {
        match client.ip() {
            IpAddr::V4(address) => assert!(rest.starts_with(&address.octets())),
            IpAddr::V6(address) => assert!(rest.starts_with(&address.octets())),
        }
    }
    for length in 0..rest.len().min(300) {
        let shorter = head.source(&rest[..length]);
        assert!(shorter == source || matches!(shorter, Err(_) | Ok(Source::Address(_) | Source::Socket)));
        if let (Ok(Source::Address(one)), Ok(Source::Address(other))) = (source, shorter) {
            assert_eq!(one, other);
        }
        assert!(length >= 12 || matches!(shorter, Err(HeaderError::Truncated) | Ok(Source::Peer)));
    }
}
