//! The export of spans: collectors that hang, are away, refuse or are not trusted.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use tokio::net::TcpSocket;
use tokio::task::JoinSet;
use weir::config::Config;
use weir::simulator::{Simulator, SimulatorOptions};
use weir::telemetry::trace::otlp::{ExportTracePartialSuccess, ExportTraceServiceResponse};

use super::{EVERYTHING, LIST, ROUTE, create, sidecar};
use crate::client::{self, Call};
use crate::collector::{Collector, Reaction};
use crate::harness::{Proxy, seed};
use crate::wait::eventually;

/// Sends `count` sampled requests that a cache answers.
async fn many(proxy: &Proxy, count: usize) {
    proxy.warm("/api/v1/configmaps").await;
    let address = proxy.plain();
    let mut requests = JoinSet::new();
    for _ in 0..count {
        requests.spawn(async move { client::fetch(address, &Call::get(LIST)).await });
        if requests.len() >= 32 {
            requests.join_next().await.unwrap().unwrap();
        }
    }
    for answer in requests.join_all().await {
        assert_eq!((answer.status.as_u16(), answer.cache()), (200, "hit"));
    }
}

async fn failed(proxy: &Proxy, cause: &str) -> f64 {
    let cause = format!("cause=\"{cause}\"");
    proxy.metric("weir_tracing_spans_failed_total", &[&cause]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_hangs_delays_nobody_and_spans_are_dropped() {
    let collector = Collector::start(&[Reaction::Hang]).await;
    let mut proxy = sidecar(&collector, EVERYTHING).await;
    // Each has four spans or more.
    many(&proxy, 800).await;
    assert!(proxy.metric("weir_tracing_spans_dropped_total", &[]).await > 0.0);
    assert_eq!(proxy.metric("weir_tracing_spans_exported_total", &[]).await, 0.0);
    tokio::time::timeout(Duration::from_secs(60), proxy.stop()).await.expect("Weir ends");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_is_away_is_no_reason_not_to_start_or_to_stop() {
    // A socket that does not listen refuses connections, and keeps its port from others.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = socket.local_addr().unwrap();
    let upstream = Simulator::start(SimulatorOptions::default()).await.unwrap();
    seed(&upstream);
    let adjust = |config: &mut Config| {
        config.tracing.endpoint = Some(format!("http://{address}/v1/traces").parse().unwrap());
        config.tracing.sampling_rate_per_million = EVERYTHING;
    };
    let mut proxy = Proxy::before(upstream, "", adjust).await;
    many(&proxy, 10).await;
    proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spans_are_sent_again_only_if_that_may_help() {
    let collector =
        Collector::start(&[Reaction::Status(503), Reaction::Accept(Bytes::new())]).await;
    let proxy = sidecar(&collector, EVERYTHING).await;
    assert_eq!(proxy.call(&create("one")).await.status, 201);
    collector.request(ROUTE).await;
    assert_eq!(failed(&proxy, "unavailable").await, 0.0);

    let collector = Collector::start(&[Reaction::Status(400)]).await;
    let proxy = sidecar(&collector, EVERYTHING).await;
    assert_eq!(proxy.call(&create("one")).await.status, 201);
    eventually("they are counted", async || failed(&proxy, "refused").await > 0.0).await;
    assert_eq!(collector.spans(), []);

    let partial = ExportTracePartialSuccess { rejected_spans: 1, error_message: "no".to_owned() };
    let response = ExportTraceServiceResponse { partial_success: Some(partial) };
    let accepts = Reaction::Accept(response.encode_to_vec().into());
    let collector = Collector::start(&[accepts]).await;
    let proxy = sidecar(&collector, EVERYTHING).await;
    assert_eq!(proxy.call(&create("one")).await.status, 201);
    eventually("one of each batch is counted, and the others", async || {
        let rejected = failed(&proxy, "rejected").await;
        let exported = proxy.metric("weir_tracing_spans_exported_total", &[]).await;
        let (requests, spans) = (collector.requests() as f64, collector.spans().len() as f64);
        rejected > 0.0 && rejected == requests && rejected + exported == spans
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_spans_are_exported_before_weir_ends() {
    let collector = Collector::start(&[]).await;
    let mut proxy = sidecar(&collector, EVERYTHING).await;
    assert_eq!(proxy.call(&create("one")).await.status, 201);
    proxy.stop().await;
    assert!(collector.spans().iter().any(|span| span.name.ends_with(ROUTE)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_with_tls_is_verified_by_its_ca() {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = rustls_pki_types::PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let tls = tokio_rustls::TlsAcceptor::from(std::sync::Arc::new(tls));
    let collector = Collector::with_tls(&[], Some(tls)).await;
    let dir = tempfile::tempdir().unwrap();
    let (trusted, other) = (dir.path().join("known.pem"), dir.path().join("other.pem"));
    std::fs::write(&trusted, made.cert.pem()).unwrap();
    let stranger = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(&other, stranger.cert.pem()).unwrap();
    for (ca_file, is_trusted) in [(other, false), (trusted, true)] {
        let upstream = Simulator::start(SimulatorOptions::default()).await.unwrap();
        seed(&upstream);
        let adjust = |config: &mut Config| {
            let url = format!("https://localhost:{}/v1/traces", collector.address.port());
            let mut endpoint: weir::config::tracing::TracingEndpoint = url.parse().unwrap();
            endpoint.ca_file = Some(ca_file);
            config.tracing.endpoint = Some(endpoint);
            config.tracing.sampling_rate_per_million = EVERYTHING;
        };
        let mut proxy = Proxy::before(upstream, "", adjust).await;
        assert_eq!(proxy.call(&create("one")).await.status, 201);
        proxy.stop().await;
        assert_eq!(!collector.spans().is_empty(), is_trusted);
    }
}
