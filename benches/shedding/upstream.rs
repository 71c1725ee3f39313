//! An API server with a number of seats: a simulator, and in front of it a server that answers the
//! requests of one namespace itself, each after a time for which it holds a seat.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use weir::simulator::{Simulator, SimulatorOptions, User};

use crate::token::token;

/// Seats of the API server. It has no queues of its own but one for all.
pub(crate) const SEATS: usize = 20;
/// The time for which a GET holds its seat, on average.
pub(crate) const SERVICE: Duration = Duration::from_millis(20);
/// The difference between the longest and the shortest time. If all GETs took the same time, those
/// that were sent at once would end at once, and so would the next ones: nine seats would be free
/// every 20 ms, and none in between. A request that arrives in between would wait for up to 20 ms,
/// even if it is next. The times of a kube-apiserver differ more.
const SERVICE_SPREAD: Duration = Duration::from_millis(10);
/// The time for which a list does, as one of 5,000 pods of a kube-apiserver.
const LIST_SERVICE: Duration = Duration::from_millis(500);
/// The bytes of a list.
const LIST_BYTES: usize = 5 << 20;
/// Users, by number.
pub(crate) const USERS: usize = 100;
/// Weir's own token.
const WEIR: &str = "weirs-own";
/// The namespace of the requests that take seats.
const WORK: &str = "/api/v1/namespaces/work/";
/// A GET that takes a seat.
pub(crate) const GET: &str = "/api/v1/namespaces/work/configmaps/cm";
/// A list that takes a seat.
pub(crate) const LIST: &str = "/api/v1/namespaces/work/configmaps";

pub(crate) struct Upstream {
    pub(crate) simulator: Simulator,
    address: SocketAddr,
    pub(crate) work: Arc<Work>,
}

/// The requests that take seats.
pub(crate) struct Work {
    seats: Semaphore,
    in_flight: AtomicUsize,
    highest: AtomicUsize,
    /// The number of GETs that have arrived.
    served: AtomicUsize,
    /// While it is true, nothing is answered.
    holds: watch::Sender<bool>,
    list: Bytes,
}

struct InFlight(Arc<Work>);

impl Upstream {
    pub(crate) async fn start() -> Self {
        let mut users: Vec<User> =
            (0..USERS).map(|user| User::admin(&user_token(user), &user_name(user))).collect();
        users.push(User::admin(WEIR, "weir"));
        // Not in `system:masters`, whose requests are exempt.
        users.iter_mut().take(USERS).for_each(|user| user.groups.clear());
        let everything = weir::simulator::Rule::new(&["*"], &["*"], &["*"]);
        users.iter_mut().take(USERS).for_each(|user| user.rules = vec![everything.clone()]);
        let options = SimulatorOptions { users, ..SimulatorOptions::default() };
        let simulator = Simulator::start(options).await.expect("a simulator");
        let work = Arc::new(Work {
            seats: Semaphore::new(SEATS),
            in_flight: AtomicUsize::new(0),
            highest: AtomicUsize::new(0),
            served: AtomicUsize::new(0),
            holds: watch::Sender::new(false),
            list: vec![b' '; LIST_BYTES].into(),
        });
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let address = listener.local_addr().expect("its address");
        tokio::spawn(serve(listener, simulator.address(), Arc::clone(&work)));
        Self { simulator, address, work }
    }

    pub(crate) fn kubeconfig(&self) -> String {
        let old = self.simulator.url();
        self.simulator.kubeconfig(WEIR).replace(&old, &format!("http://{}", self.address))
    }
}

impl Work {
    /// Returns the most requests that were here at once since the last call.
    pub(crate) fn take_highest(&self) -> usize {
        self.highest.swap(self.in_flight.load(Ordering::Relaxed), Ordering::Relaxed)
    }

    /// Answers nothing until it is called with `false`.
    pub(crate) fn hold(&self, holds: bool) {
        self.holds.send_replace(holds);
    }

    /// Returns the time of the next GET: evenly spread, in the same order in each run.
    fn service(&self) -> Duration {
        let number = self.served.fetch_add(1, Ordering::Relaxed) as f64;
        let part = (number * GOLDEN_RATIO).fract();
        SERVICE - SERVICE_SPREAD / 2 + SERVICE_SPREAD.mul_f64(part)
    }

    async fn answer(
        self: Arc<Self>,
        is_list: bool,
    ) -> Response<UnsyncBoxBody<Bytes, hyper::Error>> {
        let now = self.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
        self.highest.fetch_max(now, Ordering::Relaxed);
        let in_flight = InFlight(Arc::clone(&self));
        let released = self.holds.subscribe().wait_for(|holds| !holds).await.map(|_| ());
        released.expect("the sender lives on");
        let seat = self.seats.acquire().await.expect("it is never closed");
        tokio::time::sleep(if is_list { LIST_SERVICE } else { self.service() }).await;
        drop((seat, in_flight));
        let body = if is_list { self.list.clone() } else { Bytes::from_static(OBJECT) };
        let body = Full::new(body).map_err(|never| match never {}).boxed_unsync();
        let response = Response::builder().header("content-type", "application/json").body(body);
        response.expect("a response")
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

pub(crate) fn user_name(user: usize) -> String {
    format!("user-{user}")
}

pub(crate) fn user_token(user: usize) -> String {
    token(&user_name(user))
}

async fn serve(listener: TcpListener, simulator: SocketAddr, work: Arc<Work>) {
    while let Ok((tcp, _)) = listener.accept().await {
        tcp.set_nodelay(true).expect("a socket");
        let work = Arc::clone(&work);
        let answer = service_fn(move |request| answer(request, simulator, Arc::clone(&work)));
        tokio::spawn(async move {
            let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
            drop(builder.serve_connection(TokioIo::new(tcp), answer).await);
        });
    }
}

async fn answer(
    request: Request<Incoming>,
    simulator: SocketAddr,
    work: Arc<Work>,
) -> Result<Response<UnsyncBoxBody<Bytes, hyper::Error>>, hyper::Error> {
    let path = request.uri().path();
    if path.starts_with(WORK) {
        let is_list = path == LIST;
        return Ok(work.answer(is_list).await);
    }
    let tcp = TcpStream::connect(simulator).await.expect("the simulator listens");
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(tcp)).await?;
    tokio::spawn(async move { drop(connection.await) });
    let response = sender.send_request(request).await?;
    Ok(response.map(|body| body.boxed_unsync()))
}

/// Multiples of it are spread evenly.
const GOLDEN_RATIO: f64 = 0.618_033_988_749_895;
const OBJECT: &[u8] = br#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"cm","namespace":"work","uid":"1","resourceVersion":"1"},"data":{"key":"value"}}"#;
