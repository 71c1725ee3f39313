//! Bookmarks and ends of watches on tokio's paused clock, with a real watch cache.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};

use super::*;
use crate::api::resource::{GroupVersionResource, built_in};
use crate::cache::core::watch_cache::{Change, Now, WatchCache, WindowLimits};
use crate::cache::core::watcher::{WatchFilter, WatchStart};
use crate::codec::json;
use crate::codec::object::Object;
use crate::server::cached::watch_stream::coalesce::JOINED_BYTES_MAX;
use crate::server::drain::{Drain, WATCH_AGE_MIN};
use crate::server::metrics::ServerMetrics;

/// The received times of the deliveries whose delay was observed.
#[derive(Clone, Default)]
struct Fake(Arc<parking_lot::Mutex<Vec<Now>>>);

impl Bookmarks for Fake {
    fn bookmark(&self, at: ResourceVersion, initial_events_end: bool) -> Option<Bytes> {
        let end = if initial_events_end { " end" } else { "" };
        Some(Bytes::from(format!("BOOKMARK {at}{end}\n")))
    }

    fn expired(&self, at: ResourceVersion) -> Bytes {
        Bytes::from(format!("ERROR 410 {at}\n"))
    }

    fn delivered(&self, received: Now, _: Duration) {
        self.0.lock().push(received);
    }
}

fn object(name: &str, resource_version: u64) -> Object {
    let gvr = GroupVersionResource::new("", "v1", "configmaps");
    let resource = built_in(gvr, "ConfigMap");
    let body = format!(
        r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"a","resourceVersion":"{resource_version}"}}}}"#
    );
    json::object(body.as_bytes(), &resource).unwrap()
}

fn cache() -> WatchCache {
    let limits = WindowLimits {
        events_min: 100,
        events_max: 100,
        age: Duration::from_secs(75),
        bytes_max: 1 << 20,
        unread_from: u64::MAX,
        unread_bytes_max: 0,
    };
    let cache = WatchCache::new(limits);
    cache.replace(vec![object("x", 3), object("y", 5)], ResourceVersion(7));
    cache
}

struct Opened {
    stream: WatchStream<Fake>,
    drain: Drain,
    registry: prometheus::Registry,
}

impl Opened {
    /// Starts to drain the watch's connection.
    async fn drain(&self) {
        self.drain.run(Duration::ZERO).await;
    }
}

fn open(cache: &WatchCache, start: WatchStart, timeout_s: Option<u64>, end: bool) -> Opened {
    open_with(cache, WatchFilter::default(), start, timeout_s, (end, true))
}

/// Opens a watch. The last parameter says whether a bookmark ends the initial events, and whether
/// the client allows bookmarks.
fn open_with(
    cache: &WatchCache,
    filter: WatchFilter,
    start: WatchStart,
    timeout_s: Option<u64>,
    (end, bookmarks): (bool, bool),
) -> Opened {
    let registry = prometheus::Registry::new();
    let metrics = ServerMetrics::register(&registry).unwrap().resource(None);
    let watcher = cache.watch(filter, start).unwrap();
    let above = match start {
        WatchStart::After(after) => after,
        _ => watcher.resource_version(),
    };
    let timeout = timeout_s.map(Duration::from_secs);
    let schedule = Schedule::new(Instant::now(), timeout, bookmarks);
    let drain = Drain::default();
    let watch = drain.connect().watch(bookmarks);
    let stream = WatchStream::new(watcher, above, Fake::default(), schedule, end, watch, metrics);
    Opened { stream, drain, registry }
}

async fn text(stream: &mut WatchStream<Fake>) -> Option<String> {
    let mut frames = stream.next().await?;
    Some(String::from_utf8(frames.copy_to_bytes(frames.remaining()).to_vec()).unwrap())
}

fn ended(opened: Opened) -> String {
    drop(opened.stream);
    let text = prometheus::TextEncoder::new().encode_to_string(&opened.registry.gather()).unwrap();
    let line = text.lines().find(|line| line.starts_with("weir_watchers_ended_total{")).unwrap();
    let cause = line.split_once("cause=\"").unwrap().1;
    cause.split_once('"').unwrap().0.to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_bookmark_ends_the_initial_events_and_live_events_follow() {
    let cache = cache();
    let mut opened = open(&cache, WatchStart::InitialEvents, None, true);
    let initial = text(&mut opened.stream).await.unwrap();
    assert_eq!(initial.lines().count(), 2);
    assert_eq!(text(&mut opened.stream).await.unwrap(), "BOOKMARK 7 end\n");
    assert!(opened.stream.next().now_or_never().is_none());
    cache.apply(vec![Change::Upsert(object("z", 8))], Now::default());
    let live = text(&mut opened.stream).await.unwrap();
    assert!(live.starts_with(r#"{"type":"ADDED","object":{"kind":"ConfigMap""#), "{live}");
    assert_eq!(ended(opened), "client");
}

#[tokio::test(start_paused = true)]
async fn bookmarks_come_every_minute_after_progress_and_just_before_the_end() {
    let cache = cache();
    let start = Instant::now();
    let mut opened = open(&cache, WatchStart::After(ResourceVersion(7)), Some(200), false);
    // The first minute has no progress, and therefore no bookmark.
    let quiet = tokio::time::timeout(Duration::from_secs(70), opened.stream.next()).await;
    assert!(quiet.is_err());
    cache.apply(vec![Change::Progress(ResourceVersion(9))], Now::default());
    let mut at = Vec::new();
    while let Some(bookmark) = text(&mut opened.stream).await {
        assert_eq!(bookmark, "BOOKMARK 9\n");
        at.push(start.elapsed().as_secs());
    }
    assert!(matches!(at[..], [120..=123, 180..=184, 198]), "{at:?}");
    assert_eq!(start.elapsed().as_secs(), 200);
    assert_eq!(ended(opened), "deadline");
}

#[tokio::test(start_paused = true)]
async fn a_very_short_watch_gets_no_bookmark() {
    let cache = cache();
    let mut opened = open(&cache, WatchStart::After(ResourceVersion(7)), Some(2), false);
    cache.apply(vec![Change::Progress(ResourceVersion(9))], Now::default());
    assert_eq!(text(&mut opened.stream).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_watch_without_a_time_out_lasts_30_to_60_minutes() {
    let cache = cache();
    let start = Instant::now();
    let mut opened = open(&cache, WatchStart::Now, None, false);
    assert_eq!(text(&mut opened.stream).await, None);
    let lasted = start.elapsed();
    assert!(
        (Duration::from_secs(1800)..=Duration::from_secs(3600)).contains(&lasted),
        "{lasted:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_drained_watch_ends_at_once_but_not_in_its_first_second() {
    let cache = cache();
    for (age, ends_after) in [(0, 1000), (400, 600), (5000, 0)] {
        let mut opened = open(&cache, WatchStart::Now, None, false);
        assert!(opened.stream.next().now_or_never().is_none());
        tokio::time::sleep(Duration::from_millis(age)).await;
        let started = Instant::now();
        opened.drain().await;
        assert_eq!(text(&mut opened.stream).await, None);
        let took = started.elapsed().as_millis();
        assert!((ends_after..=ends_after + 1).contains(&took), "{took} at the age of {age} ms");
        assert_eq!(ended(opened), "shutdown");
    }
}

/// A watch whose filter selects nothing gets no event for hours. Without the bookmark it would
/// resume from its beginning, or from the last bookmark, a minute back.
#[tokio::test(start_paused = true)]
async fn a_drained_watch_resumes_from_a_last_bookmark_if_it_may_get_one() {
    for (allowed, expected) in [(true, Some("BOOKMARK 9\n".to_owned())), (false, None)] {
        let cache = cache();
        let nothing = WatchFilter { name: Some("none".into()), ..WatchFilter::default() };
        let after = WatchStart::After(ResourceVersion(7));
        let mut opened = open_with(&cache, nothing, after, None, (false, allowed));
        assert!(opened.stream.next().now_or_never().is_none());
        tokio::time::sleep(WATCH_AGE_MIN).await;
        cache.apply(vec![Change::Upsert(object("z", 9))], Now::default());
        opened.drain().await;
        assert_eq!(text(&mut opened.stream).await, expected);
        assert_eq!(text(&mut opened.stream).await, None);
        assert_eq!(ended(opened), "shutdown");
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_bookmark_of_a_drained_watch_follows_its_pending_events() {
    let cache = cache();
    let mut opened = open(&cache, WatchStart::After(ResourceVersion(7)), None, false);
    tokio::time::sleep(WATCH_AGE_MIN).await;
    cache.apply(vec![Change::Upsert(object("z", 8))], Now::default());
    cache.apply(vec![Change::Progress(ResourceVersion(9))], Now::default());
    opened.drain().await;
    assert!(text(&mut opened.stream).await.unwrap().contains("ADDED"));
    assert_eq!(text(&mut opened.stream).await.unwrap(), "BOOKMARK 9\n");
    assert_eq!(text(&mut opened.stream).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_drained_watch_without_progress_gets_no_bookmark() {
    let cache = cache();
    let mut opened = open(&cache, WatchStart::After(ResourceVersion(7)), None, false);
    opened.drain().await;
    assert_eq!(text(&mut opened.stream).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_drain_ends_a_watch_even_if_events_never_pause() {
    let cache = cache();
    let mut opened = open(&cache, WatchStart::Now, None, false);
    tokio::time::sleep(WATCH_AGE_MIN).await;
    let started = Instant::now();
    opened.drain().await;
    let mut at = 8;
    loop {
        cache.apply(vec![Change::Upsert(object("z", at))], Now::default());
        if text(&mut opened.stream).await.is_none() {
            break;
        }
        tokio::time::advance(Duration::from_millis(10)).await;
        at += 1;
    }
    assert!(started.elapsed() <= Duration::from_millis(1020), "{:?}", started.elapsed());
    assert_eq!(ended(opened), "shutdown");
}

#[tokio::test(start_paused = true)]
async fn a_relist_ends_the_watch_after_its_pending_events() {
    let cache = cache();
    let mut opened = open(&cache, WatchStart::After(ResourceVersion(7)), None, false);
    cache.apply(vec![Change::Upsert(object("z", 8))], Now::default());
    cache.replace(Vec::new(), ResourceVersion(20));
    assert!(text(&mut opened.stream).await.unwrap().contains("ADDED"));
    assert_eq!(text(&mut opened.stream).await, None);
    assert_eq!(ended(opened), "relist");
}

/// Returns a revocation that the sender triggers, and the number of its polls.
fn revocation() -> (tokio::sync::oneshot::Sender<()>, WatchEnd, Arc<AtomicUsize>) {
    let (revoke, mut revoked) = tokio::sync::oneshot::channel::<()>();
    let polls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&polls);
    let revoked = std::future::poll_fn(move |context| {
        counted.fetch_add(1, Ordering::Relaxed);
        revoked.poll_unpin(context).map(drop)
    });
    (revoke, Box::pin(revoked), polls)
}

/// Counts how often its task was woken.
#[derive(Default)]
struct Task(AtomicUsize);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn poll(stream: &mut WatchStream<Fake>, task: &Arc<Task>) -> Poll<Option<Rope>> {
    stream.poll_next_unpin(&mut Context::from_waker(&Waker::from(Arc::clone(task))))
}

#[tokio::test(start_paused = true)]
async fn no_event_is_sent_after_a_revocation() {
    let cache = cache();
    let (revoke, revoked, polls) = revocation();
    let mut opened = open(&cache, WatchStart::Now, None, false);
    opened.stream = opened.stream.with_ends(Some(revoked), None);
    // An event is always pending when the client polls, so that its watch never waits.
    for at in 8..100 {
        cache.apply(vec![Change::Upsert(object("z", at))], Now::default());
        assert!(text(&mut opened.stream).await.unwrap().contains(&format!("\"{at}\"")));
    }
    assert_eq!(polls.load(Ordering::Relaxed), 1, "it is polled only when it is woken");
    cache.apply(vec![Change::Upsert(object("z", 100))], Now::default());
    revoke.send(()).unwrap();
    assert_eq!(text(&mut opened.stream).await, None);
    assert_eq!(text(&mut opened.stream).await, None);
    assert_eq!(ended(opened), "forbidden");
}

#[tokio::test(start_paused = true)]
async fn a_revocation_drops_pending_frames() {
    let cache = cache();
    let (revoke, revoked, _) = revocation();
    let mut opened = open(&cache, WatchStart::After(ResourceVersion(7)), None, false);
    opened.stream = opened.stream.with_ends(Some(revoked), None);
    // The batch has at least two pieces.
    let long = "x".repeat(JOINED_BYTES_MAX);
    cache.apply(vec![Change::Upsert(object(&long, 8))], Now::default());
    cache.apply(vec![Change::Upsert(object("z", 9))], Now::default());
    assert!(text(&mut opened.stream).await.unwrap().contains(&long));
    revoke.send(()).unwrap();
    assert_eq!(text(&mut opened.stream).await, None);
}

#[tokio::test(start_paused = true)]
async fn the_last_task_that_polled_is_woken_by_events_and_timers() {
    let cache = cache();
    let (revoke, revoked, _) = revocation();
    let mut opened = open(&cache, WatchStart::Now, Some(3), false);
    opened.stream = opened.stream.with_ends(Some(revoked), None);
    let tasks = [(); 4].map(|()| Arc::new(Task::default()));
    let woken = || tasks.each_ref().map(|task| task.0.load(Ordering::Relaxed));
    assert!(poll(&mut opened.stream, &tasks[0]).is_pending());
    assert!(poll(&mut opened.stream, &tasks[1]).is_pending());
    cache.apply(vec![Change::Upsert(object("z", 8))], Now::default());
    // A task that does not poll again is not woken again.
    cache.apply(vec![Change::Upsert(object("z", 9))], Now::default());
    assert_eq!(woken(), [0, 1, 0, 0]);
    assert!(poll(&mut opened.stream, &tasks[2]).is_ready());
    assert!(poll(&mut opened.stream, &tasks[2]).is_pending());
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(woken(), [0, 1, 1, 0], "the bookmark is due");
    assert!(poll(&mut opened.stream, &tasks[2]).is_ready());
    assert!(poll(&mut opened.stream, &tasks[3]).is_pending());
    revoke.send(()).unwrap();
    assert_eq!(woken(), [0, 1, 1, 1]);
    assert!(matches!(poll(&mut opened.stream, &tasks[3]), Poll::Ready(None)));
}

#[tokio::test(start_paused = true)]
async fn the_watch_ends_in_time_even_if_events_never_pause() {
    let cache = cache();
    let start = Instant::now();
    let mut opened = open(&cache, WatchStart::Now, Some(200), false);
    let mut at = 8;
    loop {
        cache.apply(vec![Change::Upsert(object("z", at))], Now::default());
        let Some(event) = text(&mut opened.stream).await else { break };
        assert!(event.contains(&format!("\"{at}\"")), "{event}");
        tokio::time::advance(Duration::from_secs(1)).await;
        at += 1;
    }
    assert_eq!(ended(opened), "deadline");
    assert!((200..=201).contains(&start.elapsed().as_secs()));
}

#[tokio::test(start_paused = true)]
async fn the_delay_of_one_in_64_deliveries_is_observed() {
    let cache = cache();
    let mut opened = open(&cache, WatchStart::After(ResourceVersion(7)), None, false);
    let observed = opened.stream.bookmarks.clone();
    for at in 8..8 + 3 * u64::from(DELIVERIES_PER_SAMPLE) {
        cache.apply(vec![Change::Upsert(object("x", at))], Now(Duration::from_secs(at)));
        text(&mut opened.stream).await.unwrap();
    }
    let observed = observed.0.lock().clone();
    assert_eq!(observed.len(), 3);
    // The times are those of the observed events.
    let gaps: Vec<_> = observed.windows(2).map(|pair| (pair[1].0 - pair[0].0).as_secs()).collect();
    assert_eq!(gaps, [u64::from(DELIVERIES_PER_SAMPLE); 2]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_what_another_server_serves_now_ends_expired() {
    let cache = cache();
    let mut opened = open(&cache, WatchStart::InitialEvents, None, true);
    cache.close(EndCause::Aggregated);
    assert_eq!(text(&mut opened.stream).now_or_never().unwrap().unwrap(), "ERROR 410 7\n");
    assert_eq!(text(&mut opened.stream).now_or_never().unwrap(), None);
    assert_eq!(ended(opened), "aggregated");
}
