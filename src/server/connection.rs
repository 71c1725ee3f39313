//! One client connection: HTTP/1.1 or HTTP/2, told apart by its first bytes, with every limit set on purpose
//! (crates.md, pitfall 7), and ended gracefully when Weir drains (pitfall 8).

use std::error::Error;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Request, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use crate::auth::peer::Peer;
use crate::config::ServerConfig;
use crate::server::cork::Cork;
use crate::server::listener::ListenerKind;
use crate::server::patience::{Head, Watched};
use crate::server::router::Router;
use crate::server::untaken::{Taken, Untaken};
use crate::streams::{Arrivals, Stopped, Streams};

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
    fn builder(&self, streams: Arrivals) -> auto::Builder<Arrivals> {
        let mut builder = auto::Builder::new(streams);
        bound_http1!(self, builder.http1());
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_header_list_size(HEADER_BYTES_MAX as u32)
            .max_concurrent_streams(STREAMS_MAX)
            .max_pending_accept_reset_streams(PENDING_RESETS_MAX)
            .max_local_error_reset_streams(LOCAL_RESETS_MAX)
            .max_frame_size(FRAME_BYTES_MAX)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_send_buf_size(SEND_BUFFER_BYTES)
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT);
        builder
    }

    /// Serves one connection to its end. Its errors are the client's affair, and are told at debug.
    ///
    /// What is known to be HTTP/1.1 is not asked for its first bytes: put back before the others, they would make hyper read a head in two steps, and
    /// keep a buffer of 16 KiB for it in place of 8.
    pub(crate) async fn serve<I>(self, io: I, client: Client, spoken: Spoken)
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let client = Arc::new(client);
        let head = Head::new();
        let cork = Cork::new(Watched::new(io, head.clone()), head.clone());
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
        let streams = Streams::new(ARRIVED_MAX);
        self.watch_over(&streams, untaken, head, draining);
        let ended = match spoken {
            Spoken::Http1 => {
                let mut builder = http1::Builder::new();
                let connection = bound_http1!(self, builder).serve_connection(io, service);
                let connection = Box::pin(connection.with_upgrades());
                self.drive(&cork, streams, connection, |it| it.graceful_shutdown()).await
            }
            Spoken::Unknown => {
                let builder = self.builder(streams.arrivals());
                let connection = builder.serve_connection_with_upgrades(io, service).into_owned();
                self.drive(&cork, streams, Box::pin(connection), |it| it.graceful_shutdown()).await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a client connection ended");
        }
    }

    /// Runs a connection and its streams by turns, until it ends or must.
    async fn drive<I, C, E>(
        &self,
        cork: &Cork<I>,
        mut streams: Streams<Told>,
        mut connection: Pin<Box<C>>,
        leave: fn(Pin<&mut C>),
    ) -> Result<(), Box<dyn Error + Send + Sync>>
    where
        I: AsyncRead + AsyncWrite + Unpin,
        C: Future<Output = Result<(), E>>,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        let ended = cork.turns(async {
            loop {
                match streams.run(&mut connection).await {
                    Stopped::Ended(ended) => return ended,
                    Stopped::Told(Told::Late) => {
                        tracing::debug!("a client did not finish the head of its request in time");
                        return Ok(());
                    }
                    Stopped::Told(Told::Leave) => {
                        leave(connection.as_mut());
                        let abort = self.abort.clone();
                        streams.beside(async move {
                            abort.cancelled().await;
                            Told::Abort
                        });
                    }
                    Stopped::Told(Told::Abort) => return Ok(()),
                }
            }
        });
        ended.await?.map_err(Into::into)
    }

    /// Runs what bounds a connection beside its streams.
    fn watch_over(
        &self,
        streams: &Streams<Told>,
        untaken: Untaken,
        head: Head,
        draining: CancellationToken,
    ) {
        streams.beside(async move { match untaken.sweep().await {} });
        let (late, timeout) = (head.clone(), self.header_read_timeout);
        streams.beside(async move {
            late.late(timeout).await;
            Told::Late
        });
        streams.beside(async move {
            tokio::select! {
                () = draining.cancelled() => {}
                () = head.unused(IDLE_TIMEOUT) => {}
            }
            Told::Leave
        });
    }
}

/// What is known of a connection's protocol before its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spoken {
    /// ALPN has chosen HTTP/1.1.
    Http1,
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
const ARRIVED_MAX: usize = 2 * STREAMS_MAX as usize;
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
/// Finds dead peers; kube-apiserver's clients ping at the same interval.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// How long a ping may stay unanswered.
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// Between two requests on a connection: longer than the 90 s after which Go's clients close it, so that none is ever
/// written to a connection that Weir is just closing.
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);
/// Header fields of a request, in both protocols ([`crate::server::framing`]). kube-apiserver limits their bytes alone; hyper's default of 100 is
/// less than a user with many groups has `Impersonate-Group`s.
pub(crate) const HEADERS_MAX: usize = 1024;
