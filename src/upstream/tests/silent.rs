//! Tests of HTTP/2 connections that stay open and pass nothing, in paused time.

use std::time::Duration;

use futures_util::FutureExt as _;
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::balancer::Balancer;
use super::*;

/// An API server behind a balancer, and what it received.
pub(super) struct World {
    pub(super) balancer: Balancer,
    upstream: Upstream,
    received: Arc<Mutex<Vec<String>>>,
    bodies: Senders,
}

pub(super) type Sent = Result<Response<pool::Body>, UpstreamError>;

impl World {
    async fn new() -> Self {
        Self::speaking(true).await
    }

    /// Speaks HTTP/2, or HTTP/1.1.
    pub(super) async fn speaking(http2: bool) -> Self {
        let (received, bodies) = (Arc::<Mutex<Vec<String>>>::default(), Senders::default());
        let balancer = Balancer::default();
        let (log, kept) = (Arc::clone(&received), Arc::clone(&bodies));
        let upstream = balancer.upstream(http2, move |mut request| {
            let what = format!("{} {}", request.method(), request.uri().path());
            log.lock().push(what);
            let kept = Arc::clone(&kept);
            async move {
                match request.uri().path() {
                    "/watch" => {
                        let (sender, body) = channel_body();
                        kept.lock().push(sender);
                        Response::new(body)
                    }
                    "/exec" => {
                        tokio::spawn(echo_upgraded(hyper::upgrade::on(&mut request)));
                        switching_protocols()
                    }
                    "/slow" => {
                        sleep(Duration::from_secs(58)).await;
                        answer(200, "slow")
                    }
                    _ => echo(request).await,
                }
            }
        });
        let upstream = upstream.await;
        Self { balancer, upstream, received, bodies }
    }

    /// Opens the first connection.
    async fn warm() -> Self {
        let world = Self::new().await;
        text(world.read("/x").await.unwrap().unwrap()).await;
        world
    }

    pub(super) fn send(
        &self,
        class: TrafficClass,
        request: Request<RequestBody>,
        is_read: bool,
    ) -> JoinHandle<Sent> {
        let upstream = self.upstream.clone();
        let answer_timeout = Some(fetch::HEAD_TIMEOUT);
        let options = SendOptions { is_read, answer_timeout, ..SendOptions::default() };
        tokio::spawn(async move { upstream.send_with(class, request, &options).await })
    }

    pub(super) fn read(&self, path: &str) -> JoinHandle<Sent> {
        self.send(TrafficClass::Request, get(path), true)
    }

    pub(super) fn write(&self) -> JoinHandle<Sent> {
        let request = Request::post("/write").body(full_body("once")).unwrap();
        self.send(TrafficClass::Request, request, false)
    }

    pub(super) fn watch(&self) -> JoinHandle<Sent> {
        self.send(TrafficClass::Stream, get("/watch"), true)
    }

    pub(super) fn received(&self, what: &str) -> usize {
        self.received.lock().iter().filter(|received| *received == what).count()
    }
}

/// Sends back what it receives, as an `exec` of `cat` does.
async fn echo_upgraded(upgrade: hyper::upgrade::OnUpgrade) {
    let io = hyper_util::rt::TokioIo::new(upgrade.await.unwrap());
    let (mut from, mut to) = tokio::io::split(io);
    drop(tokio::io::copy(&mut from, &mut to).await);
}

fn switching_protocols() -> testing::Answer {
    let mut response = answer(101, "");
    response.headers_mut().insert("connection", "upgrade".parse().unwrap());
    response.headers_mut().insert("upgrade", "echo".parse().unwrap());
    response
}

pub(super) const MS: Duration = Duration::from_millis(1);
pub(super) const SECOND: Duration = Duration::from_secs(1);

/// Waits for a response, and returns it with the time that it took.
pub(super) async fn timed(sent: JoinHandle<Sent>) -> (Sent, Duration) {
    let begun = Instant::now();
    (sent.await.unwrap(), begun.elapsed())
}

#[tokio::test(start_paused = true)]
async fn a_read_leaves_a_silent_connection_within_a_second() {
    let world = World::warm().await;
    world.balancer.freeze();
    for _ in 0..3 {
        let (sent, took) = timed(world.read("/x")).await;
        assert!(text(sent.unwrap()).await.starts_with("HTTP/2"));
        assert!(took < SECOND, "{took:?}");
    }
    assert_eq!(world.balancer.opened(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_write_is_sent_over_another_connection_than_one_that_is_silent() {
    let world = World::warm().await;
    world.balancer.freeze();
    let lost = world.write();
    sleep(501 * MS).await;
    let (sent, took) = timed(world.write()).await;
    assert!(text(sent.unwrap()).await.ends_with(" once"));
    assert!(took < 100 * MS, "{took:?}");
    // The first one may have been processed.
    let (sent, took) = timed(lost).await;
    let error = sent.unwrap_err();
    assert!(matches!(error, UpstreamError::Lost(_)) && !error.is_not_sent(), "{error}");
    assert!(took < 10 * SECOND, "{took:?}");
    world.balancer.thaw();
    sleep(SECOND).await;
    assert!(world.received("POST /write") <= 2);
}

/// Pings while it is idle show that it is dead, before a write is lost on it.
#[tokio::test(start_paused = true)]
async fn a_connection_that_died_while_it_was_idle_gets_no_write() {
    let world = World::warm().await;
    world.balancer.freeze();
    sleep(5 * SECOND).await;
    let (sent, took) = timed(world.write()).await;
    assert!(text(sent.unwrap()).await.ends_with(" once"));
    assert!(took < 100 * MS, "{took:?}");
}

/// A slow API server answers pings, whatever it does with a request.
#[tokio::test(start_paused = true)]
async fn a_slow_answer_on_a_connection_that_lives_is_waited_for() {
    let world = World::warm().await;
    let (slow_write, slow_read) = (
        world.send(
            TrafficClass::Request,
            Request::post("/slow").body(empty_body()).unwrap(),
            false,
        ),
        world.read("/slow"),
    );
    for _ in 0..50 {
        sleep(SECOND).await;
        text(world.read("/x").await.unwrap().unwrap()).await;
    }
    for slow in [slow_write, slow_read] {
        assert_eq!(text(slow.await.unwrap().unwrap()).await, "slow");
    }
    assert_eq!((world.received("POST /slow"), world.received("GET /slow")), (1, 1));
    assert_eq!(world.balancer.opened(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_goes_on_while_its_connection_lives_and_ends_when_it_is_dead() {
    let world = World::new().await;
    let mut watch = world.watch().await.unwrap().unwrap().into_body();
    sleep(3600 * SECOND).await;
    assert!(watch.frame().now_or_never().is_none(), "it is open");
    let sender = world.bodies.lock()[0].clone();
    sender.send("event".into()).await.unwrap();
    assert_eq!(watch.frame().await.unwrap().unwrap().into_data().unwrap(), "event");
    world.balancer.freeze();
    let begun = Instant::now();
    let error = watch.frame().await.unwrap().unwrap_err();
    assert!(begun.elapsed() <= 10 * SECOND, "{:?}: {error}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_new_watch_leaves_the_silent_connection_of_others() {
    let world = World::new().await;
    let old = world.watch().await.unwrap().unwrap();
    sleep(60 * SECOND).await;
    world.balancer.freeze();
    for _ in 0..2 {
        let (sent, took) = timed(world.watch()).await;
        sent.unwrap();
        assert!(took < SECOND, "{took:?}");
    }
    assert_eq!(world.balancer.opened(), 2);
    drop(old);
}

#[tokio::test(start_paused = true)]
async fn a_body_on_a_dead_connection_breaks_off() {
    let world = World::new().await;
    let mut body = world.read("/watch").await.unwrap().unwrap().into_body();
    sleep(30 * SECOND).await;
    assert!(body.frame().now_or_never().is_none(), "it is open");
    world.balancer.freeze();
    let begun = Instant::now();
    body.frame().await.unwrap().unwrap_err();
    assert!(begun.elapsed() <= 10 * SECOND, "{:?}", begun.elapsed());
}

/// A client that is slow to send its body is no reason to give up the connection.
#[tokio::test(start_paused = true)]
async fn an_upload_with_long_pauses_is_received_whole() {
    let world = World::new().await;
    let (sender, body) = channel_body();
    let body = body.map_err(|never| match never {}).boxed_unsync();
    let sent =
        world.send(TrafficClass::Request, Request::post("/write").body(body).unwrap(), false);
    for _ in 0..5 {
        sleep(30 * SECOND).await;
        sender.send("x".into()).await.unwrap();
    }
    drop(sender);
    assert!(text(sent.await.unwrap().unwrap()).await.ends_with(" xxxxx"));
    assert_eq!((world.received("POST /write"), world.balancer.opened()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_was_silent_for_a_moment_is_used_again() {
    let world = World::warm().await;
    world.balancer.freeze();
    let write = world.write();
    sleep(2 * SECOND).await;
    text(world.read("/x").await.unwrap().unwrap()).await;
    assert_eq!(world.balancer.opened(), 2);
    world.balancer.thaw();
    let (sent, took) = timed(write).await;
    assert!(text(sent.unwrap()).await.ends_with(" once"));
    assert!(took < 100 * MS, "{took:?}");
    let streams: Vec<_> = (0..180).map(|_| world.read("/x")).collect();
    for sent in streams {
        text(sent.await.unwrap().unwrap()).await;
    }
    assert_eq!(world.balancer.opened(), 2);
}

/// Each new connection dies, too: the API server is frozen, or the balancer leads nowhere.
#[tokio::test(start_paused = true)]
async fn a_read_ends_where_each_connection_is_dead() {
    let world = World::warm().await;
    let freezing = tokio::spawn({
        let balancer = world.balancer.clone();
        async move {
            loop {
                balancer.freeze();
                sleep(100 * MS).await;
            }
        }
    });
    let reads: Vec<_> = (0..10).map(|_| tokio::spawn(timed(world.read("/watch")))).collect();
    for read in reads {
        let (sent, took) = read.await.unwrap();
        if let Ok(response) = sent {
            assert!(response.into_body().collect().await.is_err());
        }
        assert!(took < 15 * SECOND, "{took:?}");
    }
    freezing.abort();
}
