//! Each identity is forwarded on its own connections, byte for byte. After a failed upgrade no
//! connection is left on which a client could send more (CVE-2018-1002105).

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::harness::SOON;
use super::recorder::{Recorded, Recorder};
use crate::auth::peer::Peer;
use crate::auth::standing::Standing;
use crate::auth::user::User;
use crate::config::ConsistentLists;
use crate::server::accept::listener::ListenerKind;
use crate::server::connection::client::{Client, ConnectionStanding};
use crate::server::delegate::Reason;
use crate::server::drain::Drain;
use crate::server::flow_control::memo::FlowMemo;
use crate::server::forward::forwarder::{FAILURE_LOG_INTERVAL, Forwarder};
use crate::server::forward::identity::{ForwardedIdentity, IdentityNames, Upstreams};
use crate::server::forward::list_times::ListTimes;
use crate::server::forward::quota::UpstreamQuota;
use crate::server::forward::share::ForwardShares;
use crate::server::forward::upgrade::{Splicer, close_if_not_upgraded, requested_upgrade};
use crate::server::http::body::Body;
use crate::server::metrics::ServerMetrics;
use crate::server::request::context::RequestContext;
use crate::server::request::resolved::Resolved;
use crate::telemetry::log_throttle::LogThrottle;
use crate::testing::eventually;
use crate::upstream::Upstream;
use crate::upstream::testing::{config, metrics};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const FORBIDDEN: &str =
    "HTTP/1.1 403 Forbidden\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nno";

/// A server that forwards everything with one identity, with an upstream for each pool.
struct Proxy {
    address: std::net::SocketAddr,
    own_identity: Recorder,
    bare: Recorder,
    front_proxy: Recorder,
}

impl Proxy {
    async fn start(identity: ForwardedIdentity, answer: &'static str) -> Self {
        let [own_identity, bare, front_proxy] = [
            Recorder::start(answer).await,
            Recorder::start(answer).await,
            Recorder::start(answer).await,
        ];
        let upstream = async |recorder: &Recorder| {
            let config = config(Some(format!("http://{}", recorder.address)), None, false);
            Upstream::new(&config, metrics()).await.unwrap()
        };
        let metrics = ServerMetrics::register(&prometheus::Registry::new()).unwrap();
        let forwarder = Forwarder {
            upstreams: Upstreams {
                own_identity: upstream(&own_identity).await,
                bare: Some(upstream(&bare).await),
                front_proxy: Some(upstream(&front_proxy).await),
            },
            names: IdentityNames::usual(),
            quota: UpstreamQuota::new(),
            shares: ForwardShares::default(),
            shares_identity: false,
            splicer: Splicer {
                metrics,
                tasks: TaskTracker::new(),
                abort: CancellationToken::new(),
            },
            stall_timeout: Duration::from_secs(60),
            failures: LogThrottle::new(FAILURE_LOG_INTERVAL),
            list_times: Arc::new(ListTimes::new(ConsistentLists::Forward)),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new((forwarder, identity));
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let shared = Arc::clone(&shared);
                let service = service_fn(move |request: Request<Incoming>| {
                    let shared = Arc::clone(&shared);
                    async move { Ok::<_, Infallible>(forward(&shared, request).await) }
                });
                let served = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(tcp), service)
                    .with_upgrades();
                tokio::spawn(served);
            }
        });
        Self { address, own_identity, bare, front_proxy }
    }

    /// Returns the requests that arrived in each pool: own, bare, front proxy.
    fn seen(&self) -> [Vec<Recorded>; 3] {
        [self.own_identity.seen(), self.bare.seen(), self.front_proxy.seen()]
    }

    async fn raw(&self, bytes: &str) -> String {
        let mut tcp = TcpStream::connect(self.address).await.unwrap();
        tcp.write_all(bytes.as_bytes()).await.unwrap();
        let mut answer = String::new();
        let read = tokio::time::timeout(SOON, tcp.read_to_string(&mut answer)).await;
        read.expect("closed").unwrap();
        answer
    }
}

async fn forward(
    (forwarder, identity): &(Forwarder, ForwardedIdentity),
    request: Request<Incoming>,
) -> http::Response<Body> {
    let (mut parts, body) = request.into_parts();
    let (peer, drain) = (Peer::default(), Drain::default().connect());
    let (standing, flows) = (ConnectionStanding::default(), FlowMemo::default());
    let listener = ListenerKind::Tls;
    let client = Client { number: 0, listener, peer, standing, flows, drain, listed: None };
    let client = Arc::new(client);
    let upgrade_requested = requested_upgrade(&parts).is_some();
    let metrics = ServerMetrics::register(&prometheus::Registry::new()).unwrap();
    let has_body = !http_body::Body::is_end_stream(&body);
    let resolved = Resolved::new(&client, &parts, has_body, || ConsistentLists::Auto, None);
    let mut context = RequestContext::new(resolved, &mut parts, metrics.resource(None));
    let prepared = forwarder.prepare(identity, Standing::own_credential(), &context).unwrap();
    context.holds.quota = Some(forwarder.take_quota(&prepared).unwrap());
    let forwarded =
        forwarder.forward(&mut context, body.into(), prepared, (Reason::NonResource, None));
    let mut response = Box::pin(forwarded).await.response;
    close_if_not_upgraded(upgrade_requested, &mut response);
    response
}

fn jane() -> Arc<User> {
    let groups = vec!["dev".to_owned(), "system:authenticated".to_owned()];
    Arc::new(User::new("jane".to_owned(), String::new(), groups, BTreeMap::new()))
}

/// Every identity, the number of its pool, and the headers that it adds.
fn identities() -> [(ForwardedIdentity, usize, Vec<&'static str>); 4] {
    [
        (ForwardedIdentity::Weir, 0, vec![]),
        (ForwardedIdentity::AsIs, 1, vec!["authorization: Bearer theirs"]),
        (
            ForwardedIdentity::FrontProxy(jane()),
            2,
            vec![
                "x-remote-group: dev",
                "x-remote-group: system:authenticated",
                "x-remote-user: jane",
            ],
        ),
        (
            ForwardedIdentity::Impersonate(jane()),
            0,
            vec!["impersonate-group: dev", "impersonate-user: jane"],
        ),
    ]
}

#[tokio::test]
async fn each_identity_has_its_own_connections() {
    for (identity, pool, mut sent) in identities() {
        let proxy = Proxy::start(identity.clone(), OK).await;
        let answer = proxy
            .raw(
                "GET /x HTTP/1.1\r\nHost: weir\r\nAuthorization: Bearer theirs\r\nX-Remote-User: admin\r\n\
                 X-Remote-Group: system:masters\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nX-Mine: kept\r\n\r\n",
            )
            .await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{identity:?}: {answer}");
        let seen = proxy.seen();
        for (number, requests) in seen.iter().enumerate() {
            assert_eq!(requests.len(), usize::from(number == pool), "{identity:?}: {seen:?}");
        }
        let mut headers: Vec<&str> = seen[pool][0]
            .head
            .lines()
            .skip(1)
            .filter(|line| !line.is_empty() && !line.starts_with("host: "))
            .filter(|line| !line.starts_with("x-weir-via: "))
            .collect();
        headers.sort_unstable();
        sent.push("x-mine: kept");
        sent.sort_unstable();
        assert_eq!(headers, sent, "{identity:?}");
    }
}

#[tokio::test]
async fn an_identity_without_connections_gets_no_others() {
    let recorder = Recorder::start(OK).await;
    let config = config(Some(format!("http://{}", recorder.address)), None, false);
    let upstreams = Upstreams::with_own_identity(Upstream::new(&config, metrics()).await.unwrap());
    for identity in [ForwardedIdentity::AsIs, ForwardedIdentity::FrontProxy(jane())] {
        assert_eq!(upstreams.for_identity(&identity).err().unwrap().code.as_u16(), 500);
    }
    assert!(
        upstreams.for_identity(&ForwardedIdentity::Weir).is_ok()
            && upstreams.for_identity(&ForwardedIdentity::Impersonate(jane())).is_ok()
    );
}

/// The client sends its next request right after the one to be upgraded. It must reach no server,
/// least of all on the upgraded connection, where the upstream would attribute it to the asserted
/// user.
#[tokio::test]
async fn after_a_failed_upgrade_nothing_more_is_sent() {
    for (identity, pool, _) in identities() {
        let proxy = Proxy::start(identity.clone(), FORBIDDEN).await;
        let [own_identity, bare, front_proxy] =
            [&proxy.own_identity, &proxy.bare, &proxy.front_proxy];
        let recorder = [own_identity, bare, front_proxy][pool];
        let exec = "GET /api/v1/namespaces/a/pods/p/exec HTTP/1.1\r\nHost: weir\r\n";
        let upgrade = format!("{exec}Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n");
        let next = "GET /api/v1/secrets HTTP/1.1\r\nHost: weir\r\nConnection: close\r\n\r\n";

        // Leaves an idle connection in the pool, which the upgrade must not use.
        let plain = "GET /plain HTTP/1.1\r\nHost: weir\r\nConnection: close\r\n\r\n";
        assert!(proxy.raw(plain).await.starts_with("HTTP/1.1 403 "));
        let answer = proxy.raw(&format!("{upgrade}{next}")).await;
        assert!(answer.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{identity:?}: {answer}");
        assert!(answer.contains("connection: close\r\n") && answer.ends_with("no"), "{answer}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{identity:?}: {answer}");

        // The upstream connection of the upgrade is closed, and sent no other request.
        let connection = recorder.seen()[1].connection;
        eventually("the connection ends", || recorder.has_ended(connection)).await;
        assert!(proxy.raw(plain).await.starts_with("HTTP/1.1 403 "));
        let seen: Vec<_> = recorder
            .seen()
            .iter()
            .map(|request| (request.line().to_owned(), request.connection == connection))
            .collect();
        let line = |path: &str, same| (format!("GET {path} HTTP/1.1"), same);
        assert_eq!(
            seen,
            [
                line("/plain", false),
                line("/api/v1/namespaces/a/pods/p/exec", true),
                line("/plain", false)
            ],
            "{identity:?}"
        );
    }
}

/// A 101 to a request without an upgrade is a protocol error.
#[tokio::test]
async fn a_101_without_a_requested_upgrade_is_a_502() {
    let switched = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n";
    for more in ["", "Connection: Upgrade\r\nUpgrade: h2c\r\n"] {
        let proxy = Proxy::start(ForwardedIdentity::AsIs, switched).await;
        let request = format!("GET /x HTTP/1.1\r\nHost: weir\r\n{more}\r\n");
        let mut tcp = TcpStream::connect(proxy.address).await.unwrap();
        tcp.write_all(request.as_bytes()).await.unwrap();
        let mut start = [0; 13];
        tcp.read_exact(&mut start).await.unwrap();
        assert_eq!(&start, b"HTTP/1.1 502 ");
    }
}
