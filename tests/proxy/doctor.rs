//! The client doctor over a whole proxy: a bad habit is found with its fix, a good one is not, and
//! no metric names a client.

use serde_json::Value;
use weir::config::FlowControlMode;
use weir::simulator::{Simulator, SimulatorOptions};

use crate::client::{Call, Watch};
use crate::harness::{Proxy, seed};

const LIST: &str = "/api/v1/namespaces/ns1/pods";
const SCRIPT: &str = "inventory-OpenAPI-Generator/37.0.2/python";

async fn findings(proxy: &Proxy) -> Vec<Value> {
    let answer = proxy.admin("/api/findings").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["items"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_script_that_polls_is_found_and_an_informer_is_not() {
    let upstream = Simulator::start(SimulatorOptions::default()).await.unwrap();
    seed(&upstream);
    let proxy = Proxy::before(upstream, "", |config| {
        config.flow_control.mode = FlowControlMode::Observe;
    })
    .await;
    // A client that lists once and watches has no finding.
    let good = |path: &str| Call::get(path).header("user-agent", "good/1.0");
    assert_eq!(proxy.call(&good(&format!("{LIST}?resourceVersion=0"))).await.status, 200);
    let watch = good(&format!("{LIST}?watch=1&resourceVersion=0"));
    let _watch = Watch::open(proxy.plain(), &watch).await;
    for _ in 0..12 {
        let call = Call::get(LIST).header("user-agent", SCRIPT);
        assert_eq!(proxy.call(&call).await.status, 200);
    }
    let found = findings(&proxy).await;
    let rules: Vec<_> = found.iter().map(|it| it["rule"].as_str().unwrap()).collect();
    assert!(rules.contains(&"poll-list") && rules.contains(&"unset-list"), "{found:#?}");
    for finding in &found {
        assert_eq!(finding["userAgent"], SCRIPT, "{finding:#}");
        assert_eq!(finding["resource"], "pods");
        assert!(finding["fix"].as_str().unwrap().starts_with("Python: "), "{finding:#}");
        assert!(finding["upstreamCores"].as_f64().unwrap() > 0.0, "{finding:#}");
    }
    assert!(proxy.metric("weir_client_findings", &["rule=\"poll-list\""]).await >= 1.0);
    let metrics = proxy.admin("/metrics").await.text();
    assert!(!metrics.contains("inventory") && !metrics.contains("good/1.0"));
}
