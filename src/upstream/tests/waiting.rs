//! Tests of requests while no API server can be reached.

use super::*;
use crate::config::seams::Dial;
use crate::upstream::connect::CONNECT_TIMEOUT;

/// Connections that are refused but for the first `allowed` ones.
#[derive(Clone, Default)]
struct Network {
    allowed: Arc<AtomicUsize>,
    dials: Arc<AtomicUsize>,
}

impl Network {
    fn dial_to(&self, address: std::net::SocketAddr) -> Dial {
        let Self { allowed, dials } = self.clone();
        Dial::new(move |_, _| {
            let is_allowed = dials.fetch_add(1, Ordering::SeqCst) < allowed.load(Ordering::SeqCst);
            Box::pin(async move {
                if !is_allowed {
                    return Err(std::io::ErrorKind::ConnectionRefused.into());
                }
                let tcp = tokio::net::TcpStream::connect(address).await?;
                Ok(Box::new(tcp) as Box<dyn crate::config::seams::Connection>)
            })
        })
    }

    async fn upstream(&self, address: std::net::SocketAddr, http2: bool) -> Upstream {
        let config = config(Some(format!("http://{address}")), None, http2);
        let dial = Some(self.dial_to(address));
        Upstream::with_dial(&config, dial, metrics()).await.unwrap()
    }
}

fn patient() -> SendOptions {
    let wait_until = Some(Instant::now() + std::time::Duration::from_secs(60));
    SendOptions { wait_until, ..SendOptions::default() }
}

fn post() -> Request<RequestBody> {
    Request::post("/x").body(full_body("once")).unwrap()
}

#[tokio::test]
async fn a_request_that_could_not_be_sent_waits_for_an_api_server() {
    let server = TestServer::start(ServerOptions::http1(), echo).await;
    let network = Network::default();
    let upstream = network.upstream(server.address, false).await;
    let error = upstream.send(TrafficClass::Request, post()).await.unwrap_err();
    assert!(error.is_not_sent(), "{error}: one without patience fails at once");
    let waiting = tokio::spawn({
        let upstream = upstream.clone();
        async move { upstream.send_with(TrafficClass::Request, post(), &patient()).await }
    });
    eventually("the dial fails", || network.dials.load(Ordering::SeqCst) == 2).await;
    network.allowed.store(usize::MAX, Ordering::SeqCst);
    // The test reports an API server as a check does. The check was sent after the dial had failed.
    eventually("the request is sent", || {
        upstream.availability().note_check(Instant::now(), true);
        waiting.is_finished()
    })
    .await;
    let response = waiting.await.unwrap().unwrap();
    assert!(text(response).await.ends_with(" once"), "with its body");
}

#[tokio::test]
async fn a_request_waits_no_longer_than_its_options_allow() {
    let server = TestServer::start(ServerOptions::http1(), echo).await;
    let upstream = Network::default().upstream(server.address, false).await;
    let options = SendOptions { wait_until: Some(Instant::now()), ..SendOptions::default() };
    let error = upstream.send_with(TrafficClass::Request, post(), &options).await.unwrap_err();
    assert!(error.is_not_sent(), "{error}");
}

/// The first attempt was sent, although HTTP says that it was not processed. "Not sent" would be
/// answered with a `Retry-After`.
#[tokio::test]
async fn a_request_that_was_sent_once_is_never_reported_as_not_sent() {
    let (address, refused) = replay::refusing_server(true).await;
    let network = Network::default();
    network.allowed.store(1, Ordering::SeqCst);
    let upstream = network.upstream(address, true).await;
    let error = upstream.send(TrafficClass::Request, post()).await.unwrap_err();
    assert!(matches!(error, UpstreamError::Lost(_)), "{error}");
    assert_eq!(refused.load(Ordering::SeqCst), 1);
    assert!(network.dials.load(Ordering::SeqCst) > 1, "it was tried again");
}

/// A balancer froze a connection that was being opened. Its request waited for
/// the time-out of a connection and failed with 503, and with HTTP/2 the ones behind it, too.
#[tokio::test(start_paused = true)]
async fn a_connection_that_stalls_while_it_is_opened_gets_a_second_attempt() {
    for http2 in [true, false] {
        let dials = AtomicUsize::new(0);
        let balancer = balancer::Balancer::default().dial(http2, echo);
        let dial = Dial::new(move |host, port| match dials.fetch_add(1, Ordering::SeqCst) {
            0 => Box::pin(std::future::pending()),
            _ => balancer.open(host, port),
        });
        let config = config(Some("http://balancer".to_owned()), None, http2);
        let upstream = Upstream::with_dial(&config, Some(dial), metrics()).await.unwrap();
        let started = Instant::now();
        let response = upstream.send(TrafficClass::Request, get("/x")).await.unwrap();
        assert_eq!(response.status(), 200, "HTTP/2: {http2}");
        assert!(started.elapsed() < CONNECT_TIMEOUT, "{:?}", started.elapsed());
    }
}
