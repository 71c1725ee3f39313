//! When pieces are handed out, and when a body is dropped.

use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http_body_util::BodyExt;

use super::*;
use crate::flow::overload::{Signals, Stage};
use crate::server::connection::activity::ConnActivity;
use crate::server::lanes::{self, Lanes};
use crate::server::metrics::ServerMetrics;
use crate::server::overload::{Overload, Stages};

const TIMEOUT: Duration = Duration::from_secs(60);

fn guarded(body: Body) -> (SendTimeouts, GuardedBody) {
    let metrics = ServerMetrics::register(&prometheus::Registry::new()).unwrap();
    let timeouts = SendTimeouts::new(TIMEOUT, metrics);
    let request = ConnActivity::new().begin_request();
    (timeouts.clone(), GuardedBody::new(body, request, timed_by(timeouts), None))
}

fn timed_by(timeouts: SendTimeouts) -> BodyGuards {
    BodyGuards { timeouts: Some(timeouts), ..BodyGuards::default() }
}

fn pieces(count: usize) -> Body {
    Body::chunks(vec![Bytes::from(vec![7; PIECE_BYTES]); count])
}

/// Sweeps for `time`.
async fn sweep(timeouts: &SendTimeouts, time: Duration) {
    let overload = Overload::calm();
    assert!(tokio::time::timeout(time, timeouts.sweep(&overload)).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_not_read_is_dropped_and_then_an_error() {
    let (timeouts, mut body) = guarded(pieces(3));
    body.frame().await.unwrap().unwrap();
    sweep(&timeouts, TIMEOUT - Duration::from_secs(1)).await;
    body.frame().await.unwrap().unwrap();
    sweep(&timeouts, TIMEOUT * 2).await;
    assert!(matches!(body.frame().await, Some(Err(BodyError::Stalled))));
    assert_eq!(timeouts.tracked(), 1);
    drop(body);
    assert_eq!(timeouts.tracked(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_watch_may_be_silent_for_any_time() {
    let frames = futures_util::stream::iter([Rope::from(Bytes::from_static(b"event"))]);
    let frames = futures_util::StreamExt::chain(frames, futures_util::stream::pending());
    let (timeouts, mut body) = guarded(Body::Watch(Box::pin(frames)));
    body.frame().await.unwrap().unwrap();
    assert!(body.frame().now_or_never().is_none());
    sweep(&timeouts, TIMEOUT * 9).await;
    assert!(body.frame().now_or_never().is_none());
}

#[tokio::test(start_paused = true)]
async fn while_weir_is_overloaded_a_body_has_a_tenth_of_the_time() {
    let (timeouts, mut body) = guarded(pieces(3));
    body.frame().await.unwrap().unwrap();
    let overload = Overload::calm();
    let stages = Stages { overall: Stage::VitalOnly, space: Stage::Calm };
    overload.set(stages, &Signals::default());
    // A piece has some seconds more for its length.
    let swept = tokio::time::timeout(TIMEOUT / 2, timeouts.sweep(&overload));
    assert!(swept.await.is_err());
    assert!(matches!(body.frame().await, Some(Err(BodyError::Stalled))));
}

#[tokio::test(start_paused = true)]
async fn an_http1_body_waits_until_its_pieces_were_written() {
    let held = HeldBytes::new(usize::MAX).response();
    let copied = held.clone();
    let frames =
        futures_util::stream::repeat_with(move || Rope::from(copied.hold(vec![7; PIECE_BYTES])));
    let request = ConnActivity::new().begin_request();
    let body = Body::Watch(Box::pin(frames));
    let guards = BodyGuards { unwritten: Some(held.clone()), ..BodyGuards::default() };
    let mut body = GuardedBody::new(body, request, guards, None);
    let first = body.frame().await.unwrap().unwrap();
    let _second = body.frame().await.unwrap().unwrap();
    assert!(body.frame().now_or_never().is_none());
    let next = tokio::spawn(async move { body.frame().await.unwrap().unwrap() });
    tokio::task::yield_now().await;
    assert_eq!(held.bytes(), 2 * PIECE_BYTES);
    drop(first);
    assert_eq!(next.await.unwrap().into_data().unwrap().remaining(), PIECE_BYTES);
}

#[tokio::test(start_paused = true)]
async fn while_an_http1_body_waits_for_its_turn_its_connection_writes_nothing() {
    let lanes = Lanes::new(1);
    let others = lanes.lane(1).slot().await;
    let activity = ConnActivity::new();
    let (request, guards) = (activity.begin_request(), BodyGuards::default());
    let mut body = GuardedBody::new(pieces(3), request, guards, Some(lanes.lane(2)));
    body.frame().await.unwrap().unwrap();
    assert!(!activity.writes_wait());
    assert!(body.frame().now_or_never().is_none());
    assert!(activity.writes_wait());
    drop(others);
    body.frame().await.unwrap().unwrap();
    assert!(!activity.writes_wait());
    lanes::end_poll();
    // One that is dropped leaves nothing behind, and HTTP/2 has other responses to write.
    let _others = lanes.lane(1).slot().await;
    assert!(body.frame().now_or_never().is_none());
    drop(body);
    assert!(!activity.writes_wait());
    let (timeouts, _) = guarded(pieces(0));
    let (request, guards) = (activity.begin_request(), timed_by(timeouts));
    let mut body = GuardedBody::new(pieces(3), request, guards, Some(lanes.lane(2)));
    body.frame().await.unwrap().unwrap();
    assert!(body.frame().now_or_never().is_none());
    assert!(!activity.writes_wait());
}

#[tokio::test(start_paused = true)]
async fn a_body_of_one_piece_is_not_tracked() {
    let (timeouts, mut body) = guarded(pieces(1));
    body.frame().await.unwrap().unwrap();
    assert!(body.is_end_stream());
    assert_eq!(timeouts.tracked(), 0);
}

/// hyper keeps a body until the client has read its last piece, which may never happen.
#[tokio::test(start_paused = true)]
async fn a_body_is_released_with_its_last_piece() {
    for count in 1..4 {
        let (timeouts, mut body) = guarded(pieces(count));
        for _ in 0..count {
            body.frame().await.unwrap().unwrap();
        }
        assert!(body.is_end_stream(), "{count}");
        let released = |body: &Body| matches!(body, Body::Chunks(chunks) if chunks.is_released());
        assert!(body.read(released, false));
        sweep(&timeouts, TIMEOUT * 9).await;
        assert!(body.frame().await.is_none(), "{count}");
    }
}
