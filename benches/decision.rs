//! What it costs to know that a user may: a decision that is remembered, alone and with the making of its question, and the 403 of one that is not.
//!
//! A remembered decision must cost less than 2 µs.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use prometheus::Registry;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use weir::api::request_info::RequestInfo;
use weir::auth::attributes::Attributes;
use weir::auth::authorizer::{Authorizer, Source};
use weir::auth::forbidden::forbidden;
use weir::auth::user::User;
use weir::config::{AuthorizationConfig, UpstreamConfig};
use weir::telemetry::auth_metrics::authorization::AuthorizationMetrics;
use weir::telemetry::upstream_metrics::UpstreamMetrics;
use weir::upstream::Upstream;

const PATH: &str = "/api/v1/namespaces/kube-system/pods";
const QUERY: &str = "fieldSelector=spec.nodeName%3Dnode-17&labelSelector=app%3Dweb&limit=500";

fn decision(c: &mut Criterion) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (authorizer, user) = runtime.block_on(authorizer());
    let plain = RequestInfo::parse(&http::Method::GET, PATH, "");
    let selecting = RequestInfo::parse(&http::Method::GET, PATH, QUERY);
    for (name, info) in [("plain", &plain), ("with selectors", &selecting)] {
        let attributes = Attributes::of(info);
        runtime.block_on(async {
            authorizer.authorize(&user, &attributes).await.expect("it is answered");
        });
        c.bench_function(&format!("cached decision, {name}"), |b| {
            b.iter_custom(|count| {
                runtime.block_on(async {
                    let started = Instant::now();
                    for _ in 0..count {
                        let decision =
                            authorizer.authorize(black_box(&user), black_box(&attributes)).await;
                        assert!(decision.is_ok_and(|found| found.source == Source::Cached));
                    }
                    started.elapsed()
                })
            });
        });
        c.bench_function(&format!("attributes, {name}"), |b| {
            b.iter(|| Attributes::of(black_box(info)));
        });
    }
    let attributes = Attributes::of(&plain);
    c.bench_function("403", |b| {
        b.iter(|| forbidden(black_box(&user), black_box(&attributes), "").to_json());
    });
}

/// One whose upstream allows everything.
async fn authorizer() -> (Arc<Authorizer>, Arc<User>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("its address");
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut buffer = vec![0; 64 * 1024];
                // A review fits in what is read at once.
                while matches!(tcp.read(&mut buffer).await, Ok(1..)) {
                    let body = r#"{"status":{"allowed":true,"reason":"a bench"}}"#;
                    let head = "HTTP/1.1 201 Created\r\nContent-Length: ";
                    let answer = format!("{head}{}\r\n\r\n{body}", body.len());
                    tcp.write_all(answer.as_bytes()).await.expect("it is read");
                }
            });
        }
    });
    let upstream = UpstreamConfig {
        kubeconfig: None,
        context: None,
        addresses: vec![format!("http://{address}")],
        connect_timeout: Duration::from_secs(5),
        http2: false,
    };
    let registry = Registry::new();
    let metrics = UpstreamMetrics::register(&registry).expect("metrics");
    let upstream = Upstream::new(&upstream, metrics).await.expect("an upstream");
    let config = AuthorizationConfig {
        allow_ttl: Duration::from_secs(3600),
        deny_ttl: Duration::from_secs(10),
        watch_recheck: None,
        stale_decision_grace: Duration::ZERO,
        rbac: None,
    };
    let metrics = AuthorizationMetrics::register(&registry).expect("metrics");
    let groups = ["developers", "system:authenticated"].map(str::to_owned).to_vec();
    let extra = BTreeMap::from([("session".to_owned(), vec!["1".to_owned()])]);
    let user = User::new("alice@example.com".to_owned(), "u-1".to_owned(), groups, extra);
    (Authorizer::new(&config, upstream, None, metrics), Arc::new(user))
}

criterion_group!(benches, decision);
criterion_main!(benches);
