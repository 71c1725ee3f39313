//! The header of the PROXY protocol, version 2: a proxy that relays TCP sends it before the first
//! byte of its client, and names the client's address
//! (`docs/decisions/accepted-connections.md`; HAProxy, `doc/proxy-protocol.txt` §2.2).
//!
//! The header has a head of 16 bytes, which says how long the rest is: addresses, then fields of a
//! type, a length and a value (TLVs). Those are skipped.
//! Pure: [`proxied`](super::proxied) reads the bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    family: Family,
    rest_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The proxy itself, as for its health checks, or a client whose address it does not know: the
    /// peer of the connection.
    Peer,
    Address(SocketAddr),
    Socket,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HeaderError {
    /// The connection does not begin with a header.
    #[error(
        "it is in proxyProtocol.trustedNetworks and does not begin with a header of the PROXY protocol"
    )]
    Missing,
    #[error("it sends version 1 of the PROXY protocol; configure version 2 there")]
    Version1,
    #[error("its PROXY header has version {0}, not 2")]
    Version(u8),
    #[error("its PROXY header has the unknown command {0}")]
    Command(u8),
    /// No address of a TCP connection.
    #[error("its PROXY header has the address family and protocol {0:#04x}, which is no stream's")]
    Family(u8),
    /// More bytes than any proxy needs.
    #[error("its PROXY header has {0} bytes behind the head, of at most {REST_BYTES_MAX}")]
    TooLong(usize),
    /// Fewer bytes than the addresses need.
    #[error("its PROXY header ends within an address")]
    Truncated,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Unspecified,
    Ipv4,
    Ipv6,
    Unix,
}

impl Head {
    pub(crate) fn parse(bytes: [u8; HEAD_BYTES]) -> Result<Self, HeaderError> {
        let (signature, [version_and_command, family, high, low]) = split(bytes);
        if signature != SIGNATURE {
            let is_version1 = bytes.starts_with(VERSION1);
            return Err(if is_version1 { HeaderError::Version1 } else { HeaderError::Missing });
        }
        if version_and_command >> 4 != 2 {
            return Err(HeaderError::Version(version_and_command >> 4));
        }
        let family = match (version_and_command & 0xf, family) {
            // A proxy's own connection has no client, whatever the rest says.
            (0, _) | (1, 0x00) => Family::Unspecified,
            (1, 0x11) => Family::Ipv4,
            (1, 0x21) => Family::Ipv6,
            (1, 0x31) => Family::Unix,
            (1, other) => return Err(HeaderError::Family(other)),
            (command, _) => return Err(HeaderError::Command(command)),
        };
        let rest_bytes = usize::from(u16::from_be_bytes([high, low]));
        if rest_bytes > REST_BYTES_MAX {
            return Err(HeaderError::TooLong(rest_bytes));
        }
        Ok(Self { family, rest_bytes })
    }

    /// Returns the number of bytes that follow the head, at most [`REST_BYTES_MAX`].
    pub(crate) fn rest_bytes(&self) -> usize {
        self.rest_bytes
    }

    /// Returns the client that the header names. `rest` are the bytes behind the head.
    pub(crate) fn source(&self, rest: &[u8]) -> Result<Source, HeaderError> {
        Ok(match self.family {
            Family::Unspecified => Source::Peer,
            Family::Ipv4 => {
                let addresses = rest.first_chunk::<12>().ok_or(HeaderError::Truncated)?;
                let &[a, b, c, d, _, _, _, _, high, low, _, _] = addresses;
                address(Ipv4Addr::new(a, b, c, d).into(), [high, low])
            }
            Family::Ipv6 => {
                let (address_bytes, more) =
                    rest.split_first_chunk::<16>().ok_or(HeaderError::Truncated)?;
                let ports = more.first_chunk::<20>().ok_or(HeaderError::Truncated)?;
                let &[.., high, low, _, _] = ports;
                address(Ipv6Addr::from(*address_bytes).into(), [high, low])
            }
            Family::Unix => {
                rest.first_chunk::<216>().ok_or(HeaderError::Truncated)?;
                Source::Socket
            }
        })
    }
}

/// Whether bytes at the begin of a connection are those of a header, in either version. Neither TLS
/// nor HTTP begins so. A request may follow empty lines (RFC 9112 §2.2), so that fewer than five
/// bytes say nothing: HTTP refuses the rest of a header that comes so late.
pub(crate) fn is_header(first: &[u8]) -> bool {
    first.starts_with(SIGNATURE_BEGIN) || first.starts_with(VERSION1)
}

fn split(bytes: [u8; HEAD_BYTES]) -> ([u8; 12], [u8; 4]) {
    let [a, b, c, d, e, f, g, h, i, j, k, l, rest @ ..] = bytes;
    ([a, b, c, d, e, f, g, h, i, j, k, l], rest)
}

fn address(ip: IpAddr, port: [u8; 2]) -> Source {
    Source::Address(SocketAddr::new(ip, u16::from_be_bytes(port)))
}

pub(crate) const HEAD_BYTES: usize = 16;
/// Limit of the bytes behind the head. The longest addresses are 216 bytes; the fields of today's
/// proxies, with a client certificate's names, some hundred.
pub(crate) const REST_BYTES_MAX: usize = 2048;
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// The first bytes of the signature that no HTTP request has.
const SIGNATURE_BEGIN: &[u8] = b"\r\n\r\n\0";
const VERSION1: &[u8] = b"PROXY ";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Builds a header of a command and a family, with these bytes behind the head.
    fn header(version_and_command: u8, family: u8, rest: &[u8]) -> ([u8; HEAD_BYTES], Vec<u8>) {
        let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
        let mut head = [0; HEAD_BYTES];
        head[..12].copy_from_slice(&SIGNATURE);
        head[12..].copy_from_slice(&[version_and_command, family, length[0], length[1]]);
        (head, rest.to_vec())
    }

    fn parse((head, rest): ([u8; HEAD_BYTES], Vec<u8>)) -> Result<Source, HeaderError> {
        let head = Head::parse(head)?;
        assert_eq!(head.rest_bytes(), rest.len());
        head.source(&rest)
    }

    const IPV4: [u8; 12] = [192, 0, 2, 7, 10, 0, 0, 1, 0x12, 0x34, 0x01, 0xbb];

    #[test]
    fn each_family_names_its_client() {
        let client = |text: &str| Ok(Source::Address(text.parse().unwrap()));
        assert_eq!(parse(header(0x21, 0x11, &IPV4)), client("192.0.2.7:4660"));
        let mut ipv6 = [0; 36];
        ipv6[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
        ipv6[15] = 9;
        ipv6[31] = 1;
        ipv6[32..].copy_from_slice(&[0x12, 0x34, 0x01, 0xbb]);
        assert_eq!(parse(header(0x21, 0x21, &ipv6)), client("[2001:db8::9]:4660"));
        assert_eq!(parse(header(0x21, 0x31, &[0; 216])), Ok(Source::Socket));
        assert_eq!(parse(header(0x21, 0x00, &[1, 2, 3])), Ok(Source::Peer));
        assert_eq!(parse(header(0x20, 0x11, &[])), Ok(Source::Peer), "a health check");
        assert_eq!(parse(header(0x20, 0xff, &[7; 300])), Ok(Source::Peer));
    }

    #[test]
    fn fields_are_skipped() {
        for fields in [&[0x04, 0, 2, 0, 0, 0xea, 0, 1, 9][..], &[0x03, 0, 4, 0, 0, 0, 0], &[0xea]] {
            let parsed = parse(header(0x21, 0x11, &[&IPV4[..], fields].concat()));
            assert_eq!(parsed, Ok(Source::Address("192.0.2.7:4660".parse().unwrap())));
        }
    }

    #[test]
    fn other_headers_are_refused_with_their_cause() {
        let short = |family, bytes| parse(header(0x21, family, &vec![0; bytes]));
        for (family, bytes) in [(0x11, 11), (0x21, 35), (0x31, 215)] {
            assert_eq!(short(family, bytes), Err(HeaderError::Truncated));
        }
        assert_eq!(parse(header(0x11, 0x11, &IPV4)), Err(HeaderError::Version(1)));
        assert_eq!(parse(header(0x22, 0x11, &IPV4)), Err(HeaderError::Command(2)));
        assert_eq!(parse(header(0x21, 0x12, &IPV4)), Err(HeaderError::Family(0x12)));
        assert_eq!(short(0x11, 2049), Err(HeaderError::TooLong(2049)));
        let first = |text: &[u8; 16]| Head::parse(*text);
        assert_eq!(first(b"PROXY TCP4 192.0"), Err(HeaderError::Version1));
        assert_eq!(first(b"GET /version HTT"), Err(HeaderError::Missing));
    }

    #[test]
    fn neither_tls_nor_http_looks_like_a_header() {
        let (head, _) = header(0x21, 0x11, &IPV4);
        assert!(is_header(&head[..5]) && is_header(&head) && is_header(b"PROXY UNKNOWN\r\n"));
        for other in [&b""[..], b"P", b"PUT /", b"PRI * HTTP/2.0", b"\x16\x03\x01", b"GET /"] {
            assert!(!is_header(other), "{other:?}");
        }
        for empty_lines in [&b"\r\n"[..], b"\r\n\r\n", b"\r\nGET /", b"\r\n\r\nGET /"] {
            assert!(!is_header(empty_lines), "{empty_lines:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_cause_a_panic_and_no_address_is_invented(
            command in 0x20_u8..0x23,
            family in prop_oneof![Just(0x11_u8), Just(0x21), Just(0x31), any::<u8>()],
            rest in proptest::collection::vec(any::<u8>(), 0..260),
        ) {
            if let Ok(Source::Address(client)) = parse(header(command, family, &rest)) {
                let octets = match client.ip() {
                    IpAddr::V4(address) => address.octets().to_vec(),
                    IpAddr::V6(address) => address.octets().to_vec(),
                };
                prop_assert!(rest.starts_with(&octets));
            }
        }
    }
}
