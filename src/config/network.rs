//! Networks in CIDR notation, such as `10.0.0.0/8`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Whether only this machine can be reached by a name or an address, in any notation of it.
pub(crate) fn is_loopback_host(host: &str) -> bool {
    let address = host.parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.to_canonical().is_loopback())
}

/// The addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    /// The number of those bits.
    prefix_length: u8,
}

impl Network {
    /// Parses an address with the length of a prefix. Bits behind the prefix count for nothing. A
    /// network of IPv4 addresses that are written as IPv6 is one of IPv4.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, prefix_length) = text.split_once('/')?;
        let address: IpAddr = address.parse().ok()?;
        let prefix_length: u8 = prefix_length.parse().ok()?;
        if prefix_length > bits(address) {
            return None;
        }
        // Clients' IPv4 addresses are compared as such, also where they are written as IPv6.
        Some(match (address.to_canonical(), prefix_length.checked_sub(MAPPED_BITS)) {
            (mapped @ IpAddr::V4(_), Some(prefix_length)) if address.is_ipv6() => {
                Self { address: mapped, prefix_length }
            }
            _ => Self { address, prefix_length },
        })
    }

    /// Whether an address belongs to the network. An IPv4 address that is written as IPv6 is the
    /// same address.
    pub fn contains(&self, address: IpAddr) -> bool {
        let length = u32::from(self.prefix_length);
        match (address.to_canonical(), self.address) {
            (IpAddr::V4(address), IpAddr::V4(network)) => {
                let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
                (address.to_bits() ^ network.to_bits()) & mask == 0
            }
            (IpAddr::V6(address), IpAddr::V6(network)) => {
                let mask = u128::MAX.checked_shl(128 - length).unwrap_or(0);
                (address.to_bits() ^ network.to_bits()) & mask == 0
            }
            _ => false,
        }
    }

    /// Whether every address of its family belongs to the network.
    pub fn is_everything(&self) -> bool {
        self.prefix_length == 0
    }
}

/// Parses a network, or a single address. The error describes the expected form.
impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let single = || {
            let address = text.parse::<IpAddr>().ok()?.to_canonical();
            Some(Self { address, prefix_length: bits(address) })
        };
        Self::parse(text).or_else(single).ok_or_else(|| {
            format!(
                "expected a network such as 10.0.0.0/8 or fd00::/8, or an address, not {text:?}"
            )
        })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_length)
    }
}

/// Returns the number of bits of an address of this family.
fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// The bits before an IPv4 address that is written as IPv6, `::ffff:0:0/96` (RFC 4291 §2.5.5.2).
const MAPPED_BITS: u8 = 96;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_the_addresses_that_begin_with_its_bits() {
        for (network, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.0"),
            ("10.1.2.3/8", "10.0.0.0", "11.1.2.3"),
            ("192.0.2.7", "192.0.2.7", "192.0.2.6"),
            ("192.0.2.7", "::ffff:192.0.2.7", "::192.0.2.7"),
            ("::ffff:192.0.2.7", "192.0.2.7", "192.0.2.8"),
            ("::ffff:10.0.0.0/104", "10.255.0.1", "11.0.0.0"),
            ("::ffff:10.0.0.0/104", "::ffff:10.255.0.1", "::10.0.0.1"),
            ("fd00::/8", "fdff::1", "fe00::"),
            ("2001:db8::/128", "2001:db8::", "2001:db8::1"),
            ("0.0.0.0/0", "255.255.255.255", "::1"),
        ] {
            let network: Network = network.parse().unwrap();
            assert!(network.contains(inside.parse().unwrap()), "{network} {inside}");
            assert!(!network.contains(outside.parse().unwrap()), "{network} {outside}");
            assert_eq!(network.to_string().parse(), Ok(network));
            assert_eq!(network.is_everything(), network.to_string() == "0.0.0.0/0");
        }
    }

    #[test]
    fn what_is_no_network_is_named() {
        for text in ["", "10.0.0.0/33", "::/129", "10.0.0/8", "10.0.0.0/-1", "example.com"] {
            let error = text.parse::<Network>().unwrap_err();
            assert!(error.ends_with(&format!("not {text:?}")), "{error}");
        }
    }
}
