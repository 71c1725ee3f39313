//! Tests of the hits that are charged together.

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

    /// Lets ten seconds pass.
    async fn go_on(&self) {
        for _ in 0..10 {
            tokio::time::advance(Duration::from_secs(1)).await;
            self.flow.tend();
        }
    }

    fn listed(&self) -> usize {
        self.flow.uncharged.0.lock().len()
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

#[tokio::test(start_paused = true)]
async fn hits_are_charged_within_ten_seconds_and_counted_at_once() {
    let fixture = Fixture::new().await;
    let client = fixture.connect(0);
    (0..100).for_each(|_| hit(&client, 0, "a"));
    assert_eq!((fixture.counted(), fixture.charged(0).0), (100.0, 0.0));
    fixture.go_on().await;
    let (requests, bytes) = fixture.charged(0);
    assert!((99.0..=100.0).contains(&requests) && bytes == 2.0 * requests, "{requests}");
    assert_eq!(fixture.counted(), 100.0);
}

#[tokio::test(start_paused = true)]
async fn a_report_has_all_hits() {
    let fixture = Fixture::new().await;
    let client = fixture.connect(0);
    (0..7).for_each(|_| hit(&client, 0, "a"));
    tokio::time::advance(Duration::from_secs(1)).await;
    let report = fixture.flow.report(1);
    assert!(report[1]["all"]["requestsPerSecond"].as_f64().unwrap() > 6.9, "{report:#}");
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_has_ended_is_charged() {
    let fixture = Fixture::new().await;
    let client = fixture.connect(0);
    hit(&client, 0, "a");
    drop(client);
    fixture.flow.charge_all_hits();
    assert_eq!(fixture.charged(0).0, 1.0);
    fixture.go_on().await;
    assert_eq!(fixture.listed(), 0);
}

#[tokio::test(start_paused = true)]
async fn connections_that_came_together_are_charged_a_tenth_at_a_time() {
    let fixture = Fixture::new().await;
    let clients: Vec<_> = (0..50).map(|name| fixture.connect(name)).collect();
    clients.iter().for_each(|client| hit(client, 0, "a"));
    fixture.go_on().await;
    let charged = (0..50).filter(|name| fixture.charged(*name).0 > 0.9).count();
    assert_eq!(charged, 5);
    fixture.go_on().await;
    assert!((0..50).all(|name| fixture.charged(name).0 > 0.9));
    // Those without hits since then are forgotten.
    for _ in 0..3 {
        fixture.go_on().await;
    }
    assert_eq!(fixture.listed(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_pattern_ends_with_its_plan_and_after_a_minute() {
    let fixture = Fixture::new().await;
    let client = fixture.connect(0);
    hit(&client, 0, "a");
    let patterns = || {
        let listed = fixture.flow.uncharged.0.lock();
        listed.iter().map(|(_, uncharged)| uncharged.0.lock().patterns.len()).sum::<usize>()
    };
    fixture.flow.set_plan(Plan::built_in());
    hit(&client, 0, "a");
    assert_eq!(patterns(), 2);
    fixture.go_on().await;
    hit(&client, 0, "a");
    fixture.go_on().await;
    assert_eq!(patterns(), 1);
    for _ in 2..AGE_MAX {
        hit(&client, 0, "a");
        fixture.go_on().await;
    }
    assert_eq!(patterns(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_client_of_many_namespaces_has_few_patterns() {
    let fixture = Fixture::new().await;
    let client = fixture.connect(0);
    (0..100).for_each(|namespace| hit(&client, namespace, "a"));
    let uncharged = Arc::clone(&fixture.flow.uncharged.0.lock()[0].1);
    assert_eq!(uncharged.0.lock().patterns.len(), PATTERNS_MAX);
    fixture.flow.charge_all_hits();
    assert_eq!(fixture.charged(0).0, 100.0);
}

#[tokio::test(start_paused = true)]
async fn a_look_at_the_costs_ends_no_pattern() {
    let fixture = Fixture::new().await;
    let client = fixture.connect(0);
    for second in 0..3 {
        hit(&client, 0, "a");
        (0..3).for_each(|_| fixture.flow.charge_all_hits());
        assert_eq!(fixture.charged(0).0, f64::from(second + 1));
    }
    let uncharged = Arc::clone(&fixture.flow.uncharged.0.lock()[0].1);
    let patterns = uncharged.0.lock();
    assert_eq!((patterns.patterns.len(), patterns.patterns[0].age), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_long_user_agent_is_not_kept() {
    let fixture = Fixture::new().await;
    let client = fixture.connect(0);
    hit(&client, 0, &"a".repeat(AGENT_BYTES_MAX + 1));
    assert_eq!((fixture.listed(), fixture.charged(0).0), (0, 1.0));
}

proptest! {
    /// Whoever sends what over which connection, and whenever sums are charged, each user is
    /// charged for his requests, and the metrics have all of them.
    #[test]
    fn each_user_is_charged_for_his_hits(
        come in prop::collection::vec((0_usize..2, 0_usize..3, 0_usize..3, 0_usize..2, 0_usize..9), 1..300),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().start_paused(true).build().unwrap();
        let fixture = runtime.block_on(Fixture::new());
        let _entered = runtime.enter();
        let connections = [fixture.connect(0), fixture.connect(0)];
        let mut sent = [0.0; 3];
        for &(connection, name, namespace, agent, charges) in &come {
            let client = connections[connection].with_user(user(name));
            hit(&client, namespace, ["a", "b"][agent]);
            sent[name] += 1.0;
            if charges == 0 {
                fixture.flow.tend();
            }
        }
        fixture.flow.charge_all_hits();
        for (name, sent) in sent.into_iter().enumerate() {
            prop_assert_eq!(fixture.charged(name), (sent, 2.0 * sent));
        }
        prop_assert_eq!(fixture.counted(), come.len() as f64);
    }
}
