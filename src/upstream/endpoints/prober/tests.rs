//! Tests of the probes of an API server, in paused time and over connections in memory.

use std::sync::Arc;

use parking_lot::Mutex;

use super::*;
use crate::config::seams::{Connection, Dial};
use crate::upstream::endpoints::health::Outcome;
use crate::upstream::testing::{self, Answer, answer, config, metrics};

/// The next answer of a server. `None` is no answer.
type Script = Arc<Mutex<Box<dyn FnMut(&str) -> Option<Answer> + Send>>>;

/// A server in memory.
pub(in crate::upstream::endpoints) struct Server {
    pub(in crate::upstream::endpoints) checked: Checked,
    script: Script,
    /// When the requests came.
    pub(in crate::upstream::endpoints) asked: Arc<Mutex<Vec<Instant>>>,
    connections: Arc<Mutex<usize>>,
}

impl Server {
    /// Starts a server that answers by path and query, and pauses time.
    pub(in crate::upstream::endpoints) async fn start(
        script: impl FnMut(&str) -> Option<Answer> + Send + 'static,
    ) -> Arc<Self> {
        let script: Script = Arc::new(Mutex::new(Box::new(script)));
        let connections = Arc::new(Mutex::new(0));
        let asked: Arc<Mutex<Vec<Instant>>> = Arc::default();
        let (scripted, counted, noted) = (script.clone(), connections.clone(), asked.clone());
        let dial = Dial::new(move |_, _| {
            let (client, server) = tokio::io::duplex(64 * 1024);
            *counted.lock() += 1;
            let (script, asked) = (scripted.clone(), noted.clone());
            tokio::spawn(testing::serve_http1(server, move |request| {
                asked.lock().push(Instant::now());
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
        let server = upstream.endpoints().servers()[0].clone();
        Arc::new(Self { checked: Checked { upstream, server }, script, asked, connections })
    }

    pub(in crate::upstream::endpoints) fn answers(
        &self,
        script: impl FnMut(&str) -> Option<Answer> + Send + 'static,
    ) {
        *self.script.lock() = Box::new(script);
    }
}

/// Probes the server in a task.
fn spawn(server: &Arc<Server>) {
    let probed = server.clone();
    tokio::spawn(async move { run(&probed.checked).await });
}

pub(in crate::upstream::endpoints) async fn seconds(count: u64) {
    tokio::time::sleep(Duration::from_secs(count)).await;
}

#[tokio::test]
async fn a_ready_server_is_probed_every_five_seconds_on_one_connection() {
    let server = Server::start(|_| Some(answer(200, "ok"))).await;
    spawn(&server);
    seconds(100).await;
    let asked = server.asked.lock().clone();
    assert!((16..=26).contains(&asked.len()), "{}", asked.len());
    for pair in asked.windows(2) {
        let between = (pair[1] - pair[0]).as_secs_f64();
        assert!((3.9..6.1).contains(&between), "{between}");
    }
    assert!(server.checked.server.is_usable());
    assert_eq!(*server.connections.lock(), 1);
}

#[tokio::test]
async fn a_server_that_does_not_answer_within_two_seconds_is_out_until_it_does() {
    let server = Server::start(|_| None).await;
    spawn(&server);
    seconds(12).await;
    let asked = server.asked.lock().clone();
    assert!(asked[1] - asked[0] > TIMEOUT, "the first probe ended by itself");
    assert!(server.checked.server.is_out());
    server.answers(|_| Some(answer(200, "ok")));
    seconds(15).await;
    assert!(server.checked.server.is_usable());
}

#[tokio::test]
async fn an_ejected_server_is_probed_when_the_ejection_is_over() {
    let server = Server::start(|_| Some(answer(200, "ok"))).await;
    spawn(&server);
    seconds(1).await;
    let api_server = &server.checked.server;
    for _ in 0..3 {
        api_server.note(Outcome::TransportFailure, Instant::now());
    }
    assert!(api_server.is_out());
    tokio::time::sleep(Duration::from_millis(1300)).await;
    assert!(api_server.is_usable());
}

#[tokio::test]
async fn a_server_that_shuts_down_is_draining_after_one_probe() {
    let server = Server::start(|_| {
        Some(answer(500, "[+]ping ok\n[-]shutdown failed: reason withheld\nreadyz check failed"))
    })
    .await;
    spawn(&server);
    seconds(1).await;
    assert!(server.checked.server.is_draining());
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
