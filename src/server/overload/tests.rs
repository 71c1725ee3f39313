//! Tests of what each stage refuses, and of who acts on it.

use http::{Method, StatusCode};
use prometheus::Registry;
use tracing_subscriber::layer::SubscriberExt;

use super::*;
use crate::api::request_info::RequestInfo;
use crate::flow::rules::rank;
use crate::telemetry::events::Events;
use crate::telemetry::logging::recording;
use crate::telemetry::recent_lines::RecentLines;

const POD_BYTES: u64 = 25 << 20;

struct Sample {
    info: RequestInfo,
    rank: Option<u8>,
    is_forwarded: bool,
}

fn asked(level: &str, method: Method, path: &str, query: &str) -> Sample {
    let info = RequestInfo::parse(&method, path, query);
    Sample { info, rank: Some(rank(level)), is_forwarded: method != Method::GET }
}

fn get(level: &str, path: &str, query: &str) -> Sample {
    asked(level, Method::GET, path, query)
}

fn demand(info: &RequestInfo, rank: Option<u8>, is_forwarded: bool) -> Demand<'_> {
    Demand { info, rank, bytes: Some(POD_BYTES), is_forwarded, is_checked: false, flow: 0 }
}

/// Returns the first stage that refuses a request, and as what.
fn refused(asked: &Sample) -> Option<(Stage, &'static str)> {
    let Sample { info, rank, is_forwarded } = asked;
    let demand = demand(info, *rank, *is_forwarded);
    let mut stages = Stage::ALL.into_iter();
    let first = stages.find_map(|stage| demand.refused_at(stage).map(|kind| (stage, kind)));
    // All higher stages refuse it too.
    assert!(first.is_none() || stages.all(|stage| demand.refused_at(stage).is_some()));
    first
}

const PODS: &str = "/api/v1/pods";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1";

#[test]
fn large_lists_go_first_those_of_low_levels_before_others() {
    let large = "large-list";
    let list = |level| refused(&get(level, PODS, "resourceVersion=0"));
    assert_eq!(list("global-default"), Some((Stage::LargeLists, large)));
    assert_eq!(list("workload-low"), Some((Stage::LargeLists, large)));
    assert_eq!(list("workload-high"), Some((Stage::InitialStates, large)));
    assert_eq!(list("exempt"), None);
    // Without flow control, or for a sender who is not known.
    let unknown = Sample { rank: None, ..get("exempt", PODS, "") };
    assert_eq!(refused(&unknown), Some((Stage::LargeLists, large)));
}

#[test]
fn lists_of_parts_go_with_everything_else() {
    let last = Some((Stage::VitalOnly, "other"));
    for query in ["limit=500", "labelSelector=app%3Dweb", "fieldSelector=spec.nodeName%3Dn1"] {
        assert_eq!(refused(&get("workload-low", PODS, query)), last, "{query}");
    }
    assert_eq!(refused(&get("workload-low", "/api/v1/namespaces/a/pods", "")), last);
    let many = refused(&get("workload-low", PODS, "limit=100000"));
    assert_eq!(many, Some((Stage::LargeLists, "large-list")));
}

#[test]
fn watches_that_resume_outlast_those_that_begin() {
    let begin = Some((Stage::InitialStates, "initial-state"));
    let watch = |query| refused(&get("workload-low", PODS, query));
    assert_eq!(watch("watch=1"), begin);
    assert_eq!(watch("watch=1&resourceVersion=0"), begin);
    let asks = "watch=1&sendInitialEvents=true&resourceVersion=5&allowWatchBookmarks=true";
    assert_eq!(watch(asks), begin);
    let resumes = Some((Stage::VitalOnly, "other"));
    assert_eq!(watch("watch=1&resourceVersion=5"), resumes);
    assert_eq!(watch("watch=1&fieldSelector=metadata.name%3Da"), resumes);
}

#[test]
fn leases_nodes_health_and_cached_gets_are_never_refused() {
    assert_eq!(refused(&asked("node-high", Method::PUT, LEASE, "")), None);
    assert_eq!(refused(&asked("catch-all", Method::PATCH, "/api/v1/nodes/n1/status", "")), None);
    assert_eq!(refused(&get("catch-all", "/readyz", "")), None);
    assert_eq!(refused(&get("catch-all", "/api/v1/namespaces/a/pods/b", "")), None);
    let forwarded =
        Sample { is_forwarded: true, ..get("catch-all", "/api/v1/namespaces/a/pods/b", "") };
    assert_eq!(refused(&forwarded), Some((Stage::VitalOnly, "other")));
    assert_eq!(refused(&Sample { is_forwarded: true, ..get("catch-all", LEASE, "") }), None);
    let write = refused(&asked("workload-high", Method::POST, "/api/v1/namespaces/a/pods", ""));
    assert_eq!(write, Some((Stage::VitalOnly, "other")));
}

fn overload(mode: FlowControlMode) -> (Registry, Arc<Overload>) {
    let registry = Registry::new();
    let metrics = OverloadMetrics::register(&registry).unwrap();
    (registry, Overload::new(mode, metrics))
}

fn admit(overload: &Overload) -> Result<(), Rejection> {
    let Sample { info, rank, is_forwarded } = get("workload-low", PODS, "");
    overload.admit(&demand(&info, rank, is_forwarded))
}

#[test]
fn a_request_that_was_checked_before_counts_once() {
    let list = get("workload-low", PODS, "");
    let again = Demand { is_checked: true, ..demand(&list.info, list.rank, true) };
    assert_eq!(again.newly_refused_at(Stage::VitalOnly), None);
    let pod = get("workload-low", "/api/v1/namespaces/a/pods/b", "");
    let forwarded = Demand { is_checked: true, ..demand(&pod.info, pod.rank, true) };
    assert_eq!(forwarded.newly_refused_at(Stage::VitalOnly), Some("other"));
}

#[test]
fn a_refusal_says_when_to_try_again() {
    let (_, overload) = overload(FlowControlMode::Enforce);
    assert!(!overload.has_checks() && admit(&overload).is_ok());
    overload.set(Stages { overall: Stage::LargeLists, space: Stage::Calm }, &Signals::default());
    assert!(overload.has_checks());
    let rejection = admit(&overload).unwrap_err();
    let status = &rejection.status;
    assert_eq!((status.code, rejection.shed()), (StatusCode::TOO_MANY_REQUESTS, Some("overload")));
    assert!(matches!(status.retry_after_seconds, Some(2..=4)));
}

#[test]
fn without_enforcement_only_what_runs_out_is_acted_upon() {
    for mode in [FlowControlMode::Observe, FlowControlMode::Off] {
        let (registry, overload) = overload(mode);
        overload.set(Stages { overall: Stage::VitalOnly, space: Stage::Calm }, &Signals::default());
        assert!(admit(&overload).is_ok() && !overload.is_saving());
        let text = prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        let counted =
            "weir_overload_refused_requests_total{enforced=\"false\",kind=\"large-list\"} 1";
        assert!(text.contains(counted), "{text}");
        overload.set(
            Stages { overall: Stage::VitalOnly, space: Stage::LargeLists },
            &Signals::default(),
        );
        assert!(admit(&overload).is_err() && overload.is_saving() && !overload.is_vital_only());
    }
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_for_the_last_stage_are_woken() {
    let (_, overload) = overload(FlowControlMode::Enforce);
    let waiting = Arc::clone(&overload);
    let woken = tokio::spawn(async move { waiting.until_vital_only().await });
    tokio::task::yield_now().await;
    overload.set(Stages { overall: Stage::InitialStates, space: Stage::Calm }, &Signals::default());
    tokio::task::yield_now().await;
    assert!(!woken.is_finished());
    let before_the_first_poll = overload.until_vital_only();
    overload.set(Stages { overall: Stage::VitalOnly, space: Stage::Calm }, &Signals::default());
    woken.await.unwrap();
    before_the_first_poll.await;
}

/// The log does not seem to say that an overload lasts.
#[test]
fn the_end_of_an_overload_is_noted_and_logged_as_its_begin() {
    let events = Events::default();
    let metrics = OverloadMetrics::register(&Registry::new()).unwrap().with_events(&events);
    let overload = Overload::new(FlowControlMode::Enforce, metrics);
    let lines = RecentLines::default();
    let subscriber = tracing_subscriber::registry().with(recording(lines.clone()));
    tracing::subscriber::with_default(subscriber, || {
        for overall in [Stage::Saving, Stage::Calm].repeat(20) {
            overload.set(Stages { overall, space: Stage::Calm }, &Signals::default());
        }
    });
    let noted: Vec<_> =
        events.since(0).into_iter().map(|event| (event.text.into_string(), event.count)).collect();
    let text = |stage| format!("The stage of Weir's own overload changed to {stage}.");
    assert_eq!(noted, [(text("Calm"), 20), (text("Saving"), 20)]);
    let text = lines.text();
    let count = |stage: &str| text.matches(&format!("\"stage\":\"{stage}\"")).count();
    assert_eq!((count("Saving"), count("Calm")), (5, 5), "{text}");
}
