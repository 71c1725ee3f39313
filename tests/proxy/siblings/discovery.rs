//! Siblings that EndpointSlices name, the credentials that they get, and oneself among them.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use weir::config::siblings::SiblingCertificate;
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
    let reads = vec![Rule::new(&["get"], &["configmaps"], &["ns1"])];
    let users = vec![User::admin(OWN, "weir"), User::with_rules("bobs", "bob", reads)];
    gateway_of(users, None).await
}

/// The same for these users, with the cluster's settings of client certificates.
async fn gateway_of(users: Vec<User>, settings: Option<Value>) -> Proxy {
    let options = SimulatorOptions { users, ..SimulatorOptions::default() };
    let upstream = Simulator::start(options).await.unwrap();
    seed(&upstream);
    if let Some(settings) = settings {
        upstream.store().create(settings).unwrap();
    }
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
    beside_service_with(first, server_name, |_| {}).await
}

async fn beside_service_with(
    first: &Proxy,
    server_name: &str,
    adjust: impl FnOnce(&mut Config),
) -> Proxy {
    let ca = write_ca(first);
    Proxy::before(first.upstream.clone(), OWN, |config| {
        as_gateway(config);
        config.cache.siblings.timeout = Duration::from_secs(60);
        config.cache.siblings.service = Some("ns1/weir".parse().unwrap());
        config.cache.siblings.server_name = Some(server_name.to_owned());
        config.cache.siblings.ca = Some(ca);
        adjust(config);
    })
    .await
}

async fn list_as_weir(proxy: &Proxy) -> String {
    let call = Call::get(ANY).header("authorization", &format!("Bearer {OWN}"));
    proxy.call(&call).await.cache().to_owned()
}

/// Waits until a cache was filled from a sibling: it answers a moment before it is counted.
async fn has_adopted_some(proxy: &Proxy) {
    crate::wait::eventually("a cache is filled from a sibling", async || {
        proxy.seeds("adopted").await >= 1.0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sibling_of_a_service_is_authenticated_and_authenticates() {
    let first = gateway().await;
    let tls = first.address(ListenerKind::Tls);
    first.upstream.store().create(slice(&[tls])).unwrap();
    first.upstream.requests().reset();
    let second = beside_service(&first, "localhost").await;
    assert_eq!(list_as_weir(&second).await, "hit");
    has_adopted_some(&second).await;
    assert!(first.seeds_served("sent").await >= 1.0);
    assert_eq!(lists_of(&first.upstream, "configmaps"), [""; 0]);
    // Each client needs the right to list, whatever header it sends.
    for (token, code) in [("bobs", 403), ("nobodys", 401)] {
        let call = Call::get(ANY)
            .header(SEED, "codec=1")
            .header("authorization", &format!("Bearer {token}"));
        let refused = first.call(&call).await;
        assert!(!refused.headers.contains_key(SEED));
        assert_eq!(refused.status.as_u16(), code, "{}", refused.text());
        assert!(!refused.text().contains("cm-a"));
    }
    assert_eq!(first.seeds_served("denied").await, 2.0);
}

/// A client certificate in place of Weir's own credentials, of someone who may list config maps
/// alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_certificate_is_shown_to_siblings_alone() {
    let mut parameters = rcgen::CertificateParams::new([]).unwrap();
    parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().unwrap();
    let ca = parameters.self_signed(&key).unwrap().pem();
    let issuer = rcgen::Issuer::new(parameters, key);
    let mut parameters = rcgen::CertificateParams::new([]).unwrap();
    parameters.distinguished_name.push(rcgen::DnType::CommonName, "replica");
    parameters.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = parameters.signed_by(&key, &issuer).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, content: String| {
        let path = dir.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    };
    let (certificate, key) =
        (file("tls.crt", certificate.pem()), file("tls.key", key.serialize_pem()));
    let lists = vec![Rule::new(&["list"], &["configmaps"], &["*"])];
    let users = vec![User::admin(OWN, "weir"), User::with_rules("replicas", "replica", lists)];
    let settings = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": "kube-system", "name": "extension-apiserver-authentication"},
        "data": {"client-ca-file": ca},
    });
    let first = gateway_of(users, Some(settings)).await;
    let tls = first.address(ListenerKind::Tls);
    first.upstream.store().create(slice(&[tls])).unwrap();
    first.upstream.requests().reset();
    let second = beside_service_with(&first, "localhost", |config| {
        config.cache.siblings.certificate =
            Some(SiblingCertificate { certificate: certificate.clone(), key: key.clone() });
    })
    .await;
    assert_eq!(list_as_weir(&second).await, "hit");
    has_adopted_some(&second).await;
    assert_eq!(lists_of(&first.upstream, "configmaps"), [""; 0]);
    let requests = first.upstream.requests().recent();
    assert!(requests.iter().all(|it| it.user != "replica"), "the API server sees Weir's own");
    // This user may not list secrets: the API server lists them.
    let secrets = Call::get("/api/v1/secrets?resourceVersion=0");
    let secrets = secrets.header("authorization", &format!("Bearer {OWN}"));
    assert_eq!(first.call(&secrets).await.cache(), "hit");
    assert_eq!(second.call(&secrets).await.cache(), "hit");
    let denied = second.seeds("denied").await;
    assert!(denied >= 1.0 && first.seeds_served("denied").await == denied);
}

/// A CA that cannot be read costs no start, and has an outcome of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ca_that_is_missing_has_an_outcome_of_its_own() {
    let first = gateway().await;
    let tls = first.address(ListenerKind::Tls);
    first.upstream.store().create(slice(&[tls])).unwrap();
    let second = beside_service_with(&first, "localhost", |config| {
        config.cache.siblings.ca = Some(first.dir.path().join("missing.crt"));
    })
    .await;
    assert_eq!(list_as_weir(&second).await, "hit");
    assert!(second.seeds("credentials").await >= 1.0);
    assert_eq!(first.metric("weir_seeds_served_total", &[]).await, 0.0);
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
