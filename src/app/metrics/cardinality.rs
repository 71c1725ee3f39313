//! The bounds of the reference page hold, whatever custom resources and users there are.

use std::time::Duration;

use bytes::Bytes;
use http::Request;

use super::reference::bound;
use super::*;
use crate::api::request_info::{RequestInfo, RequestScope};
use crate::api::resource::GroupVersionResource;
use crate::auth::user::User;
use crate::cache::metrics::{
    CHECK_OUTCOMES, CHECKS, EventLabel, PROOF_STEPS, RELIST_CAUSES, STATES, WATCH_RESULTS,
};
use crate::config::endpoints::EndpointsConfig;
use crate::config::{Config, FlowControlMode, UpstreamConfig};
use crate::flow::doctor::Rule;
use crate::server::metrics::{AnsweredRequest, CacheStatus};
use crate::server::{FlowControl, SampleClient};
use crate::telemetry::events::EventKind;
use crate::telemetry::metrics::catalogue::families;
use crate::upstream::Upstream;

const CUSTOM_RESOURCES: usize = 5_000;
/// Ten times as many as a summary of costs keeps.
const USERS: usize = 2_000;
/// The beginning of their names.
const USER: &str = "jane-";

#[tokio::test]
async fn custom_resources_and_users_cannot_exceed_the_bounds_of_the_reference() {
    drop(families());
    let metrics = Metrics::new().unwrap();
    let registered = families();
    many_resources(&metrics);
    every_word_of_one_cache(&metrics);
    many_users(&metrics).await;
    let mut wrong = Vec::new();
    for family in metrics.registry.gather() {
        let Some(family_info) =
            registered.iter().find(|family_info| family_info.name == family.name())
        else {
            assert!(family.name().starts_with("process_"), "{}", family.name());
            continue;
        };
        let (bound, series) =
            (bound(&family_info.name, &family_info.labels), family.get_metric().len());
        if series > most(&bound) {
            wrong.push(format!("{}: {series} series, more than {bound}", family_info.name));
        }
        for label in family.get_metric().iter().flat_map(|metric| metric.get_label()) {
            if label.value().contains(USER) {
                wrong.push(format!("{}: {}", family_info.name, label.value()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Returns the product that a bound of the reference stands for.
fn most(bound: &str) -> usize {
    let factor = |factor: &str| match factor {
        "resources" => 4_097,
        "caches" => 2_048,
        // Those of Weir's own plan.
        "levels" | "schemas" => 20,
        "rules" => Rule::ALL.len(),
        "servers" => 1,
        number => number.parse().unwrap(),
    };
    bound.split(" × ").map(factor).product()
}

/// Each custom resource is requested, and has a cache for a time.
fn many_resources(metrics: &Metrics) {
    for number in 0..CUSTOM_RESOURCES {
        let plural = format!("things{number}");
        let gvr = GroupVersionResource::new("example.com", "v1", &plural);
        let resource = metrics.server.resource(Some(&gvr));
        for cache_status in [CacheStatus::Hit, CacheStatus::Forward] {
            resource.request(&answered("list", cache_status, 200));
        }
        resource.delivered(1, 1);
        let series = metrics.cache.series(["example.com", "v1", &plural, "", "json"]);
        series.relist("start");
        series.retire();
    }
}

fn answered(verb: &'static str, cache_status: CacheStatus, code: u16) -> AnsweredRequest {
    AnsweredRequest {
        verb,
        scope: RequestScope::Cluster,
        cache_status,
        reason: "",
        code,
        duration: Duration::from_millis(1),
        bytes: Some(1),
    }
}

/// All requests that can be sent, all codes, and all that happens to a cache.
fn every_word_of_one_cache(metrics: &Metrics) {
    let pods = metrics.server.resource(Some(&GroupVersionResource::new("", "v1", "pods")));
    for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW"] {
        let paths = ["", "/p", "/p/log", "/p/exec", "/p/proxy/x", "/p/status"];
        for path in paths.map(|path| format!("/api/v1/namespaces/ns/pods{path}")) {
            let info = RequestInfo::parse(&method.parse().unwrap(), &path, "");
            for scope in [RequestScope::Resource, RequestScope::Namespace, RequestScope::None] {
                let request = answered(info.verb_label(), CacheStatus::Error, 503);
                pods.request(&AnsweredRequest { scope, ..request });
            }
        }
    }
    for code in 100..1000 {
        pods.request(&answered("connect", CacheStatus::Forward, code));
    }
    let series = metrics.cache.series(["", "v1", "pods", "", "json"]);
    STATES.into_iter().for_each(|state| series.state(state));
    RELIST_CAUSES.into_iter().for_each(|cause| series.relist(cause));
    PROOF_STEPS.into_iter().for_each(|step| series.proof(step, Duration::ZERO));
    WATCH_RESULTS.into_iter().for_each(|result| series.watch_ended(result));
    for check in CHECKS {
        CHECK_OUTCOMES.into_iter().for_each(|outcome| series.checked(check, outcome));
    }
    series.event(EventLabel::Upsert, 1);
}

/// Each user sends a request, and is the subject of a notable event.
async fn many_users(metrics: &Metrics) {
    // Nothing is sent to it.
    let static_urls = vec!["http://127.0.0.1:1".to_owned()];
    let endpoints = EndpointsConfig { static_urls, ..EndpointsConfig::default() };
    let config = UpstreamConfig { endpoints, ..Config::default().upstream };
    let upstream = Upstream::new(&config, metrics.upstream.clone()).await.unwrap();
    let mut config = Config::default().flow_control;
    config.mode = FlowControlMode::Enforce;
    let flow = FlowControl::new(true, &config, metrics.flow.clone());
    for number in 0..USERS {
        let name = format!("{USER}{number}");
        metrics.events.notable(EventKind::Rights, &name, "A user.", |_| {});
        let user = User::new(
            name,
            String::new(),
            ["system:authenticated".to_owned()].into(),
            Default::default(),
        );
        let client = SampleClient::new(flow.clone(), user, upstream.clone());
        let mut head =
            Request::get("/api/v1/pods?resourceVersion=0").body(()).unwrap().into_parts().0;
        client.request(&mut head, Bytes::from_static(b"{}")).unwrap().hit(Duration::ZERO).await;
    }
    flow.tend();
}
