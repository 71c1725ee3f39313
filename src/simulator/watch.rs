//! Watches. Each has a task, which follows the history of its collection by a cursor and sends
//! frames to the response's body, or to a WebSocket, through a bounded channel (`docs/semantics.md`
//! §1.6.4, §5, §6).
//!
//! A slow reader fills its channel. Its cursor then falls out of the history's window, and the
//! stream ends.

mod damage;
mod frames;
mod start;
mod watcher;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, header};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper::upgrade::OnUpgrade;
use tokio::sync::mpsc;
use tokio::time::Instant;

use self::frames::{Frames, Transport};
use self::start::WatchStart;
use self::watcher::Watcher;
use super::answer::{self, Body};
use super::faults::Action;
use super::kinds::Kind;
use super::list;
use super::negotiate::{Shape, negotiate};
use super::request::{Options, Request, Target};
use super::shared::Shared;
use super::status::ApiError;
use super::websocket;

/// The capacity of the channel, in frames: the upstream's queue length for most resources.
const QUEUE_FRAMES: usize = 100;

/// Answers a WATCH. It chooses the start before it sends the response's head, as the upstream does:
/// a write after the client has received the head arrives as an event.
pub(super) async fn watch(
    shared: &Arc<Shared>,
    request: &Request,
    kind: &Arc<Kind>,
    target: &Target,
    faults: &[Action],
    upgrade: OnUpgrade,
) -> Result<Response<Body>, ApiError> {
    let form = negotiate(request, kind, Shape::Watch)?;
    let options = Options::decode(request, shared.options.watch_list())?;
    let selector = list::selector(shared, kind, target, &options)?;
    let start = WatchStart::from_options(&options).map_err(|text| ApiError::new(500, "", text))?;
    let socket = if websocket::is_upgrade(request) {
        match websocket::handshake(request) {
            Ok(switching) => Some(switching),
            Err(code) => return Ok(websocket::bare(code)),
        }
    } else {
        None
    };
    let transport = if socket.is_some() { Transport::WebSocket } else { Transport::Stream };
    let frames = Frames::new(request, kind, form, transport, shared.options.shows_zero_time());
    let (content_type, text) = (frames.content_type(), frames.is_text());
    let (sender, mut receiver) = mpsc::channel(QUEUE_FRAMES);
    let mut watcher = Watcher {
        changed: shared.store.subscribe(request.server, kind),
        number: 0,
        server: request.server,
        cuts: shared.faults.cuts(),
        shared: Arc::clone(shared),
        kind: Arc::clone(kind),
        selector,
        frames,
        sender,
        bookmarks: options.bookmarks,
        deadline: deadline(&options),
        marks_end: options.initial_events == Some(true),
        began: 0,
        cursor: 0,
        running: false,
        late: None,
    };
    // A watch whose time-out is over at the start has no events.
    if options.timeout_seconds.is_some_and(|seconds| seconds < 0) {
        receiver.close();
    }
    let garbage = faults.contains(&Action::Garbage);
    let gone = faults.contains(&Action::Gone);
    let initial_state = watcher.begin(start, gone).await;
    watcher.number = shared.log.watch_opened(request);
    tokio::spawn(watcher.run(initial_state, garbage));
    if let Some(switching) = socket {
        tokio::spawn(websocket::serve(upgrade, receiver, text));
        return Ok(switching);
    }
    let is_compressed = shared.options.compresses_watch_lists()
        && options.initial_events == Some(true)
        && options.bookmarks
        && answer::accepts_gzip(request);
    let stream = futures_util::stream::unfold(receiver, move |mut receiver| async move {
        let mut frames = Vec::new();
        let first = receiver.recv().await?;
        if !is_compressed {
            return Some((first.map(Frame::data), receiver));
        }
        frames.push(first);
        while let Ok(next) = receiver.try_recv() {
            frames.push(next);
        }
        let frames: Result<Vec<Bytes>, _> = frames.into_iter().collect();
        let member = frames.map(|frames| answer::gzip(&frames.concat()));
        Some((member.map(|member| Frame::data(member.into())), receiver))
    });
    let mut response = Response::new(StreamBody::new(stream).boxed_unsync());
    if is_compressed {
        answer::name_gzip(response.headers_mut());
    }
    answer::set(response.headers_mut(), header::CONTENT_TYPE, content_type);
    Ok(response)
}

/// Returns the end of a watch: as requested, or 30 to 60 minutes from now (`docs/semantics.md`
/// §5.7).
fn deadline(options: &Options) -> Instant {
    let seconds = match options.timeout_seconds {
        None | Some(0) => fastrand::u64(1800..3600),
        Some(seconds) => u64::try_from(seconds).unwrap_or(0),
    };
    // Limits the time-out to some years; a larger one could overflow the clock.
    Instant::now() + Duration::from_secs(seconds.min(100_000_000))
}
