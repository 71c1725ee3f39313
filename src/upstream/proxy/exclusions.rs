//! `NO_PROXY`, as Go's `golang.org/x/net/http/httpproxy` reads it.
//!
//! curl and hyper-util read it differently: they know no ports, `.example.com` matches
//! `example.com` too, and loopback addresses are not excluded by themselves.

use std::net::IpAddr;

use crate::config::network::{Network, is_loopback_host};

/// The hosts that are reached without a proxy. `localhost` and loopback addresses always are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Exclusions(Vec<Exclusion>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Exclusion {
    /// `*`
    All,
    /// `10.0.0.0/8`
    Network(Network),
    /// `10.0.0.1` or `10.0.0.1:6443`
    Address { address: IpAddr, port: Option<String> },
    /// `example.com`, `.example.com` or `*.example.com`, with or without a port.
    Domain {
        /// The name in lower case, with a dot in front.
        suffix: String,
        /// Whether the name itself matches, and not only names below it.
        includes_itself: bool,
        port: Option<String>,
    },
}

impl Exclusions {
    /// Parses a list with commas. An entry that cannot be parsed matches nothing.
    pub(super) fn parse(list: &str) -> Self {
        let entries = list.split(',').map(|entry| entry.trim().to_lowercase());
        Self(entries.filter_map(|entry| Exclusion::parse(&entry)).collect())
    }

    /// Returns whether connections to this host and port use no proxy.
    pub(super) fn contains(&self, host: &str, port: u16) -> bool {
        if is_loopback_host(host) {
            return true;
        }
        let address = host.parse::<IpAddr>().ok().map(|address| address.to_canonical());
        let (host, port) = (host.to_lowercase(), port.to_string());
        self.0.iter().any(|exclusion| exclusion.matches(&host, address, &port))
    }
}

impl Exclusion {
    fn parse(entry: &str) -> Option<Self> {
        if entry == "*" {
            return Some(Self::All);
        }
        if let Some(network) = Network::parse(entry) {
            return Some(Self::Network(network));
        }
        let (host, port) = split_port(entry);
        if let Ok(address) = host.parse::<IpAddr>() {
            return Some(Self::Address { address: address.to_canonical(), port });
        }
        let host = host.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(host);
        let includes_itself = !host.is_empty() && !host.starts_with('.');
        let suffix = if includes_itself { format!(".{host}") } else { host.to_owned() };
        (!suffix.is_empty()).then_some(Self::Domain { suffix, includes_itself, port })
    }

    fn matches(&self, host: &str, address: Option<IpAddr>, given_port: &str) -> bool {
        let fits = |port: &Option<String>| port.as_ref().is_none_or(|port| port == given_port);
        match self {
            Self::All => true,
            Self::Network(network) => address.is_some_and(|address| network.contains(address)),
            Self::Address { address: excluded, port } => address == Some(*excluded) && fits(port),
            Self::Domain { suffix, includes_itself, port } => {
                let is_itself = suffix.strip_prefix('.') == Some(host);
                (host.ends_with(suffix) || *includes_itself && is_itself) && fits(port)
            }
        }
    }
}

/// Splits a port off. An IPv6 address has one only behind brackets.
fn split_port(entry: &str) -> (&str, Option<String>) {
    let split = match entry.strip_prefix('[') {
        Some(rest) => rest.split_once("]:").filter(|(_, port)| !port.contains(':')),
        None => entry.split_once(':').filter(|(_, port)| !port.contains(':')),
    };
    match split {
        // Go accepts an empty port, and takes it for any.
        Some((host, port)) => (host, Some(port.to_owned()).filter(|port| !port.is_empty())),
        None => (entry, None),
    }
}
