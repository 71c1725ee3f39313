//! Tests of Weir's own overload: refusals, and large answers that share slots.

use http_body_util::BodyExt;

use super::harness::{Settings, Weir, echo, get};
use crate::config::FlowControlMode;
use crate::flow::overload::{Signals, Stage};
use crate::server::Stages;
use crate::testing::eventually;

const LIST: &str = "/api/v1/configmaps?resourceVersion=0";
const OBJECT: &str = "/api/v1/namespaces/default/configmaps/cm?resourceVersion=0";

fn objects(count: u64) -> impl Iterator<Item = (String, u64)> {
    (0..count).map(|number| (format!("cm-{number:06}-{}", "x".repeat(60)), 3))
}

fn set(weir: &Weir, stage: Stage) {
    weir.overload.set(Stages { overall: stage, space: Stage::Calm }, &Signals::default());
}

#[tokio::test]
async fn the_last_stage_refuses_lists_and_answers_gets() {
    let weir = Weir::start(echo).await;
    let _feed = weir.fill([("cm".to_owned(), 3)]);
    assert_eq!(weir.get(LIST).await.header("x-weir-cache"), "hit");
    set(&weir, Stage::VitalOnly);
    let refused = weir.get(LIST).await;
    assert_eq!((refused.code, refused.header("x-weir-shed")), (429, "overload"));
    let seconds: u32 = refused.header("retry-after").parse().unwrap();
    assert!((5..=10).contains(&seconds), "{seconds}");
    let text = String::from_utf8_lossy(&refused.body);
    assert!(text.contains("\"reason\":\"TooManyRequests\""), "{text}");
    assert_eq!(weir.get(OBJECT).await.header("x-weir-cache"), "hit");
    let forwarded = weir.get("/api/v1/namespaces/default/configmaps/cm").await;
    assert_eq!((forwarded.code, forwarded.header("x-weir-shed")), (429, "overload"));
    set(&weir, Stage::Calm);
    assert_eq!(weir.get(LIST).await.header("x-weir-cache"), "hit");
}

#[tokio::test]
async fn without_enforcement_late_threads_refuse_nothing() {
    let settings = Settings { flow_control_mode: FlowControlMode::Observe, ..Settings::default() };
    let weir = Weir::start_with(settings, echo).await;
    let _feed = weir.fill([("cm".to_owned(), 3)]);
    set(&weir, Stage::VitalOnly);
    assert_eq!(weir.get(LIST).await.header("x-weir-cache"), "hit");
    let counted =
        "weir_overload_refused_requests_total{enforced=\"false\",kind=\"other\"} 1".to_owned();
    assert!(weir.scrape().contains(&counted), "{}", weir.scrape());
}

/// More lists at once than there are slots, of which one is not read: all others are whole.
#[tokio::test]
async fn large_lists_are_whole_however_many_there_are() {
    let weir = Weir::start(echo).await;
    let _feed = weir.fill(objects(4_000));
    let whole = weir.get(LIST).await.body;
    assert!(whole.len() > 500_000, "{}", whole.len());
    let mut unread = weir.http1().await;
    let unread = unread.send_request(get(LIST)).await.unwrap();
    let mut lists = tokio::task::JoinSet::new();
    for _ in 0..30 {
        let mut client = weir.http1().await;
        lists.spawn(async move {
            let response = client.send_request(get(LIST)).await.unwrap();
            response.into_body().collect().await.unwrap().to_bytes()
        });
    }
    for list in lists.join_all().await {
        assert!(list == whole);
    }
    assert!(unread.into_body().collect().await.unwrap().to_bytes() == whole);
    eventually("no list waits", || weir.overload.waiting() == 0).await;
}
