//! API servers that are found at run time, by a DNS name or by EndpointSlices whose addresses
//! change.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};
use weir::config::Config;
use weir::config::seams::{Resolver, Seams};
use weir::simulator::{Rule, Simulator, SimulatorOptions, User};

use crate::client::Call;
use crate::harness::{Proxy, configmap, seed};
use crate::servers::{Rig, addresses, three_servers};
use crate::wait::eventually;

const NAMESPACE: &str = "/api/v1/namespaces/ns1/configmaps";
const SLICES: (&str, &str) = ("discovery.k8s.io/v1", "endpointslices");

/// Lets Weir find the servers by EndpointSlices.
async fn rig_with_slices() -> Rig {
    let upstream = three_servers().await;
    let servers = addresses(&upstream).await;
    for (number, address) in servers.iter().enumerate() {
        upstream.store().create(slice(&format!("server-{number}"), *address)).unwrap();
    }
    let adjust = |config: &mut Config| config.upstream.endpoints.endpoint_slice = true;
    Rig { proxy: Proxy::before(upstream, "", adjust).await, servers }
}

fn slice(name: &str, address: SocketAddr) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": name, "namespace": "default",
            "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "endpoints": [{"addresses": [address.ip().to_string()], "conditions": {"ready": true}}],
        "ports": [{"name": "https", "port": address.port(), "protocol": "TCP"}],
    })
}

/// Waits until a server is in the set no more.
async fn until_left(rig: &Rig, server: SocketAddr) {
    eventually(&format!("{server} left the set"), async || {
        let text = rig.proxy.admin("/metrics").await.text();
        !text.contains(&format!("server=\"http://{server}\""))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn addresses_of_a_dns_name_that_change_are_followed() {
    let upstream = three_servers().await;
    let servers = addresses(&upstream).await;
    let answer = Arc::new(Mutex::new(vec![servers[0], servers[1]]));
    let resolved = Arc::clone(&answer);
    let resolver = Resolver::new(move |host, _| {
        assert_eq!(host, "api.example.com");
        let answer = resolved.lock().clone();
        Box::pin(async move { Ok(answer) })
    });
    let adjust = |config: &mut Config| {
        config.upstream.endpoints.dns = Some("api.example.com".parse().unwrap());
    };
    let seams = Seams { resolver: Some(resolver), ..Seams::default() };
    let rig = Rig { proxy: Proxy::before_with(seams, upstream, "", adjust).await, servers };
    rig.until_usable(&rig.servers[..2]).await;

    *answer.lock() = vec![rig.servers[1], rig.servers[2]];
    until_left(&rig, rig.servers[0]).await;
    rig.until_usable(&rig.servers[1..]).await;
    rig.proxy.upstream.requests().reset();
    for number in 0..40 {
        assert_eq!(rig.write(&format!("write-{number}")).await, 201);
    }
    let writes = rig.writes();
    assert_eq!((writes[0], writes.iter().sum::<usize>()), (0, 40));
}

/// An address that is not ready, one that is replaced, and an answer without any.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_of_endpoint_slices_that_change_are_followed() {
    let rig = rig_with_slices().await;
    rig.until_usable(&rig.servers).await;
    let store = rig.proxy.upstream.store();
    let (api_version, plural) = SLICES;
    let delete = |name: &str| {
        store.delete(api_version, plural, "default", name).unwrap();
    };
    let mut unready = slice("server-2", rig.servers[2]);
    unready["endpoints"][0]["conditions"]["ready"] = false.into();
    delete("server-2");
    store.create(unready).unwrap();
    until_left(&rig, rig.servers[2]).await;

    delete("server-1");
    store.create(slice("server-1", rig.servers[2])).unwrap();
    until_left(&rig, rig.servers[1]).await;
    rig.until_usable(&[rig.servers[0], rig.servers[2]]).await;

    for name in ["server-0", "server-1", "server-2"] {
        delete(name);
    }
    let asked = || rig.proxy.upstream.requests().count("list", plural);
    let before = asked();
    eventually("the slices are listed twice", async || asked() >= before + 2).await;
    rig.until_usable(&[rig.servers[0], rig.servers[2]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_of_endpoint_slices_are_used_while_they_are_listed() {
    let rig = rig_with_slices().await;
    rig.until_usable(&rig.servers).await;
    rig.proxy
        .upstream
        .store()
        .delete("discovery.k8s.io/v1", "endpointslices", "default", "server-2")
        .unwrap();
    let is_listed = async || rig.is(rig.servers[2], "usable").await;
    eventually("it left the set", async || !is_listed().await).await;
    rig.proxy.upstream.requests().reset();
    for number in 0..40 {
        assert_eq!(rig.write(&format!("write-{number}")).await, 201);
    }
    assert_eq!(rig.writes()[2], 0);
}

/// Its address is checked, and gets nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_address_of_another_cluster_and_weirs_own_are_never_used() {
    let other = Simulator::start(SimulatorOptions::default()).await.unwrap();
    let rig = rig_with_slices().await;
    rig.until_usable(&rig.servers).await;
    let weir_address = rig.proxy.plain();
    for (name, address) in [("other", other.address()), ("own", weir_address)] {
        rig.proxy.upstream.store().create(slice(name, address)).unwrap();
    }
    eventually("both were asked", async || {
        let was_asked = other.requests().count("list", "namespaces") > 0;
        was_asked && rig.is(weir_address, "ejected").await
    })
    .await;
    for number in 0..60 {
        assert_eq!(rig.write(&format!("write-{number}")).await, 201);
    }
    assert!(!rig.is_admitted(other.address()).await && !rig.is_admitted(weir_address).await);
    let asked = other.requests().recent();
    let checks = ["/readyz", "/api/v1/namespaces"];
    let is_check =
        |path: &str| checks.contains(&path) || Path::new(path).ends_with("kube-system/leases");
    assert!(asked.iter().all(|request| is_check(&request.path)), "{asked:?}");
    // A request that came back is refused.
    let call = Call::get("/api/v1/nodes").header("x-weir-via", "a, b, c, d");
    assert_eq!(rig.proxy.call(&call).await.status, 508);
}

/// A role in one namespace, which may not read the namespace kube-system. Two servers are
/// configured, and an EndpointSlice names a third one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_in_one_namespace_uses_configured_servers_alone_and_notices_a_rewind() {
    let read = Rule::new(&["get", "list", "watch"], &["configmaps"], &["ns1"]);
    let find = Rule::new(&["list"], &["endpointslices"], &["default"]);
    let users = vec![User::with_rules("narrow", "narrow", vec![read, find])];
    let options = SimulatorOptions { servers: 3, users, ..SimulatorOptions::default() };
    let upstream = Simulator::start(options).await.unwrap();
    seed(&upstream);
    let servers = addresses(&upstream).await;
    upstream.store().create(slice("found", servers[2])).unwrap();
    let urls = servers[..2].iter().map(|address| format!("http://{address}")).collect();
    let adjust = |config: &mut Config| {
        config.upstream.endpoints.static_urls = urls;
        config.upstream.endpoints.endpoint_slice = true;
    };
    let rig = Rig { proxy: Proxy::before(upstream, "narrow", adjust).await, servers };
    rig.until_usable(&rig.servers[..2]).await;
    let metric = async |name: &str| rig.proxy.metric(name, &[]).await;
    eventually("the found server cannot be verified", async || {
        metric("weir_upstream_servers_unverified").await == 1.0
    })
    .await;
    assert_eq!(metric("weir_upstream_cluster_identified").await, 0.0);
    assert!(!rig.is_admitted(rig.servers[2]).await);
    let object = format!("{NAMESPACE}/cm-a");
    for _ in 0..40 {
        assert_eq!(rig.proxy.get(&object).await.status, 200);
    }
    let recent = rig.proxy.upstream.requests().recent();
    let of_client = || recent.iter().filter(|request| request.path == object);
    assert!(of_client().count() == 40 && of_client().all(|request| request.server != 2));

    rig.proxy.warm(NAMESPACE).await;
    let upstream = &rig.proxy.upstream;
    let saved = upstream.snapshot();
    for number in 0..5 {
        upstream.store().create(configmap("ns1", &format!("lost-{number}"), 1)).unwrap();
    }
    rig.proxy.catch_up(NAMESPACE).await;
    upstream.requests().reset();
    upstream.rewind(&saved);
    upstream.store().create(configmap("ns1", "kept", 1)).unwrap();
    eventually("the restored objects", async || {
        let list = rig.proxy.get(&format!("{NAMESPACE}?resourceVersion=0")).await;
        list.cache() == "hit" && list.text().contains("kept") && !list.text().contains("lost")
    })
    .await;
    assert!(metric("weir_history_rewinds_total").await >= 1.0);
    let recent = upstream.requests().recent();
    let is_probe = |server: usize| {
        recent.iter().any(|request| {
            request.path == NAMESPACE && request.query == "limit=1" && request.server == server
        })
    };
    assert!(is_probe(0) && is_probe(1), "both were asked consistently");
    assert_eq!(metric("weir_upstream_servers_unverified").await, 1.0);
}
