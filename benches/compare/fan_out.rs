//! A bare fan-out of events: one watch of the upstream, one shared buffer, and a cursor for each who watches.

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
use crate::client::{Ask, Connection, Protocol};
use crate::server::Server;

/// More than one who watches is ever behind here.
const EVENTS_MAX: usize = 4_096;

/// One representation's events.
pub(crate) struct FanOut {
    events: Arc<Mutex<Events>>,
    wanted: Arc<Notify>,
}

#[derive(Default)]
struct Events {
    /// How many came before the first that is kept.
    gone: usize,
    kept: VecDeque<Bytes>,
    waiting: Vec<Waker>,
}

impl FanOut {
    /// It watches the upstream from when the first one watches it.
    pub(crate) fn new(upstream: Arc<Server>, what: Watchable, accept: &'static str) -> Self {
        let events = Arc::new(Mutex::new(Events::default()));
        let wanted = Arc::new(Notify::new());
        let (to, signal) = (Arc::clone(&events), Arc::clone(&wanted));
        tokio::spawn(async move {
            signal.notified().await;
            loop {
                relay(&upstream, what, accept, &to).await;
            }
        });
        Self { events, wanted }
    }

    /// From now on.
    pub(crate) fn watch(&self) -> Watch {
        self.wanted.notify_one();
        let next = {
            let events = self.events.lock();
            events.gone + events.kept.len()
        };
        Watch { events: Arc::clone(&self.events), next }
    }
}

async fn relay(upstream: &Server, what: Watchable, accept: &str, events: &Mutex<Events>) {
    let connection = Connection::open(upstream, Protocol::Http2).await;
    let from = what.latest(upstream, &connection).await;
    let ask = Ask::get(upstream, &what.watch(&from, ""), accept, false);
    let mut response = connection.send(&ask).await;
    while let Some(Ok(frame)) = response.body_mut().frame().await {
        let Ok(data) = frame.into_data() else { continue };
        let waiting = {
            let mut events = events.lock();
            events.kept.push_back(data);
            if events.kept.len() > EVENTS_MAX {
                events.kept.pop_front();
                events.gone += 1;
            }
            std::mem::take(&mut events.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// A watch's body.
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
            let event = events.kept.get(next - events.gone).cloned();
            if event.is_none() {
                events.waiting.push(context.waker().clone());
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
