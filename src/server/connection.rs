//! One client connection: HTTP/1.1 or HTTP/2, as ALPN or its first bytes tell, with every limit set on purpose
//! (crates.md, pitfall 7), and ended gracefully when Weir drains (pitfall 8).

pub(crate) mod activity;
mod cork;
pub(crate) mod permits;
pub(crate) mod send_timeouts;

use std::error::Error;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{HeaderMap, Request, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::auth::peer::Peer;
use crate::config::ServerConfig;
use crate::server::accept::listener::ListenerKind;
use crate::server::connection::activity::{Head, Watched};
use crate::server::connection::cork::Cork;
use crate::server::connection::send_timeouts::{Taken, Untaken};
use crate::server::router::Router;
use crate::streams::{ConnectionTasks, Spawner, Stopped};

/// The limits of HTTP/1.1, for either of hyper's builders.
macro_rules! bound_http1 {
    ($connections:expr, $builder:expr) => {
        $builder
            .timer(TokioTimer::new())
            .header_read_timeout($connections.header_read_timeout.max(IDLE_TIMEOUT))
            .max_headers(HEADERS_MAX)
            .max_buf_size(HEADER_BYTES_MAX + REQUEST_LINE_BYTES_MAX)
    };
}

/// The limits of HTTP/2, as well.
macro_rules! bound_http2 {
    ($builder:expr) => {
        $builder
            .timer(TokioTimer::new())
            .max_header_list_size(HEADER_BYTES_MAX as u32)
            .max_concurrent_streams(STREAMS_MAX)
            .max_pending_accept_reset_streams(PENDING_RESETS_MAX)
            .max_local_error_reset_streams(LOCAL_RESETS_MAX)
            .max_frame_size(FRAME_BYTES_MAX)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_send_buf_size(SEND_BUFFER_BYTES)
    };
}

/// What the router may know of the connection that a request came on.
#[derive(Debug)]
pub(crate) struct Client {
    /// The listener.
    pub(crate) listener: ListenerKind,
    /// The client's address; `None` on a Unix socket.
    pub(crate) address: Option<IpAddr>,
    /// What the connection tells of who the client is.
    pub(crate) peer: Peer,
    /// Cancelled when Weir begins to drain. One of each connection, so that its watches contend with no others.
    pub(crate) draining: CancellationToken,
}

/// Serves connections of any kind.
#[derive(Clone)]
pub(crate) struct Connections {
    router: Arc<Router>,
    header_read_timeout: Duration,
    stall_timeout: Duration,
    abort: CancellationToken,
}

impl Connections {
    pub(crate) fn new(
        router: Arc<Router>,
        config: &ServerConfig,
        abort: CancellationToken,
    ) -> Self {
        let &ServerConfig { header_read_timeout, stall_timeout, .. } = config;
        Self { router, header_read_timeout, stall_timeout, abort }
    }

    /// For a connection whose protocol its first bytes tell, and whose streams go where this says.
    fn builder(&self, spawner: Spawner) -> auto::Builder<Spawner> {
        let mut builder = auto::Builder::new(spawner);
        bound_http1!(self, builder.http1());
        bound_http2!(builder.http2());
        builder
    }

    /// Serves one connection to its end, as a task of its own: what came before, a handshake with all it needs, does not lie beside what every event
    /// is sent through, nor in memory for as long. Its errors are the client's affair, and are told at debug.
    ///
    /// Where ALPN has told the protocol the first bytes are not asked: put back before the others, they would make hyper read a head of HTTP/1.1 in
    /// two steps and keep a buffer of 16 KiB for it in place of 8, and HTTP/2 would have a layer more.
    pub(crate) fn serve<I>(self, io: I, client: Client, spoken: Spoken, tasks: &TaskTracker)
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let client = Arc::new(client);
        let head = Head::new();
        let cork = Cork::new(Watched::new(io, head.clone()));
        let io = TokioIo::new(cork.clone());
        let router = Arc::clone(&self.router);
        let draining = client.draining.clone();
        let heads = head.clone();
        let untaken = Untaken::new(self.stall_timeout, router.metrics.clone());
        let bodies = untaken.clone();
        let service = service_fn(move |mut request: Request<Incoming>| {
            shorten(request.headers_mut());
            let under_way = heads.request(!request.body().is_end_stream());
            let bodies = (request.version() == Version::HTTP_2).then(|| bodies.clone());
            let answer = Arc::clone(&router).handle(Arc::clone(&client), request);
            Box::pin(async move {
                let answered = answer.await;
                answered.map(|response| {
                    response.map(|body| under_way.until_end_of(Taken::new(body, bodies)))
                })
            })
        });
        let mut streams = ConnectionTasks::new(SPAWN_QUEUE_MAX);
        watch_over(&mut streams, self.header_read_timeout, untaken, head, draining);
        let abort = self.abort.clone();
        match spoken {
            Spoken::Http1 => {
                let mut builder = http1::Builder::new();
                let connection = bound_http1!(self, builder).serve_connection(io, service);
                let connection = Box::pin(connection.with_upgrades());
                let leave = http1::UpgradeableConnection::graceful_shutdown;
                tasks.spawn(Driven { connection, streams, cork, leave, abort });
            }
            Spoken::Http2 => {
                let mut builder = http2::Builder::new(streams.spawner());
                let connection = bound_http2!(builder).serve_connection(io, service);
                let connection = Box::pin(connection);
                let leave = http2::Connection::graceful_shutdown;
                tasks.spawn(Driven { connection, streams, cork, leave, abort });
            }
            Spoken::Unknown => {
                let builder = self.builder(streams.spawner());
                let connection = builder.serve_connection_with_upgrades(io, service).into_owned();
                let connection = Box::pin(connection);
                let leave = auto::UpgradeableConnection::graceful_shutdown;
                tasks.spawn(Driven { connection, streams, cork, leave, abort });
            }
        }
    }
}

/// Runs what bounds a connection beside its streams.
fn watch_over(
    streams: &mut ConnectionTasks<Told>,
    header_read_timeout: Duration,
    untaken: Untaken,
    head: Head,
    draining: CancellationToken,
) {
    streams.spawn_aux(async move { match untaken.sweep().await {} });
    let late = head.clone();
    streams.spawn_aux(async move {
        late.late(header_read_timeout).await;
        Told::Late
    });
    streams.spawn_aux(async move {
        tokio::select! {
            () = draining.cancelled() => {}
            () = head.unused(IDLE_TIMEOUT) => {}
        }
        Told::Leave
    });
}

/// A connection and its streams, run by turns until it ends or must.
struct Driven<I, C> {
    /// Dropped before its streams.
    connection: Pin<Box<C>>,
    streams: ConnectionTasks<Told>,
    cork: Cork<I>,
    leave: fn(Pin<&mut C>),
    abort: CancellationToken,
}

impl<I, C, E> Future for Driven<I, C>
where
    I: AsyncRead + AsyncWrite + Unpin,
    C: Future<Output = Result<(), E>>,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let turn = this.turn(context);
        let ended = match this.cork.end_turn(turn, context) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Ok(ended)) => ended.map_err(Into::into),
            Poll::Ready(Err(error)) => Err(error.into()),
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a client connection ended");
        }
        Poll::Ready(())
    }
}

impl<I, C, E> Driven<I, C>
where
    I: AsyncRead + AsyncWrite + Unpin,
    C: Future<Output = Result<(), E>>,
{
    /// One turn, and what is told beside it.
    fn turn(&mut self, context: &Context<'_>) -> Poll<Result<(), E>> {
        let Self { connection, streams, cork, leave, abort } = self;
        loop {
            let share = |open| cork.share(open > 1);
            match ready!(streams.poll(connection, share, context)) {
                Stopped::Ended(ended) => return Poll::Ready(ended),
                Stopped::Event(Told::Late) => {
                    tracing::debug!("a client did not finish the head of its request in time");
                    return Poll::Ready(Ok(()));
                }
                Stopped::Event(Told::Leave) => {
                    leave(connection.as_mut());
                    let abort = abort.clone();
                    streams.spawn_aux(async move {
                        abort.cancelled().await;
                        Told::Abort
                    });
                }
                Stopped::Event(Told::Abort) => return Poll::Ready(Ok(())),
            }
        }
    }
}

/// What is known of a connection's protocol before its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spoken {
    /// ALPN has chosen HTTP/1.1.
    Http1,
    /// ALPN has chosen HTTP/2.
    Http2,
    /// HTTP/2 begins with a preface that nothing else begins with.
    Unknown,
}

/// What is told beside a connection.
enum Told {
    /// The head of a request took too long.
    Late,
    /// Weir drains; or a client that is there has nothing to ask, which is told to go as by Go's server (`IdleTimeout`).
    Leave,
    /// Weir ends.
    Abort,
}

/// Leaves of a head that will be refused for its many fields just as many as it takes to refuse it: they cost far more here than on the wire,
/// and requests may wait for their turn.
fn shorten(headers: &mut HeaderMap) {
    if headers.len() > HEADERS_MAX {
        let few = headers.iter().take(HEADERS_MAX + 1);
        *headers = few.map(|(name, value)| (name.clone(), value.clone())).collect();
    }
}

/// kube-apiserver's own limit; bearer tokens and Impersonate-Extra can be large.
const HEADER_BYTES_MAX: usize = 1 << 20;
/// Room for the request line beside the headers: HTTP/1.1 has one buffer for both.
const REQUEST_LINE_BYTES_MAX: usize = 64 << 10;
/// More than a client-go process opens watches on its one connection, and few enough that one client cannot hold too much.
const STREAMS_MAX: u32 = 250;
/// So many streams may wait for their first turn; more are reset. A client may have half as many open, but those that it reset itself count no more
/// while they still wait here.
const SPAWN_QUEUE_MAX: usize = 2 * STREAMS_MAX as usize;
/// Streams that a client opened and reset before Weir looked at them: hyper's own figure (CVE-2023-44487). An honest client that cancels in
/// a burst has fewer; more end the connection with ENHANCE_YOUR_CALM.
const PENDING_RESETS_MAX: usize = 20;
/// Streams that Weir reset for a client's errors: h2's own figure (CVE-2025-8671). An honest client makes none.
const LOCAL_RESETS_MAX: usize = 1024;
/// The least that HTTP/2 allows: request bodies are small, and what is held of one frame is bounded by it. With [`HEADER_BYTES_MAX`] it
/// also bounds the CONTINUATION frames of one head.
const FRAME_BYTES_MAX: u32 = 16 << 10;
/// kube-apiserver's; only request bodies flow in.
const STREAM_WINDOW_BYTES: u32 = 256 << 10;
/// A few uploads at once.
const CONNECTION_WINDOW_BYTES: u32 = 2 << 20;
/// What a stream buffers for a slow reader. There are many watches, and each lives on the shared history.
const SEND_BUFFER_BYTES: usize = 64 << 10;
/// Between two requests on a connection: longer than the 90 s after which Go's clients close it, so that none is ever
/// written to a connection that Weir is just closing.
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);
/// Header fields of a request, in both protocols ([`crate::server::request::framing`]). kube-apiserver limits their bytes alone; hyper's default of 100 is
/// less than a user with many groups has `Impersonate-Group`s.
pub(crate) const HEADERS_MAX: usize = 1024;
