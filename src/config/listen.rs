//! Addresses of listeners: `https://127.0.0.1:6440`, `http://127.0.0.1:8001`,
//! `unix:///run/weir.sock`.
//!
//! The [`Mode`] decides whether an address may be reachable from other machines
//! ([`ListenAddress::check`]). In sidecar mode none may, because every client acts with Weir's own
//! identity. In gateway mode those with TLS may: credentials must not cross a network in the clear.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use crate::config::identity::Mode;

/// The address and protocol of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// TLS on an address; port 0 lets the system choose.
    Tls(SocketAddr),
    /// Plain HTTP on an address.
    Plain(SocketAddr),
    /// Plain HTTP on a Unix socket.
    Unix(PathBuf),
}

/// The error describes the expected form, for the configuration and the flag.
impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (scheme, rest) = text.split_once("://").ok_or_else(|| {
            format!(
                "expected https://ADDRESS:PORT, http://ADDRESS:PORT or unix:///PATH, not {text:?}"
            )
        })?;
        match scheme {
            "https" => parse_address(rest).map(Self::Tls),
            "http" => parse_address(rest).map(Self::Plain),
            "unix" => socket_path(rest).map(Self::Unix),
            _ => Err(format!("expected https, http or unix before ://, not {scheme:?}")),
        }
    }
}

impl ListenAddress {
    /// Returns the address if the mode allows clients there, else the reason why not.
    pub fn check(self, mode: Mode) -> Result<Self, String> {
        let (address, tls) = match self {
            Self::Tls(address) => (address, true),
            Self::Plain(address) => (address, false),
            Self::Unix(_) => return Ok(self),
        };
        match mode {
            _ if is_loopback(address) => Ok(self),
            Mode::Gateway if tls => Ok(self),
            Mode::Gateway => Err(format!(
                "{address} is not a loopback address, and credentials would cross the network in the clear; use https://"
            )),
            Mode::Sidecar => Err(format!(
                "{address} is not a loopback address; in sidecar mode every client acts with Weir's identity, so it listens only on \
                 loopback addresses and Unix sockets; set authentication.mode to gateway for others"
            )),
        }
    }
}

/// Returns an address of this machine.
pub(super) const fn loopback(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

/// Whether only this machine can reach an address, in any notation of it.
pub fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tls(address) => write!(f, "https://{address}"),
            Self::Plain(address) => write!(f, "http://{address}"),
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
        }
    }
}

/// Parses `ADDRESS:PORT`, where `localhost` stands for 127.0.0.1.
pub fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let text = text.strip_suffix('/').unwrap_or(text);
    if let Some(port) = text.strip_prefix("localhost:").and_then(|port| port.parse().ok()) {
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    }
    text.parse().map_err(|_| {
        format!(
            "expected an IP address and port such as 127.0.0.1:6440 or [::1]:6440, not {text:?}"
        )
    })
}

fn socket_path(text: &str) -> Result<PathBuf, String> {
    if !text.starts_with('/') || text.ends_with('/') {
        return Err(format!("expected an absolute path as in unix:///run/weir.sock, not {text:?}"));
    }
    if text.len() > SOCKET_PATH_MAX {
        return Err(format!("a socket's path has at most {SOCKET_PATH_MAX} bytes: {text:?}"));
    }
    Ok(PathBuf::from(text))
}

/// The kernel's limit: `sockaddr_un` holds 108 bytes on Linux and 104 on macOS, with the
/// terminating NUL.
const SOCKET_PATH_MAX: usize = 103;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_address_parses_to_itself() {
        for text in ["https://127.0.0.1:6440", "http://[::1]:0", "unix:///run/weir.sock"] {
            assert_eq!(text.parse::<ListenAddress>().unwrap().to_string(), text);
        }
        assert_eq!(
            "http://localhost:8001/".parse::<ListenAddress>().unwrap().to_string(),
            "http://127.0.0.1:8001"
        );
    }

    #[test]
    fn other_machines_need_tls_and_gateway_mode() {
        let check = |text: &str, mode| text.parse::<ListenAddress>().unwrap().check(mode);
        for text in ["https://0.0.0.0:6440", "https://10.0.0.1:80", "https://[::]:80"] {
            let error = check(text, Mode::Sidecar).unwrap_err();
            assert!(error.contains("not a loopback address"), "{error}");
            assert!(check(text, Mode::Gateway).is_ok(), "{text}");
        }
        for mode in [Mode::Sidecar, Mode::Gateway] {
            for text in ["http://0.0.0.0:80", "http://10.0.0.1:80", "http://[::ffff:10.0.0.1]:1"] {
                let error = check(text, mode).unwrap_err();
                assert!(error.contains("not a loopback address"), "{error}");
            }
            for text in ["https://[::ffff:127.0.0.1]:1", "http://[::1]:1", "unix:///w"] {
                assert!(check(text, mode).is_ok(), "{text}");
            }
        }
    }

    #[test]
    fn invalid_addresses_are_reported_with_their_cause() {
        for (text, part) in [
            ("127.0.0.1:6440", "expected https://"),
            ("ftp://127.0.0.1:1", "not \"ftp\""),
            ("https://127.0.0.1", "IP address and port"),
            ("https://example.com:443", "IP address and port"),
            ("unix://run/weir.sock", "absolute path"),
            ("unix:///", "absolute path"),
        ] {
            let error = text.parse::<ListenAddress>().unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
