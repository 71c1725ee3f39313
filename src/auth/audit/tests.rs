//! The whole log: accepted events are written completely and in order; events that do not fit into
//! the queue wait or are counted.

use std::collections::BTreeMap;
use std::fs;
use std::sync::mpsc;
use std::time::SystemTime;

use http::request::Parts;
use http::{Request, StatusCode};
use prometheus::Registry;
use serde_json::Value;

use super::*;
use crate::api::request_info::RequestInfo;
use crate::auth::audit::queue::QUEUE_BYTES_MAX;
use crate::auth::peer::Peer;
use crate::auth::user::User;
use crate::testing::eventually;

/// A request whose response has status 200.
struct TestRequest {
    parts: Parts,
    info: RequestInfo,
    peer: Peer,
    user: User,
    id: String,
}

impl TestRequest {
    fn new(uri: &str, id: &str) -> Self {
        let (parts, ()) = Request::get(uri).body(()).unwrap().into_parts();
        let query = parts.uri.query().unwrap_or_default();
        let info = RequestInfo::parse(&parts.method, parts.uri.path(), query);
        let user = User::new("alice".to_owned(), String::new(), vec![], BTreeMap::new());
        Self { parts, info, peer: Peer::default(), user, id: id.to_owned() }
    }

    fn response(&self) -> AuditResponse<'_> {
        let user = Some(&self.user);
        AuditResponse {
            subject: AuditSubject { parts: &self.parts, info: &self.info, user },
            peer: &self.peer,
            impersonated: None,
            decision: Some((true, "")),
            stale: Staleness::default(),
            code: StatusCode::OK,
            status: None,
            audit_id: self.id.as_bytes(),
            received: SystemTime::now(),
        }
    }
}

const GET: &str = "/api/v1/namespaces/a/configmaps/x";
const WATCH: &str = "/api/v1/configmaps?watch=1";

fn config(output: Option<AuditOutput>, buffer: AuditBuffer) -> AuditConfig {
    AuditConfig { output, buffer, rules: vec![AuditRule::default()] }
}

fn counted(registry: &Registry, name: &str, cause: &str) -> f64 {
    let families = registry.gather();
    let family = families.iter().find(|family| family.name() == name).unwrap();
    let metrics = family.get_metric().iter();
    let fitting = metrics.filter(|m| m.get_label().iter().all(|label| label.value() == cause));
    fitting.map(|metric| metric.get_counter().get_value()).sum()
}

fn lost(registry: &Registry, cause: &str) -> f64 {
    counted(registry, "weir_audit_events_lost_total", cause)
}

/// Returns the id and stage of each line.
fn ids_and_stages(text: &str) -> Vec<(String, String)> {
    let event = |line: &str| serde_json::from_str::<Value>(line).unwrap();
    let field = |event: &Value, name: &str| event[name].as_str().unwrap().to_owned();
    text.lines().map(event).map(|e| (field(&e, "auditID"), field(&e, "stage"))).collect()
}

fn pair(id: &str, stage: &str) -> (String, String) {
    (id.to_owned(), stage.to_owned())
}

/// An output that blocks until its gate is opened.
struct BlockedOutput {
    gate: mpsc::Receiver<()>,
    written: mpsc::Sender<Vec<u8>>,
}

impl Output for BlockedOutput {
    fn write(&mut self, lines: &[u8]) -> Result<(), (usize, io::Error)> {
        self.gate.recv().ok();
        self.written.send(lines.to_vec()).ok();
        Ok(())
    }
}

struct BlockedLog {
    log: Arc<AuditLog>,
    registry: Registry,
    open: mpsc::Sender<()>,
    written: mpsc::Receiver<Vec<u8>>,
}

impl BlockedLog {
    /// Starts a log whose queue is full.
    async fn with_full_queue(buffer: AuditBuffer) -> Self {
        let (open, gate) = mpsc::channel();
        let (sender, written) = mpsc::channel();
        let registry = Registry::new();
        let metrics = AuditMetrics::register(&registry).unwrap();
        let output = BlockedOutput { gate, written: sender };
        let log = AuditLog::start_with(&config(None, buffer), metrics, output).unwrap();
        let log = Arc::new(log);
        // Fills the queue completely, so that not even a short line fits.
        log.queue.push(vec![b'\n'; QUEUE_BYTES_MAX], 1).await;
        Self { log, registry, open, written }
    }

    /// Opens the gate, closes the log, and returns the lines that were written after those that
    /// filled the queue.
    async fn finish(self) -> Vec<(String, String)> {
        drop(self.open);
        self.log.close().await;
        let text: Vec<u8> = self.written.iter().flatten().collect();
        ids_and_stages(str::from_utf8(&text).unwrap().trim_start())
    }
}

#[tokio::test]
async fn a_full_queue_makes_requests_wait_and_loses_nothing() {
    let disk = BlockedLog::with_full_queue(AuditBuffer::Blocking).await;
    let waiting = tokio::spawn({
        let log = disk.log.clone();
        async move { log.response_complete(&TestRequest::new(GET, "late").response()).await }
    });
    // The push that filled the queue counts as a wait too.
    let waits = || counted(&disk.registry, "weir_audit_waits_total", "");
    eventually("a waiting request", || waits() >= 2.0).await;
    assert!(!waiting.is_finished());
    disk.open.send(()).unwrap();
    waiting.await.unwrap();
    assert_eq!(disk.finish().await, [pair("late", "ResponseComplete")]);
}

#[tokio::test]
async fn a_cancelled_request_is_counted() {
    let disk = BlockedLog::with_full_queue(AuditBuffer::Blocking).await;
    let (get, watch) = (TestRequest::new(GET, "get"), TestRequest::new(WATCH, "watch"));
    let (get, watch) = (get.response(), watch.response());
    assert!(futures_util::FutureExt::now_or_never(disk.log.response_complete(&get)).is_none());
    assert!(futures_util::FutureExt::now_or_never(disk.log.response_started(&watch)).is_none());
    assert_eq!(lost(&disk.registry, "abandoned"), 2.0);
    assert_eq!(disk.finish().await, []);
}

#[tokio::test]
async fn a_full_queue_drops_and_counts_events_with_dropping() {
    let disk = BlockedLog::with_full_queue(AuditBuffer::Dropping).await;
    let (get, watch) = (TestRequest::new(GET, "get"), TestRequest::new(WATCH, "watch"));
    disk.log.response_complete(&get.response()).await;
    let open = disk.log.response_started(&watch.response()).await;
    assert_eq!(lost(&disk.registry, "full"), 2.0);
    drop(open);
    assert_eq!(lost(&disk.registry, "full"), 3.0);
    assert_eq!(disk.finish().await, []);
}

#[tokio::test]
async fn the_end_of_a_watch_is_logged_even_if_the_queue_is_full() {
    let (open, gate) = mpsc::channel();
    let (sender, written) = mpsc::channel();
    let registry = Registry::new();
    let metrics = AuditMetrics::register(&registry).unwrap();
    let output = BlockedOutput { gate, written: sender };
    let config = config(None, AuditBuffer::Blocking);
    let log = AuditLog::start_with(&config, metrics, output).unwrap();
    let watches = [TestRequest::new(WATCH, "one"), TestRequest::new(WATCH, "two")];
    let one = log.response_started(&watches[0].response()).await;
    let two = log.response_started(&watches[1].response()).await;
    let free_bytes = QUEUE_BYTES_MAX - one.line.len() * 3;
    log.queue.push(vec![b'\n'; free_bytes], 0).await;
    while log.queue.try_push(b"\n", 0).is_ok() {}
    // Neither drop waits.
    drop(one);
    drop(two);
    drop(open);
    log.close().await;
    let text: Vec<u8> = written.iter().flatten().collect();
    let text = String::from_utf8(text).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(
        ids_and_stages(&lines.join("\n")),
        [
            pair("one", "ResponseStarted"),
            pair("two", "ResponseStarted"),
            pair("one", "ResponseComplete"),
            pair("two", "ResponseComplete"),
        ]
    );
    assert_eq!(lost(&registry, "full"), 0.0);
}

#[tokio::test]
async fn the_end_of_an_aborted_watch_is_logged() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.log");
    let registry = Registry::new();
    let config = config(Some(AuditOutput::File(path.clone())), AuditBuffer::Blocking);
    let metrics = AuditMetrics::register(&registry).unwrap();
    let log = AuditLog::start(&config, metrics).unwrap().unwrap();
    let watch = TestRequest::new(WATCH, "watch");
    let open = log.response_started(&watch.response()).await;
    let body = tokio::spawn(async move {
        let _open = open;
        std::future::pending::<()>().await;
    });
    tokio::task::yield_now().await;
    body.abort();
    body.await.unwrap_err();
    log.close().await;
    let text = fs::read_to_string(&path).unwrap();
    let expected = [pair("watch", "ResponseStarted"), pair("watch", "ResponseComplete")];
    assert_eq!(ids_and_stages(&text), expected);
    // The second event equals the first except for the stage and its time, which is not earlier.
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(events[1]["stageTimestamp"].as_str() >= events[0]["stageTimestamp"].as_str());
    let without = |event: &Value| {
        let mut event = event.as_object().unwrap().clone();
        event.remove("stage");
        event.remove("stageTimestamp");
        event
    };
    assert_eq!(without(&events[0]), without(&events[1]));
    // Events after the end are counted.
    log.response_complete(&TestRequest::new(GET, "late").response()).await;
    assert_eq!(lost(&registry, "closed"), 1.0);
}

#[tokio::test]
async fn stages_are_those_of_the_upstream() {
    let stages = |uri: &str, user: bool| {
        let request = TestRequest::new(uri, "");
        let mut response = request.response();
        response.subject.user = response.subject.user.filter(|_| user);
        response.stages()
    };
    assert_eq!(stages(GET, true), [Stage::ResponseComplete]);
    // A refused watch.
    assert_eq!(stages(WATCH, true), [Stage::ResponseStarted, Stage::ResponseComplete]);
    // A request that does not authenticate.
    assert_eq!(stages(GET, false), [Stage::ResponseStarted]);
    assert_eq!(stages(WATCH, false), [Stage::ResponseStarted]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_requests_write_complete_lines_and_closing_loses_none() {
    const TASKS: usize = 8;
    const EVENTS: usize = 500;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.log");
    let registry = Registry::new();
    let metrics = AuditMetrics::register(&registry).unwrap();
    let config = config(Some(AuditOutput::File(path.clone())), AuditBuffer::Blocking);
    let log = AuditLog::start(&config, metrics).unwrap().unwrap();
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let log = log.clone();
            tokio::spawn(async move {
                for event in 0..EVENTS {
                    log.response_complete(
                        &TestRequest::new(GET, &format!("{task}-{event}")).response(),
                    )
                    .await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    log.close().await;
    let written = ids_and_stages(&fs::read_to_string(&path).unwrap());
    assert_eq!(written.len(), TASKS * EVENTS);
    // The events of each task are in order.
    for task in 0..TASKS {
        let prefix = format!("{task}-");
        let prefixed: Vec<_> =
            written.iter().filter_map(|(id, _)| id.strip_prefix(&prefix)).collect();
        assert!(prefixed.iter().enumerate().all(|(index, id)| *id == index.to_string()));
    }
    assert_eq!(counted(&registry, "weir_audit_events_total", ""), (TASKS * EVENTS) as f64);
}

#[tokio::test]
async fn the_audit_log_needs_an_output_and_an_existing_directory() {
    let start = |output| {
        let metrics = AuditMetrics::register(&Registry::new()).unwrap();
        AuditLog::start(&config(output, AuditBuffer::Blocking), metrics)
    };
    assert!(start(None).unwrap().is_none());
    let missing = start(Some(AuditOutput::File("/nonexistent/audit.log".into())));
    assert!(matches!(missing, Err(AuditError::File { .. })));
}

#[tokio::test]
async fn debug_output_shows_no_user() {
    let disk = BlockedLog::with_full_queue(AuditBuffer::Dropping).await;
    let open = disk.log.response_started(&TestRequest::new(WATCH, "id").response()).await;
    let printed = format!("{:?} {open:?}", disk.log);
    assert!(!printed.contains("alice"), "{printed}");
    drop(open);
    disk.finish().await;
}
