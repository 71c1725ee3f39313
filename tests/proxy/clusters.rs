//! Another cluster answers at the address of the API server.

use std::time::Duration;

use weir::simulator::{Simulator, SimulatorOptions};

use crate::harness::{Proxy, configmap, seed};
use crate::wait::eventually;

const CONFIGMAPS: &str = "/api/v1/configmaps";

/// The resourceVersions of the other cluster are higher, so that they do not show the change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_data_of_two_clusters_is_never_mixed() {
    let mut proxy = Proxy::seeded().await;
    proxy.upstream.store().create(configmap("ns1", "of-the-first", 1)).unwrap();
    proxy.warm(CONFIGMAPS).await;
    proxy.catch_up(CONFIGMAPS).await;
    assert_eq!(proxy.metric("weir_upstream_cluster_identified", &[]).await, 1.0);
    let held = proxy.upstream.store().revision();
    let mut watch = proxy.watch(&format!("{CONFIGMAPS}?watch=1&resourceVersion={held}")).await;
    assert_eq!(watch.cache(), "hit");

    let address = proxy.upstream.address();
    proxy.upstream.stop();
    let options = SimulatorOptions { listen: address, ..SimulatorOptions::default() };
    let mut other = None;
    for _ in 0..100 {
        match Simulator::start(options.clone()).await {
            Ok(started) => {
                other = Some(started);
                break;
            }
            // The first one may not have released the port yet.
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
    proxy.upstream = other.unwrap().into();
    seed(&proxy.upstream);
    for number in 0..200 {
        let name = format!("of-the-second-{number}");
        proxy.upstream.store().create(configmap("ns1", &name, 1)).unwrap();
    }
    assert!(proxy.upstream.store().revision() > held);

    watch.rest().await;
    eventually("only the second cluster's objects", async || {
        let list = proxy.get(&format!("{CONFIGMAPS}?resourceVersion=0")).await;
        let text = list.text();
        // Nothing of the second cluster is added to what is held of the first.
        assert!(!(text.contains("of-the-first") && text.contains("of-the-second")), "{text}");
        list.cache() == "hit" && text.contains("of-the-second-199")
    })
    .await;
    assert!(proxy.metric("weir_history_rewinds_total", &[]).await >= 1.0);
    // A client of the lost history must list again.
    let mut resumed = proxy.watch(&format!("{CONFIGMAPS}?watch=1&resourceVersion={held}")).await;
    let frames = resumed.until("Expired").await;
    assert!(frames.concat().contains("410"), "{frames:?}");
}
