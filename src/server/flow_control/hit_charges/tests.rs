//! Tests of the hits that are charged by a pattern.

use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use http::Request;
use http::header::USER_AGENT;
use prometheus::Registry;
use proptest::prelude::*;

use super::*;
use crate::auth::user::User;
use crate::config::endpoints::EndpointsConfig;
use crate::config::{Config, FlowControlMode, UpstreamConfig};
use crate::flow::costs::Dimension;
use crate::flow::plan::Plan;
use crate::server::flow_control::memo::PATTERNS_MAX;
use crate::server::flow_control::metrics::FlowMetrics;
use crate::server::flow_control::sample::SampleClient;
use crate::upstream::Upstream;
use crate::upstream::metrics::UpstreamMetrics;

const BODY: &str = "{}";

/// Flow control, and connections whose clients are called `user-0`, `user-1`, ...
struct Fixture {
    flow: Arc<FlowControl>,
    upstream: Upstream,
    metrics: Registry,
}

impl Fixture {
    async fn new() -> Self {
        let metrics = Registry::new();
        let endpoints = EndpointsConfig {
            static_urls: vec!["http://127.0.0.1:1".to_owned()],
            ..EndpointsConfig::default()
        };
        // Nothing is sent to it.
        let config = UpstreamConfig { endpoints, ..Config::default().upstream };
        let upstream_metrics = UpstreamMetrics::register(&metrics).unwrap();
        let upstream = Upstream::new(&config, upstream_metrics).await.unwrap();
        let mut config = Config::default().flow_control;
        config.mode = FlowControlMode::Observe;
        let flow = FlowControl::new(true, &config, FlowMetrics::register(&metrics).unwrap());
        Self { flow, upstream, metrics }
    }

    fn connect(&self, name: usize) -> SampleClient {
        SampleClient::new(Arc::clone(&self.flow), user(name), self.upstream.clone())
    }

    /// Returns the requests and the bytes that were charged to a user.
    fn charged(&self, name: usize) -> (f64, f64) {
        self.flow.flush();
        let costs = self.flow.costs.lock();
        let users = costs.windows()[1].summary(Dimension::User).heaviest();
        let is_of = |key: &[(&str, Box<str>)]| *key[0].1 == user(name).name;
        let counter = users.into_iter().find(|counter| is_of(&counter.key));
        counter.map_or((0.0, 0.0), |counter| (counter.cost.requests, counter.cost.bytes))
    }

    /// Returns the requests that the metrics have counted.
    fn counted(&self) -> f64 {
        let families = self.metrics.gather().into_iter();
        let mut families =
            families.filter(|family| family.name() == "weir_flowcontrol_requests_total");
        let family = families.next().expect("a family");
        family.get_metric().iter().map(|metric| metric.get_counter().get_value()).sum()
    }
}

fn user(name: usize) -> User {
    let groups = vec!["system:authenticated".to_owned()];
    User::new(format!("user-{name}"), String::new(), groups, Default::default())
}

/// Sends a GET that a cache answers.
fn hit(client: &SampleClient, namespace: usize, agent: &str) {
    let path = format!("/api/v1/namespaces/ns-{namespace}/configmaps/cm");
    let request = Request::get(path).header(USER_AGENT, agent).body(()).unwrap();
    let mut head = request.into_parts().0;
    let mut request = client.request(&mut head, Bytes::from_static(BODY.as_bytes())).unwrap();
    request.hit(Duration::ZERO).now_or_never().expect("nothing waits");
}

fn patterns(client: &SampleClient) -> usize {
    client.memo().last_hits().0.len()
}

#[tokio::test(start_paused = true)]
async fn hits_are_charged_and_counted_at_once() {
    let fixture = Fixture::new().await;
    let client = fixture.connect(0);
    (0..100).for_each(|_| hit(&client, 0, "a"));
    assert_eq!((fixture.counted(), fixture.charged(0)), (100.0, (100.0, 200.0)));
    assert_eq!(patterns(&client), 1);
}

#[tokio::test(start_paused = true)]
async fn a_new_plan_has_patterns_of_its_own() {
    let fixture = Fixture::new().await;
    let client = fixture.connect(0);
    hit(&client, 0, "a");
    fixture.flow.set_plan(Plan::built_in());
    hit(&client, 0, "a");
    assert_eq!((patterns(&client), fixture.charged(0).0), (2, 2.0));
}

#[tokio::test(start_paused = true)]
async fn a_client_of_many_namespaces_has_few_patterns() {
    let fixture = Fixture::new().await;
    let client = fixture.connect(0);
    (0..100).for_each(|namespace| hit(&client, namespace, "a"));
    assert_eq!((patterns(&client), fixture.charged(0).0), (PATTERNS_MAX, 100.0));
}

#[tokio::test(start_paused = true)]
async fn a_long_user_agent_is_not_kept() {
    let fixture = Fixture::new().await;
    let client = fixture.connect(0);
    hit(&client, 0, &"a".repeat(AGENT_BYTES_MAX + 1));
    assert_eq!((patterns(&client), fixture.charged(0).0), (0, 1.0));
}

proptest! {
    /// Each user is charged for his own requests, whatever connections carry them, and the metrics
    /// have all of them.
    #[test]
    fn each_user_is_charged_for_his_hits(
        come in prop::collection::vec((0_usize..2, 0_usize..3, 0_usize..3, 0_usize..2), 1..300),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().start_paused(true).build().unwrap();
        let fixture = runtime.block_on(Fixture::new());
        let _entered = runtime.enter();
        let connections = [fixture.connect(0), fixture.connect(0)];
        let mut sent = [0.0; 3];
        for &(connection, name, namespace, agent) in &come {
            let client = connections[connection].with_user(user(name));
            hit(&client, namespace, ["a", "b"][agent]);
            sent[name] += 1.0;
        }
        for (name, sent) in sent.into_iter().enumerate() {
            prop_assert_eq!(fixture.charged(name), (sent, 2.0 * sent));
        }
        prop_assert_eq!(fixture.counted(), come.len() as f64);
    }
}
