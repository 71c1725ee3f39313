//! A balancer in memory: it relays connections to an API server, and can freeze those that are
//! open. A frozen connection stays open and takes bytes, and passes none.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};

use super::*;
use crate::config::seams::{Connection, Dial};
use crate::upstream::testing::{Answer, ConnectionNumber};

/// A balancer before an API server. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Balancer(Arc<Mutex<Vec<Arc<Mutex<Valve>>>>>);

/// Whether the bytes of a connection pass.
#[derive(Default)]
struct Valve {
    is_shut: bool,
    readers: Vec<Waker>,
}

/// One end of a connection.
struct Pipe {
    stream: DuplexStream,
    valve: Arc<Mutex<Valve>>,
}

impl Balancer {
    /// Returns an upstream that connects through this balancer to an API server with this handler.
    pub(super) async fn upstream<F, R>(&self, http2: bool, handler: F) -> Upstream
    where
        F: Fn(Request<Incoming>) -> R + Send + Sync + 'static,
        R: Future<Output = Answer> + Send + 'static,
    {
        let dial = self.dial(http2, handler);
        let config = config(Some("http://balancer".to_owned()), None, http2);
        Upstream::with_dial(&config, Some(dial), metrics()).await.unwrap()
    }

    /// Returns what opens connections through this balancer to an API server with this handler.
    pub(super) fn dial<F, R>(&self, http2: bool, handler: F) -> Dial
    where
        F: Fn(Request<Incoming>) -> R + Send + Sync + 'static,
        R: Future<Output = Answer> + Send + 'static,
    {
        let (balancer, handler) = (self.clone(), Arc::new(handler));
        Dial::new(move |_, _| {
            let (near, far, number) = balancer.open();
            let handler = Arc::clone(&handler);
            tokio::spawn(serve(far, http2, move |mut request: Request<Incoming>| {
                request.extensions_mut().insert(ConnectionNumber(number));
                handler(request)
            }));
            Box::pin(async { Ok(Box::new(near) as Box<dyn Connection>) })
        })
    }

    fn open(&self) -> (Pipe, Pipe, usize) {
        let valve = Arc::new(Mutex::new(Valve::default()));
        let mut valves = self.0.lock();
        valves.push(Arc::clone(&valve));
        let (near, far) = tokio::io::duplex(PIPE_BYTES);
        let end = |stream| Pipe { stream, valve: Arc::clone(&valve) };
        (end(near), end(far), valves.len() - 1)
    }

    /// Returns the number of connections that were ever opened.
    pub(super) fn opened(&self) -> usize {
        self.0.lock().len()
    }

    /// Freezes the open connections.
    pub(super) fn freeze(&self) {
        self.0.lock().iter().for_each(|valve| valve.lock().is_shut = true);
    }

    /// Lets the frozen connections go on, with every byte that they took.
    pub(super) fn thaw(&self) {
        for valve in &*self.0.lock() {
            let mut valve = valve.lock();
            valve.is_shut = false;
            valve.readers.drain(..).for_each(Waker::wake);
        }
    }
}

async fn serve<F, R>(stream: Pipe, http2: bool, handler: F)
where
    F: Fn(Request<Incoming>) -> R + Send + Sync + 'static,
    R: Future<Output = Answer> + Send + 'static,
{
    let service = hyper::service::service_fn(move |request| {
        let answer = handler(request);
        async move { Ok::<_, std::convert::Infallible>(answer.await) }
    });
    let io = TokioIo::new(stream);
    if http2 {
        let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        drop(builder.timer(TokioTimer::new()).serve_connection(io, service).await);
    } else {
        let connection = hyper::server::conn::http1::Builder::new().serve_connection(io, service);
        drop(connection.with_upgrades().await);
    }
}

impl AsyncRead for Pipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        {
            let mut valve = self.valve.lock();
            if valve.is_shut {
                valve.readers.push(context.waker().clone());
                return Poll::Pending;
            }
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// The bytes that a socket takes for a peer that does not read.
const PIPE_BYTES: usize = 1 << 20;
