//! Where API servers are found: a DNS name, and the EndpointSlices of the service
//! `default/kubernetes`.
//!
//! kube-apiserver keeps the addresses of its instances in these slices; that of an instance that
//! died stays for up to 15 s. They are polled, not watched: they change once in months, and a watch
//! would end with the very server whose end it should report. An answer without an address, like a
//! failure, keeps the addresses that were known: a mistake there must not take the upstream away.

use std::io;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::config::endpoints::{DnsName, EndpointsConfig, SERVERS_MAX};
use crate::config::seams::Resolver;
use crate::upstream::Upstream;
use crate::upstream::bounded::with_timeout;
use crate::upstream::endpoint_slices::{self, Address};
use crate::upstream::error::UpstreamError;

/// The sources of an upstream.
pub(super) struct Sources<'a> {
    upstream: &'a Upstream,
    dns: Option<DnsName>,
    resolver: Option<Resolver>,
    endpoint_slice: bool,
    /// The latest addresses of each source.
    resolved: Vec<Address>,
    listed: Vec<Address>,
    is_failure_logged: bool,
}

impl<'a> Sources<'a> {
    pub(super) fn new(
        upstream: &'a Upstream,
        config: &EndpointsConfig,
        resolver: Option<Resolver>,
    ) -> Self {
        Self {
            upstream,
            dns: config.dns.clone(),
            resolver,
            endpoint_slice: config.endpoint_slice,
            resolved: Vec::new(),
            listed: Vec::new(),
            is_failure_logged: false,
        }
    }

    /// Asks the sources for ever: each at its interval, and sooner while no server is usable.
    pub(super) async fn run(mut self) {
        let (mut last_dns, mut last_slice) = (None, None);
        loop {
            let interval = |interval: Duration| match self.upstream.endpoints().is_any_usable() {
                true => interval,
                false => FAILING_INTERVAL,
            };
            let is_due = |last: Option<Instant>, every: Duration| {
                last.is_none_or(|last| last.elapsed() >= interval(every))
            };
            let (dns, slice) = (is_due(last_dns, DNS_INTERVAL), is_due(last_slice, SLICE_INTERVAL));
            if dns && let Some(name) = self.dns.clone() {
                last_dns = Some(Instant::now());
                self.resolve(&name).await;
            }
            if slice && self.endpoint_slice {
                last_slice = Some(Instant::now());
                self.list().await;
            }
            sleep(TICK).await;
        }
    }

    async fn resolve(&mut self, name: &DnsName) {
        let port = name.port.unwrap_or(self.upstream.endpoints().configured.port);
        let lookup = lookup(self.resolver.as_ref(), &name.host, port);
        let looked_up = tokio::time::timeout(DNS_TIMEOUT, lookup).await;
        match looked_up {
            Ok(Ok(looked_up)) if !looked_up.is_empty() => {
                self.resolved = looked_up;
                self.changed();
            }
            Ok(Ok(_)) => self.failed(&format!("{} has no address", name.host)),
            Ok(Err(error)) => self.failed(&format!("cannot resolve {}: {error}", name.host)),
            Err(_) => self.failed(&format!("cannot resolve {}: no answer", name.host)),
        }
    }

    async fn list(&mut self) {
        let get = endpoint_slices::list(self.upstream, "default", "kubernetes");
        match with_timeout(SLICE_TIMEOUT, get).await {
            Ok(slices) if !slices.is_empty() => {
                self.listed = slices;
                self.changed();
            }
            Ok(_) => self.failed("the EndpointSlices of default/kubernetes name no API server"),
            Err(UpstreamError::Status { code, message, .. }) => {
                self.failed(&format!("cannot list the EndpointSlices: {code}: {message}"));
            }
            Err(error) => self.failed(&format!("cannot list the EndpointSlices: {error}")),
        }
    }

    fn changed(&mut self) {
        self.is_failure_logged = false;
        let addresses: Vec<Address> = self.listed.iter().chain(&self.resolved).cloned().collect();
        self.upstream.endpoints().set_found(&addresses);
    }

    fn failed(&mut self, what: &str) {
        if !std::mem::replace(&mut self.is_failure_logged, true) {
            tracing::warn!("{what}; the API servers that are known stay");
        }
    }
}

async fn lookup(resolver: Option<&Resolver>, host: &str, port: u16) -> io::Result<Vec<Address>> {
    let addresses = match resolver {
        Some(resolver) => resolver.resolve(host, port).await?,
        None => tokio::net::lookup_host((host, port)).await?.collect(),
    };
    let mut addresses: Vec<Address> =
        addresses.iter().map(|address| (address.ip().to_string(), address.port())).collect();
    addresses.sort();
    addresses.dedup();
    addresses.truncate(SERVERS_MAX);
    Ok(addresses)
}

const SLICE_INTERVAL: Duration = Duration::from_secs(10);
const SLICE_TIMEOUT: Duration = Duration::from_secs(5);
const DNS_INTERVAL: Duration = Duration::from_secs(30);
const DNS_TIMEOUT: Duration = Duration::from_secs(5);
/// How often the sources are asked while no server is usable.
const FAILING_INTERVAL: Duration = Duration::from_secs(5);
const TICK: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_addresses_of_a_name_are_found() {
        let addresses = lookup(None, "localhost", 6443).await.unwrap();
        assert!(addresses.contains(&("127.0.0.1".to_owned(), 6443)), "{addresses:?}");
    }
}
