//! A minimal fan-out of events: one watch of the upstream, one shared buffer, and a cursor per
//! watch.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::changes::Watchable;
use crate::client::{Connection, PreparedRequest, Protocol};
use crate::server::Server;

/// The length of the buffer, which is more than any watch lags behind.
const EVENTS_MAX: usize = 4_096;

/// The events of one collection in one encoding.
pub(crate) struct FanOut {
    events: Arc<Mutex<Events>>,
    first_watch: Arc<Notify>,
}

#[derive(Default)]
struct Events {
    /// The number of events that were removed from the front.
    removed: usize,
    buffer: VecDeque<Bytes>,
    wakers: Vec<Waker>,
}

impl FanOut {
    /// Returns a fan-out that starts to watch the upstream when its first watch opens.
    pub(crate) fn new(upstream: Arc<Server>, resource: Watchable, accept: &'static str) -> Self {
        let events = Arc::new(Mutex::new(Events::default()));
        let first_watch = Arc::new(Notify::new());
        let (to, signal) = (Arc::clone(&events), Arc::clone(&first_watch));
        tokio::spawn(async move {
            signal.notified().await;
            loop {
                relay(&upstream, resource, accept, &to).await;
            }
        });
        Self { events, first_watch }
    }

    /// Opens a watch of the events after the current one.
    pub(crate) fn watch(&self) -> Watch {
        self.first_watch.notify_one();
        let next = {
            let events = self.events.lock();
            events.removed + events.buffer.len()
        };
        Watch { events: Arc::clone(&self.events), next }
    }
}

async fn relay(upstream: &Server, resource: Watchable, accept: &str, events: &Mutex<Events>) {
    let connection = Connection::open(upstream, Protocol::Http2).await;
    let from = resource.latest(upstream, &connection).await;
    let request = PreparedRequest::get(upstream, &resource.watch(&from, ""), accept, false);
    let mut response = connection.send(&request).await;
    while let Some(Ok(frame)) = response.body_mut().frame().await {
        let Ok(data) = frame.into_data() else { continue };
        let wakers = {
            let mut events = events.lock();
            events.buffer.push_back(data);
            if events.buffer.len() > EVENTS_MAX {
                events.buffer.pop_front();
                events.removed += 1;
            }
            std::mem::take(&mut events.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// The response body of a watch.
pub(crate) struct Watch {
    events: Arc<Mutex<Events>>,
    next: usize,
}

impl Body for Watch {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = self.next;
        let event = {
            let mut events = self.events.lock();
            let event = events.buffer.get(next - events.removed).cloned();
            if event.is_none() {
                events.wakers.push(context.waker().clone());
            }
            event
        };
        match event {
            None => Poll::Pending,
            Some(event) => {
                self.next += 1;
                Poll::Ready(Some(Ok(Frame::data(event))))
            }
        }
    }
}
