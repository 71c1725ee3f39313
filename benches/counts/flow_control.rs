//! The cost of flow control for a request, by itself: without sockets, and without tasks that a
//! clock starts. A difference between whole requests shows less, since it varies by ten times as
//! much.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use http::Request;
use prometheus::Registry;
use weir::auth::user::User;
use weir::config::endpoints::EndpointsConfig;
use weir::config::{Config, FlowControlMode, UpstreamConfig};
use weir::server::{FlowControl, FlowMetrics, SampleClient};
use weir::upstream::Upstream;
use weir::upstream::metrics::UpstreamMetrics;

use crate::cases::Case;

/// The requests of a case.
const TIMES: usize = 1_000;
const CACHED: &str = "flow control of a cached GET";
const FORWARDED: &str = "flow control of a forwarded GET";
/// The most instructions that flow control may add, of an optimized build.
pub(crate) const TARGETS: [(&str, f64); 2] = [(CACHED, 2_500.0), (FORWARDED, 10_000.0)];
/// The time between two requests of a connection.
const APART: Duration = Duration::from_millis(100);
const PATH: &str = "/api/v1/namespaces/default/configmaps/cm";

/// Flow control of a GET that is answered from the cache.
pub(crate) fn cached() -> Case {
    case(CACHED, Some(APART))
}

/// Flow control of a GET that is forwarded.
pub(crate) fn forwarded() -> Case {
    case(FORWARDED, None)
}

/// Requests from the cache with the given time between two of them, or forwarded requests.
fn case(name: &'static str, cached: Option<Duration>) -> Case {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = Rc::new(runtime.expect("a runtime"));
    let client = runtime.block_on(client());
    // A request borrows its client, and there are two in the life of this process.
    let client: &'static SampleClient = Box::leak(Box::new(client));
    let path = if cached.is_some() { format!("{PATH}?resourceVersion=0") } else { PATH.to_owned() };
    let request = Request::get(path).header("user-agent", "kubelet/v1.36.2 (linux/amd64)");
    let body = Bytes::from(vec![b'x'; 400]);
    let request = request.body(()).expect("a request");
    // And its head.
    let head = Box::leak(Box::new(request.into_parts().0));
    let mut request = client.request(head, body).expect("metrics are registered once");
    let mut run = move || {
        let _entered = runtime.enter();
        for _ in 0..TIMES {
            // Nothing waits.
            let done = match cached {
                Some(later) => request.hit(later).now_or_never().is_some(),
                None => request.forward().now_or_never() == Some(true),
            };
            assert!(done, "{name}");
        }
    };
    // The first request learns who the client is.
    run();
    Case { name, times: TIMES, run: Box::new(run) }
}

async fn client() -> SampleClient {
    let registry = Registry::new();
    let endpoints = EndpointsConfig {
        static_urls: vec!["http://127.0.0.1:1".to_owned()],
        ..EndpointsConfig::default()
    };
    // Nothing is sent to it.
    let config = UpstreamConfig { endpoints, ..Config::default().upstream };
    let metrics = UpstreamMetrics::register(&registry).expect("metrics");
    let upstream = Upstream::new(&config, metrics).await.expect("an upstream");
    let mut config = Config::default().flow_control;
    config.mode = FlowControlMode::Enforce;
    let metrics = FlowMetrics::register(&registry).expect("metrics");
    let flow = FlowControl::new(true, &config, metrics);
    let name = "system:serviceaccount:apps:controller".to_owned();
    let groups = ["system:serviceaccounts", "system:serviceaccounts:apps", "system:authenticated"];
    let groups = groups.map(str::to_owned).into();
    SampleClient::new(flow, User::new(name, String::new(), groups, Default::default()), upstream)
}
