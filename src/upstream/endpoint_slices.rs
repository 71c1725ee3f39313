//! The addresses in the EndpointSlices of a service.

use serde::Deserialize;

use crate::config::endpoints::SERVERS_MAX;
use crate::upstream::Upstream;
use crate::upstream::error::UpstreamError;
use crate::upstream::fetch::{self, encode_query};

/// A host and a port.
pub(super) type Address = (String, u16);

/// Returns the addresses of a service that are ready. Slices that cannot be parsed have none.
pub(super) async fn list(
    upstream: &Upstream,
    namespace: &str,
    service: &str,
) -> Result<Vec<Address>, UpstreamError> {
    let path = path(namespace, service);
    let slices = fetch::get(upstream, &path, "application/json", None, SLICES_MAX_BYTES).await?;
    Ok(addresses(slices.body()).unwrap_or_default())
}

fn path(namespace: &str, service: &str) -> String {
    let selector = encode_query(&format!("kubernetes.io/service-name={service}"));
    format!(
        "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices?labelSelector={selector}"
    )
}

/// Returns the addresses in a list of EndpointSlices: those that are ready, each with the port
/// `https`, or the only one. `None` if it cannot be parsed.
fn addresses(body: &[u8]) -> Option<Vec<Address>> {
    #[derive(Deserialize)]
    struct List {
        items: Vec<Slice>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Slice {
        address_type: String,
        #[serde(default)]
        endpoints: Option<Vec<SliceEndpoint>>,
        #[serde(default)]
        ports: Option<Vec<Port>>,
    }
    #[derive(Deserialize)]
    struct SliceEndpoint {
        addresses: Vec<String>,
        #[serde(default)]
        conditions: Conditions,
    }
    #[derive(Default, Deserialize)]
    struct Conditions {
        ready: Option<bool>,
    }
    #[derive(Deserialize)]
    struct Port {
        name: Option<String>,
        port: Option<u16>,
    }
    let list: List = serde_json::from_slice(body).ok()?;
    let mut addresses = Vec::new();
    for slice in list.items.iter().filter(|slice| slice.address_type != "FQDN") {
        let ports = slice.ports.as_deref().unwrap_or_default();
        let https = ports.iter().find(|port| port.name.as_deref() == Some("https"));
        let Some(port) = https.or_else(|| ports.first()).and_then(|port| port.port) else {
            continue;
        };
        let endpoints = slice.endpoints.iter().flatten();
        let ready = endpoints.filter(|endpoint| endpoint.conditions.ready != Some(false));
        let hosts = ready.flat_map(|endpoint| &endpoint.addresses);
        // A name there would be resolved to any address.
        let hosts = hosts.filter(|host| host.parse::<std::net::IpAddr>().is_ok());
        addresses.extend(hosts.map(|host| (host.clone(), port)));
    }
    addresses.sort();
    addresses.dedup();
    addresses.truncate(SERVERS_MAX);
    Some(addresses)
}

/// The largest answer: a service of some replicas has one slice of a few kilobytes.
const SLICES_MAX_BYTES: usize = 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_addresses_of_endpoint_slices_are_found() {
        let body = br#"{"kind":"EndpointSliceList","items":[
            {"addressType":"IPv4","ports":[{"name":"metrics","port":1},{"name":"https","port":6443}],
             "endpoints":[{"addresses":["10.0.0.2"],"conditions":{"ready":true}},
                          {"addresses":["10.0.0.1"],"conditions":{}},
                          {"addresses":["10.0.0.3"],"conditions":{"ready":false}},
                          {"addresses":["evil.example.com"]}]},
            {"addressType":"IPv6","ports":[{"port":443}],"endpoints":[{"addresses":["fd00::1"]}]},
            {"addressType":"IPv4","ports":null,"endpoints":null},
            {"addressType":"FQDN","ports":[{"port":1}],"endpoints":[{"addresses":["10.0.0.9"]}]}]}"#;
        let address = |host: &str, port| (host.to_owned(), port);
        let expected =
            [address("10.0.0.1", 6443), address("10.0.0.2", 6443), address("fd00::1", 443)];
        assert_eq!(addresses(body).unwrap(), expected);
        assert_eq!(addresses(b"{}"), None);
    }

    #[test]
    fn the_slices_of_one_service_are_listed() {
        assert_eq!(
            path("default", "kubernetes"),
            "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3Dkubernetes"
        );
    }
}
