//! Answers that a client does not take, on a connection that is alive.
//!
//! HTTP/2 has a window for each stream, and hyper asks for no more of a body while it is shut. Such a body keeps what it is made of: a list, a place
//! among the connections to the upstream, a permit of the forward budget. So each piece of an answer must be taken within a time; a body of
//! which nothing is taken for longer is dropped here, and its stream ends with a reset once the client looks at it again. The connection
//! lives on, for a proxy may carry many clients by one.
//!
//! What is bounded so is what Weir holds; hyper itself holds one piece of each stream ([`crate::server::http::response::Body`] cuts them small).
//! HTTP/1.1 has no such windows: there a socket that takes nothing ends its connection ([`crate::server::connection::permits`]).
//!
//! A body that ends with its first piece, as most do, is never entered here: once its last piece is handed out, it is let go of at once.
//!
//! Locks: the table's, then a body's, neither while a body is dropped.

use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Buf;
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::codec::rope::Rope;
use crate::server::http::response::Body;
use crate::server::metrics::ServerMetrics;
use crate::upstream::pool::BodyError;

/// The answers of one connection that are under way. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Untaken {
    table: Arc<Mutex<Table>>,
    timeout: Duration,
    metrics: ServerMetrics,
}

/// Bounded by the streams of a connection.
#[derive(Debug, Default)]
struct Table {
    next: u64,
    bodies: HashMap<u64, Arc<Mutex<Held>>>,
}

#[derive(Debug)]
struct Held {
    /// `None` once it was dropped.
    body: Option<Body>,
    /// Until when the last piece must be taken; `None` while hyper waits for the next one.
    due: Option<Instant>,
}

impl Untaken {
    /// Lets a piece lie for so long.
    pub(crate) fn new(timeout: Duration, metrics: ServerMetrics) -> Self {
        Self { table: Arc::default(), timeout, metrics }
    }

    /// Drops what is not taken, for ever.
    pub(crate) async fn sweep(&self) -> Infallible {
        loop {
            tokio::time::sleep(self.timeout / 2).await;
            let now = Instant::now();
            let late: Vec<Body> = {
                let table = self.table.lock();
                table.bodies.values().filter_map(|held| held.lock().late(now)).collect()
            };
            for body in late {
                self.metrics.answer_untaken();
                tracing::debug!(?body, "a client did not take its answer in time");
            }
        }
    }

    fn enter(&self, body: Body, due: Instant) -> (u64, Arc<Mutex<Held>>) {
        let held = Arc::new(Mutex::new(Held { body: Some(body), due: Some(due) }));
        let mut table = self.table.lock();
        table.next += 1;
        let number = table.next;
        table.bodies.insert(number, Arc::clone(&held));
        (number, held)
    }

    /// A slow client that takes something all the time is none that takes nothing.
    fn due(&self, piece_bytes: usize) -> Instant {
        Instant::now() + self.timeout + Duration::from_secs((piece_bytes / RATE_BYTES_MIN) as u64)
    }
}

impl Held {
    fn late(&mut self, now: Instant) -> Option<Body> {
        self.body.take_if(|_| self.due.is_some_and(|due| due < now))
    }
}

/// The body of a response, which may be dropped from outside.
#[derive(Debug)]
pub(crate) struct Taken {
    body: Kept,
    /// `None` in HTTP/1.1.
    untaken: Option<Untaken>,
}

#[derive(Debug)]
enum Kept {
    /// Before its first piece.
    Own(Body),
    /// Where it can be dropped from outside.
    Entered(u64, Arc<Mutex<Held>>),
}

impl Taken {
    /// A body to be dropped if it is not taken; without a table it never is.
    pub(crate) fn new(body: Body, untaken: Option<Untaken>) -> Self {
        Self { body: Kept::Own(body), untaken }
    }

    /// Looks at the body; `otherwise` if it was dropped.
    fn look<T>(&self, look: impl FnOnce(&Body) -> T, otherwise: T) -> T {
        match &self.body {
            Kept::Own(body) => look(body),
            Kept::Entered(_, held) => held.lock().body.as_ref().map_or(otherwise, look),
        }
    }
}

impl http_body::Body for Taken {
    type Data = Rope;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Rope>, BodyError>>> {
        let this = self.get_mut();
        match &mut this.body {
            Kept::Own(body) => {
                let polled = Pin::new(&mut *body).poll_frame(context);
                if let Some(bytes) = piece_bytes(&polled) {
                    let given = std::mem::replace(body, Body::empty());
                    match &this.untaken {
                        // The last piece: hyper holds on to the body until that is taken, and nobody needs it any more.
                        _ if given.is_end_stream() => drop(given),
                        Some(untaken) => {
                            let (number, held) = untaken.enter(given, untaken.due(bytes));
                            this.body = Kept::Entered(number, held);
                        }
                        None => *body = given,
                    }
                }
                polled
            }
            Kept::Entered(_, held) => {
                let mut held = held.lock();
                let Some(body) = &mut held.body else {
                    return Poll::Ready(Some(Err(BodyError::Stalled)));
                };
                let polled = Pin::new(&mut *body).poll_frame(context);
                let bytes = piece_bytes(&polled);
                let ended = bytes.is_some() && body.is_end_stream();
                if ended {
                    *body = Body::empty();
                }
                let owed = this.untaken.as_ref().zip(bytes).filter(|_| !ended);
                held.due = owed.map(|(untaken, bytes)| untaken.due(bytes));
                polled
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.look(http_body::Body::is_end_stream, false)
    }

    fn size_hint(&self) -> SizeHint {
        self.look(http_body::Body::size_hint, SizeHint::default())
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let (Kept::Entered(number, _), Some(untaken)) = (&self.body, &self.untaken) {
            let held = untaken.table.lock().bodies.remove(number);
            drop(held);
        }
    }
}

/// How many bytes were handed out.
fn piece_bytes(polled: &Poll<Option<Result<Frame<Rope>, BodyError>>>) -> Option<usize> {
    match polled {
        Poll::Ready(Some(Ok(frame))) => Some(frame.data_ref().map_or(0, Rope::remaining)),
        _ => None,
    }
}

/// What a client takes at least of a piece, in a second, when the time-out is over: a modem's pace. One that gives its window back in large steps
/// seems to take nothing for as long as a step lasts.
const RATE_BYTES_MIN: usize = 4 << 10;

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures_util::FutureExt;
    use http_body::Body as _;
    use http_body_util::BodyExt;

    use super::*;
    use crate::codec::rope::PIECE_BYTES;

    const TIMEOUT: Duration = Duration::from_secs(60);

    fn taken(body: Body) -> (Untaken, Taken) {
        let metrics = ServerMetrics::register(&prometheus::Registry::new()).unwrap();
        let untaken = Untaken::new(TIMEOUT, metrics);
        (untaken.clone(), Taken::new(body, Some(untaken)))
    }

    fn pieces(count: usize) -> Body {
        Body::chunks(vec![Bytes::from(vec![7; PIECE_BYTES]); count])
    }

    /// Sweeps for so long.
    async fn sweep(untaken: &Untaken, time: Duration) {
        assert!(tokio::time::timeout(time, untaken.sweep()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_takes_is_dropped_and_then_an_error() {
        let (untaken, mut body) = taken(pieces(3));
        body.frame().await.unwrap().unwrap();
        sweep(&untaken, TIMEOUT - Duration::from_secs(1)).await;
        body.frame().await.unwrap().unwrap();
        sweep(&untaken, TIMEOUT * 2).await;
        assert!(matches!(body.frame().await, Some(Err(BodyError::Stalled))));
        assert_eq!(untaken.table.lock().bodies.len(), 1);
        drop(body);
        assert_eq!(untaken.table.lock().bodies.len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_may_be_silent_for_as_long_as_it_likes() {
        let frames = futures_util::stream::iter([Bytes::from_static(b"event")]);
        let frames = futures_util::StreamExt::chain(frames, futures_util::stream::pending());
        let (untaken, mut body) = taken(Body::Watch(Box::pin(frames)));
        body.frame().await.unwrap().unwrap();
        assert!(body.frame().now_or_never().is_none());
        sweep(&untaken, TIMEOUT * 9).await;
        assert!(body.frame().now_or_never().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn what_ends_with_its_first_piece_is_not_entered() {
        let (untaken, mut body) = taken(pieces(1));
        body.frame().await.unwrap().unwrap();
        assert!(body.is_end_stream());
        assert_eq!(untaken.table.lock().bodies.len(), 0);
    }

    /// hyper keeps a body until the client has taken its last piece, which may be never.
    #[tokio::test(start_paused = true)]
    async fn with_the_last_piece_all_that_was_held_is_let_go() {
        for count in 1..4 {
            let (untaken, mut body) = taken(pieces(count));
            for _ in 0..count {
                body.frame().await.unwrap().unwrap();
            }
            assert!(body.is_end_stream(), "{count}");
            assert!(body.look(|body| matches!(body, Body::Chunks(all) if all.is_let_go()), false));
            sweep(&untaken, TIMEOUT * 9).await;
            assert!(body.frame().await.is_none(), "{count}");
        }
    }
}
