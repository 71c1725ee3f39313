//! Tests of the probes of an API server, in paused time and over connections in memory.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::*;
use crate::config::seams::{Connection, Dial};
use crate::upstream::endpoints::health::{Health, State};
use crate::upstream::testing::{self, Answer, answer, config, metrics};
use crate::upstream::{Choice, Upstream};

/// The next answer of a server. `None` is no answer.
type Script = Arc<Mutex<Box<dyn FnMut(&str) -> Option<Answer> + Send>>>;

/// A server in memory, with its health.
pub(in crate::upstream::endpoints) struct Server {
    upstream: Upstream,
    script: Script,
    pub(in crate::upstream::endpoints) health: Mutex<Health>,
    pub(in crate::upstream::endpoints) results: Mutex<Vec<(Instant, ProbeResult)>>,
    pub(in crate::upstream::endpoints) lagging: Mutex<Vec<bool>>,
    connections: Arc<Mutex<usize>>,
    changed: Notify,
}

impl Server {
    /// Starts a server that answers by path and query, and pauses time.
    pub(in crate::upstream::endpoints) async fn start(
        script: impl FnMut(&str) -> Option<Answer> + Send + 'static,
    ) -> Arc<Self> {
        let script: Script = Arc::new(Mutex::new(Box::new(script)));
        let connections = Arc::new(Mutex::new(0));
        let (scripted, counted) = (script.clone(), connections.clone());
        let dial = Dial::new(move |_, _| {
            let (client, server) = tokio::io::duplex(64 * 1024);
            *counted.lock() += 1;
            let script = scripted.clone();
            tokio::spawn(testing::serve_http1(server, move |request| {
                let target = request.uri().to_string();
                let answer = (script.lock())(&target);
                async move {
                    match answer {
                        Some(answer) => answer,
                        None => std::future::pending().await,
                    }
                }
            }));
            Box::pin(async move { Ok(Box::new(client) as Box<dyn Connection>) })
        });
        let config = config(Some("http://server".to_owned()), None, true);
        let upstream = Upstream::with_dial(&config, Some(dial), metrics()).await.unwrap();
        tokio::time::pause();
        Arc::new(Self {
            upstream,
            script,
            health: Mutex::new(Health::configured()),
            results: Mutex::default(),
            lagging: Mutex::default(),
            connections,
            changed: Notify::new(),
        })
    }

    pub(in crate::upstream::endpoints) fn answers(
        &self,
        script: impl FnMut(&str) -> Option<Answer> + Send + 'static,
    ) {
        *self.script.lock() = Box::new(script);
    }

    fn state(&self) -> State {
        self.health.lock().state(Instant::now())
    }
}

impl Probed for Server {
    async fn connect(&self) -> Result<OneServer, UpstreamError> {
        OneServer::connect_by(&self.upstream, &Choice::Spread).await
    }

    fn note(&self, result: ProbeResult) {
        let now = Instant::now();
        self.results.lock().push((now, result));
        self.health.lock().probe(result, now);
    }

    fn next_probe(&self, last: Instant, interval: Duration) -> Instant {
        self.health.lock().next_probe(last, interval)
    }

    async fn until_changed(&self) {
        self.changed.notified().await;
    }

    fn note_lag(&self, is_lagging: bool) {
        self.lagging.lock().push(is_lagging);
    }
}

async fn seconds(count: u64) {
    tokio::time::sleep(Duration::from_secs(count)).await;
}

#[tokio::test]
async fn a_ready_server_is_probed_every_five_seconds_on_one_connection() {
    let server = Server::start(|_| Some(answer(200, "ok"))).await;
    let probed = server.clone();
    tokio::spawn(async move { run(&*probed).await });
    seconds(100).await;
    let results = server.results.lock().clone();
    assert!((16..=26).contains(&results.len()), "{}", results.len());
    for pair in results.windows(2) {
        let between = (pair[1].0 - pair[0].0).as_secs_f64();
        assert!((3.9..6.1).contains(&between), "{between}");
    }
    assert!(results.iter().all(|(_, result)| *result == ProbeResult::Ready));
    assert_eq!(*server.connections.lock(), 1);
}

#[tokio::test]
async fn a_server_that_does_not_answer_within_two_seconds_is_out_until_it_does() {
    let server = Server::start(|_| None).await;
    let probed = server.clone();
    let started = Instant::now();
    tokio::spawn(async move { run(&*probed).await });
    seconds(12).await;
    let (at, result) = server.results.lock()[0];
    assert_eq!(((at - started).as_secs(), result), (TIMEOUT.as_secs(), ProbeResult::Failed));
    assert_eq!(server.state(), State::Ejected);
    server.answers(|_| Some(answer(200, "ok")));
    seconds(15).await;
    assert_eq!(server.state(), State::Usable);
}

#[tokio::test]
async fn an_ejected_server_is_probed_when_the_ejection_is_over() {
    let server = Server::start(|_| Some(answer(200, "ok"))).await;
    let probed = server.clone();
    tokio::spawn(async move { run(&*probed).await });
    seconds(1).await;
    let now = Instant::now();
    for millis in 0..3 {
        let at = now + Duration::from_millis(millis);
        server.health.lock().record(super::super::health::Outcome::TransportFailure, at, at);
    }
    assert_eq!(server.state(), State::Ejected);
    server.changed.notify_one();
    tokio::time::sleep(Duration::from_millis(1300)).await;
    assert_eq!(server.state(), State::Usable);
}

#[tokio::test]
async fn a_server_that_shuts_down_is_draining_after_one_probe() {
    let server = Server::start(|_| {
        Some(answer(500, "[+]ping ok\n[-]shutdown failed: reason withheld\nreadyz check failed"))
    })
    .await;
    let probed = server.clone();
    tokio::spawn(async move { run(&*probed).await });
    seconds(1).await;
    assert_eq!(server.state(), State::Draining);
    // Each probe uses a new connection, which may lead to another server.
    seconds(7).await;
    assert!(*server.connections.lock() > 1);
}

#[test]
fn responses_are_read() {
    use ProbeResult::{NotReady, Ready, ShuttingDown};
    let read = |code: u16, is_closing: bool, body: &str| {
        result(StatusCode::from_u16(code).unwrap(), is_closing, body.as_bytes())
    };
    assert_eq!(read(200, false, "ok"), Ready);
    assert_eq!(read(403, false, "forbidden"), Ready);
    assert_eq!(read(401, true, "Unauthorized"), Ready);
    assert_eq!(read(429, false, "Too many requests, please try again later."), Ready);
    let text = "The apiserver is shutting down, please try again later.";
    assert_eq!(read(429, true, text), ShuttingDown);
    assert_eq!(read(503, false, text), ShuttingDown);
    assert_eq!(read(500, false, "[-]shutdown failed: reason withheld"), ShuttingDown);
    assert_eq!(read(500, false, "[-]etcd failed: reason withheld"), NotReady);
    assert_eq!(read(500, true, "[-]etcd failed: reason withheld"), ShuttingDown);
    assert_eq!(read(503, false, ""), NotReady);
}
