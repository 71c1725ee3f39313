//! Siblings that EndpointSlices name, the credentials that they get, and oneself among them.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use weir::config::{Config, ListenerConfig, ProxyNetworks};
use weir::server::ListenerKind;
use weir::simulator::{Rule, Simulator, SimulatorOptions, User};

use super::{ANY, CONFIGMAPS, SEED, lists_of};
use crate::client::Call;
use crate::harness::{Proxy, as_gateway, seed};

const OWN: &str = "weirs-own";

fn slice(addresses: &[SocketAddr]) -> Value {
    let endpoint = |it: &SocketAddr| json!({"addresses": [it.ip().to_string()], "conditions": {"ready": true}});
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "weir-1", "namespace": "ns1",
            "labels": {"kubernetes.io/service-name": "weir"}},
        "endpoints": addresses.iter().map(endpoint).collect::<Vec<_>>(),
        "ports": [{"name": "https", "port": addresses[0].port(), "protocol": "TCP"}],
    })
}

/// A gateway with a warm cache of config maps.
async fn gateway() -> Proxy {
    let users = vec![
        User::admin(OWN, "weir"),
        User::with_rules("bobs", "bob", vec![Rule::new(&["get"], &["configmaps"], &["ns1"])]),
    ];
    let options = SimulatorOptions { users, ..SimulatorOptions::default() };
    let upstream = Simulator::start(options).await.unwrap();
    seed(&upstream);
    let proxy = Proxy::before(upstream, OWN, as_gateway).await;
    let call = Call::get(ANY).header("authorization", &format!("Bearer {OWN}"));
    crate::wait::eventually("the cache is warm", async || proxy.call(&call).await.cache() == "hit")
        .await;
    proxy.until_watching(1).await;
    proxy
}

/// Writes the CA that signs the certificate of a Weir's listener.
fn write_ca(of: &Proxy) -> std::path::PathBuf {
    let tls = of.listeners.iter().find(|listener| listener.kind == ListenerKind::Tls).unwrap();
    let file = of.dir.path().join("siblings-ca.crt");
    std::fs::write(&file, tls.ca_pem.as_ref().unwrap()).unwrap();
    file
}

/// Starts a gateway that finds its siblings by the slices of the service `ns1/weir`.
async fn beside_service(first: &Proxy, server_name: &str) -> Proxy {
    let ca = write_ca(first);
    Proxy::before(first.upstream.clone(), OWN, |config| {
        as_gateway(config);
        config.cache.siblings.timeout = Duration::from_secs(60);
        config.cache.siblings.service = Some("ns1/weir".parse().unwrap());
        config.cache.siblings.server_name = Some(server_name.to_owned());
        config.cache.siblings.ca = Some(ca);
    })
    .await
}

async fn list_as_weir(proxy: &Proxy) -> String {
    let call = Call::get(ANY).header("authorization", &format!("Bearer {OWN}"));
    proxy.call(&call).await.cache().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sibling_of_a_service_is_authenticated_and_authenticates() {
    let first = gateway().await;
    let tls = first.address(ListenerKind::Tls);
    first.upstream.store().create(slice(&[tls])).unwrap();
    first.upstream.requests().reset();
    let second = beside_service(&first, "localhost").await;
    assert_eq!(list_as_weir(&second).await, "hit");
    assert!(second.seeds("adopted").await >= 1.0 && first.seeds_served("sent").await >= 1.0);
    assert_eq!(lists_of(&first.upstream, "configmaps"), [""; 0]);
    // Each client needs the right to list, whatever header it sends.
    for (token, code) in [("bobs", 403), ("nobodys", 401)] {
        let call = Call::get(ANY)
            .header(SEED, "codec=1")
            .header("authorization", &format!("Bearer {token}"));
        let refused = first.call(&call).await;
        assert!(!refused.headers.contains_key(SEED));
        assert!([code, 503].contains(&refused.status.as_u16()), "{}", refused.text());
        assert!(!refused.text().contains("cm-a"));
    }
}

/// A certificate for another name is not one of a sibling; it gets no token.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_another_name_gets_nothing() {
    let first = gateway().await;
    let tls = first.address(ListenerKind::Tls);
    first.upstream.store().create(slice(&[tls])).unwrap();
    let second = beside_service(&first, "weir.example.com").await;
    assert_eq!(list_as_weir(&second).await, "hit");
    assert!(second.seeds("unreachable").await >= 1.0);
    assert_eq!(first.metric("weir_seeds_served_total", &[]).await, 0.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_weir_is_not_its_own_sibling() {
    let upstream = Simulator::start(SimulatorOptions::default()).await.unwrap();
    seed(&upstream);
    let port = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let adjust = |config: &mut Config| {
        let plain = ListenerConfig::Plain { address: port, proxies: ProxyNetworks::default() };
        config.server.listeners[0] = plain;
        config.cache.siblings.timeout = Duration::from_secs(60);
        config.cache.siblings.addresses = vec![format!("http://{port}")];
    };
    let proxy = Proxy::before(upstream, "", adjust).await;
    assert_eq!(proxy.get(ANY).await.cache(), "hit");
    assert_eq!(proxy.seeds("refused").await, 1.0);
    assert_eq!(lists_of(&proxy.upstream, "configmaps").len(), 1);
    assert_eq!(proxy.metric("weir_seeds_served_total", &[]).await, 0.0);
    proxy.catch_up(CONFIGMAPS).await;
}
