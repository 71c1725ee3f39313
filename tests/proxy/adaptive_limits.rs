//! API servers that refuse forwarded requests get fewer (`docs/decisions/adaptive-limits.md`).

use weir::config::{FlowControlConfig, FlowControlMode};
use weir::simulator::Action;

use crate::client::Call;
use crate::costs::gateway_of_readers;
use crate::harness::Proxy;
use crate::wait::eventually;

const LIST: &str = "/api/v1/namespaces/ns1/configmaps";
const LEVEL: [&str; 1] = ["priority_level=\"global-default\""];

async fn gateway(adaptive: FlowControlMode) -> Proxy {
    gateway_of_readers(|config| {
        let mode = FlowControlMode::Enforce;
        config.flow_control = FlowControlConfig { mode, adaptive, ..config.flow_control.clone() };
    })
    .await
}

async fn list(proxy: &Proxy) -> u16 {
    proxy.call(&Call::get(LIST).header("authorization", "Bearer alices")).await.status.as_u16()
}

async fn refusals(proxy: &Proxy, label: &str) -> f64 {
    let label = format!("of=\"{label}");
    proxy.metric("weir_flowcontrol_upstream_refusals_total", &[&label]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_level_that_the_api_server_refuses_gets_fewer_seats_and_grows_again() {
    let proxy = gateway(FlowControlMode::Observe).await;
    let limit = async |limit: &str| {
        let limit = format!("limit=\"{limit}\"");
        proxy.metric("weir_flowcontrol_upstream_limit_seats", &[&limit]).await
    };
    eventually("the API server is known", async || limit("actual").await == 600.0).await;
    assert_eq!(list(&proxy).await, 200);
    proxy.upstream.faults().add("list", "configmaps", 1, Action::Refuse(1));
    assert_eq!(list(&proxy).await, 429, "the client learns of it");
    assert_eq!(refusals(&proxy, "level").await, 1.0);
    eventually("the level is limited", async || {
        let ratio = proxy.metric("weir_flowcontrol_upstream_level_ratio", &LEVEL).await;
        (0.69..1.0).contains(&ratio)
    })
    .await;
    assert_eq!(limit("actual").await, 600.0, "others are not");
    assert_eq!(list(&proxy).await, 200);
    eventually("it grows", async || {
        proxy.metric("weir_flowcontrol_upstream_level_ratio", &LEVEL).await > 0.75
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_refusals_change_nothing() {
    let proxy = gateway(FlowControlMode::Enforce).await;
    // A watch cache that is being filled.
    proxy.upstream.faults().add("list", "configmaps", 1, Action::TooManyRequests(1));
    assert_eq!(list(&proxy).await, 429);
    assert_eq!(refusals(&proxy, "").await, 0.0);
    assert_eq!(proxy.metric("weir_flowcontrol_upstream_level_ratio", &LEVEL).await, 0.0);

    let off = gateway(FlowControlMode::Off).await;
    off.upstream.faults().add("list", "configmaps", 1, Action::Refuse(1));
    assert_eq!(list(&off).await, 429);
    assert_eq!(refusals(&off, "level").await, 0.0, "nothing is adapted");
}
