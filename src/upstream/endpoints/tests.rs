//! Tests of the set and of the choice among its servers, without a connection.

use prometheus::Registry;

use super::health::{Outcome, ProbeResult};
use super::pin::Pin;
use super::*;

fn endpoints(static_urls: &[&str]) -> Endpoints {
    endpoints_and_registry(static_urls).0
}

fn endpoints_and_registry(static_urls: &[&str]) -> (Endpoints, Registry) {
    let static_urls = static_urls.iter().map(|url| (*url).to_owned()).collect();
    let config =
        EndpointsConfig { static_urls, endpoint_slice: true, ..EndpointsConfig::default() };
    let configured = Endpoint::parse("https://balancer:6443", None).unwrap();
    let registry = Registry::new();
    let metrics = EndpointsMetrics::register(&registry).unwrap();
    (Endpoints::new(&configured, &config, metrics).unwrap(), registry)
}

/// Returns the hosts that 100 choices find, in order and without repetitions.
fn chosen(endpoints: &Endpoints, choice: &Choice) -> Vec<String> {
    let servers = endpoints.servers();
    let mut hosts: Vec<String> = (0..100)
        .filter_map(|_| {
            let candidates = servers.iter().map(|server| &**server);
            Some(servers[endpoints.choose(candidates, choice, false, &[])?].endpoint.host.clone())
        })
        .collect();
    hosts.sort();
    hosts.dedup();
    hosts
}

fn server(endpoints: &Endpoints, host: &str) -> Arc<ApiServer> {
    endpoints.servers().iter().find(|server| server.endpoint.host == host).unwrap().clone()
}

fn fail(server: &ApiServer) {
    for _ in 0..3 {
        server.note(Outcome::TransportFailure, Instant::now());
    }
}

#[tokio::test(start_paused = true)]
async fn the_configured_server_is_the_last_resort() {
    let endpoints = endpoints(&["https://a", "https://b"]);
    assert_eq!(chosen(&endpoints, &Choice::Spread), ["a", "b"]);
    fail(&server(&endpoints, "a"));
    assert_eq!(chosen(&endpoints, &Choice::Spread), ["b"]);
    fail(&server(&endpoints, "b"));
    assert_eq!(chosen(&endpoints, &Choice::Spread), ["balancer"]);
    fail(&server(&endpoints, "balancer"));
    assert_eq!(chosen(&endpoints, &Choice::Spread), ["a", "b", "balancer"], "each in turn");
}

#[tokio::test(start_paused = true)]
async fn an_ejected_server_comes_back_by_a_probe_alone() {
    let endpoints = endpoints(&["https://a", "https://b"]);
    let a = server(&endpoints, "a");
    fail(&a);
    tokio::time::advance(std::time::Duration::from_secs(2)).await;
    a.refresh();
    assert_eq!(chosen(&endpoints, &Choice::Spread), ["b"], "half-open is for probes");
    a.probed(ProbeResult::Ready);
    assert_eq!(chosen(&endpoints, &Choice::Spread), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn a_draining_server_gets_nothing_new_while_another_is_usable() {
    let endpoints = endpoints(&["https://a", "https://b"]);
    server(&endpoints, "a").probed(ProbeResult::ShuttingDown);
    let pinned = Choice::Pinned(Arc::new(Pin::new("/x")));
    for choice in [Choice::Spread, Choice::Sticky(1), pinned] {
        assert_eq!(chosen(&endpoints, &choice), ["b"], "{choice:?}");
    }
    fail(&server(&endpoints, "b"));
    fail(&server(&endpoints, "balancer"));
    assert_eq!(chosen(&endpoints, &Choice::Spread), ["a"], "it still answers");
}

#[tokio::test(start_paused = true)]
async fn a_found_server_is_used_after_its_cluster_is_known() {
    let endpoints = endpoints(&[]);
    let addresses = [("10.0.0.1".to_owned(), 6443), ("10.0.0.2".to_owned(), 6443)];
    endpoints.set_found(&addresses);
    let servers = ["10.0.0.1", "10.0.0.2"].map(|host| server(&endpoints, host));
    servers.iter().for_each(|server| server.probed(ProbeResult::Ready));
    assert_eq!(chosen(&endpoints, &Choice::Spread), ["balancer"]);
    servers[0].admit(Admission::SameCluster);
    servers[1].admit(Admission::OtherCluster);
    assert_eq!(chosen(&endpoints, &Choice::Spread), ["10.0.0.1"]);
    fail(&servers[0]);
    fail(&server(&endpoints, "balancer"));
    assert_eq!(
        chosen(&endpoints, &Choice::Spread),
        ["10.0.0.1", "balancer"],
        "never one of another cluster"
    );
    // A server that stays in the set keeps its state.
    let generation = endpoints.generation();
    endpoints.set_found(&addresses);
    assert_eq!(endpoints.generation(), generation);
    endpoints.set_found(&addresses[..1]);
    assert!(Arc::ptr_eq(&server(&endpoints, "10.0.0.1"), &servers[0]));
    assert_eq!(endpoints.servers().len(), 2);
}

/// A request that began before may end afterwards.
#[tokio::test(start_paused = true)]
async fn a_server_that_left_the_set_has_no_series_again() {
    let (endpoints, registry) = endpoints_and_registry(&[]);
    let series = || -> Vec<usize> {
        registry.gather().iter().map(|family| family.get_metric().len()).collect()
    };
    let before = series();
    endpoints.set_found(&[("10.0.0.1".to_owned(), 6443)]);
    assert_ne!(series(), before);
    let left = server(&endpoints, "10.0.0.1");
    endpoints.set_found(&[]);
    assert_eq!(series(), before);
    left.probed(ProbeResult::Ready);
    left.admit(Admission::SameCluster);
    fail(&left);
    assert_eq!(series(), before);
}

#[tokio::test(start_paused = true)]
async fn no_more_servers_than_the_most_are_in_the_set() {
    let endpoints = endpoints(&["https://a"]);
    let addresses: Vec<_> = (0..40).map(|index| (format!("10.0.0.{index}"), 6443)).collect();
    for _ in 0..2 {
        endpoints.set_found(&addresses);
        assert_eq!(endpoints.servers().len(), SERVERS_MAX);
    }
}

#[test]
fn a_gateway_to_several_clusters_names_no_other_addresses() {
    let configured = Endpoint::parse("https://rancher/k8s/clusters/c-1", None).unwrap();
    let metrics = || EndpointsMetrics::register(&Registry::new()).unwrap();
    let config = EndpointsConfig { endpoint_slice: true, ..EndpointsConfig::default() };
    Endpoints::new(&configured, &config, metrics()).unwrap_err();
    let static_urls = vec!["http://plain".to_owned()];
    let config = EndpointsConfig { static_urls, ..EndpointsConfig::default() };
    let error = Endpoints::new(&configured, &config, metrics()).unwrap_err();
    assert!(error.to_string().contains("scheme"), "{error}");
}
