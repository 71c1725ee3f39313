//! The counted cases: the main paths. Each case prepares its data before counting starts.

use std::hint::black_box;
use std::sync::Arc;

use http::header::{ACCEPT, ACCEPT_ENCODING};
use http::{HeaderMap, HeaderValue, Method};
use weir::api::list_options::ListOptions;
use weir::api::media_type::{self, Encoding, View};
use weir::api::request_info::RequestInfo;
use weir::api::resource::Shape;
use weir::api::selector::label::LabelSelector;
use weir::cache::core::snapshot::{PageRange, Snapshot};
use weir::cache::core::watch_cache::{Change, WatchCache};
use weir::cache::core::watcher::WatchFilter;
use weir::codec::frame::{self, EventType, FrameSplitter};
use weir::codec::gzip::segment_cache::SegmentCache;
use weir::codec::held_bytes::HeldBytes;
use weir::codec::ingest;
use weir::codec::object::Object;

use crate::caches::{NOW, cache, half_filter, next_frames, node_filter, watch};
use crate::flow_control;
use crate::lists;
use crate::pods::{PodId, Pods};
use crate::queues::Queues;

/// A path whose counts are divided by `times`, its number of operations.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) times: usize,
    pub(crate) run: Box<dyn FnMut()>,
}

/// The data that cases share.
struct Fixture {
    json: Pods,
    protobuf: Pods,
    /// Cases clone these, since constructing a pod is slow under callgrind.
    objects: Vec<Object>,
}

/// Constructs the cases one by one, so that only one of them is in memory.
pub(crate) fn every_case() -> impl Iterator<Item = Case> {
    let (json, protobuf) = (Pods::json(), Pods::protobuf());
    let fixture = Fixture { objects: json.objects(OBJECTS), json, protobuf };
    let makers: [fn(&Fixture) -> Case; 17] = [
        request,
        |data| decode(&data.json, "decode a pod, JSON"),
        |data| decode(&data.protobuf, "decode a pod, protobuf"),
        split,
        |data| apply(data, "apply an event, no watch", |_| Vec::new()),
        |data| apply(data, "apply an event, 2000 by node, 20 want it", watch_by_node),
        |data| apply(data, "apply an event, 2000 by label, none wants it", watch_by_label),
        |data| apply(data, "apply an event, 1000 of all", watch_all),
        frame,
        deliver,
        register,
        get,
        node,
        label,
        |data| encode(&data.json, "list, an object, JSON"),
        |data| encode(&data.protobuf, "list, an object, protobuf"),
        deflate,
    ];
    let of_flow_control: [fn() -> Case; 5] = [
        seats,
        || dispatch(DISPATCH, 1),
        || dispatch(DISPATCH_WIDE, 10),
        flow_control::cached,
        flow_control::forwarded,
    ];
    let of_flow_control = of_flow_control.into_iter().map(|make| make());
    makers.into_iter().map(move |make| make(&fixture)).chain(of_flow_control)
}

/// Enough repetitions to make the cost of one-time work negligible.
const TIMES: usize = 100;
const OBJECTS: usize = 1_000;

fn case(name: &'static str, times: usize, run: impl FnMut() + 'static) -> Case {
    Case { name, times, run: Box::new(run) }
}

fn repeated(name: &'static str, run: impl Fn() + 'static) -> Case {
    case(name, TIMES, move || (0..TIMES).for_each(|_| run()))
}

fn request(_: &Fixture) -> Case {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static(ACCEPTED));
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
    repeated("read a request", move || {
        let info = RequestInfo::parse(&Method::GET, PATH, QUERY);
        let options = ListOptions::decode(&info.query);
        let form = media_type::negotiate(&headers, &info.query, Shape::BuiltIn, info.verb);
        black_box((options, form, media_type::accepts_gzip(&headers)));
    })
}

/// The headers and query of a kubelet's informer.
const ACCEPTED: &str = "application/vnd.kubernetes.protobuf,application/json";
const PATH: &str = "/api/v1/pods";
const QUERY: &str =
    "fieldSelector=spec.nodeName%3Dnode-0017&labelSelector=app%3Dweb&limit=500&resourceVersion=0";

fn decode(pods: &Pods, name: &'static str) -> Case {
    let body = pods.bytes(PodId::nth(0));
    let (resource, representation) = (Arc::clone(&pods.resource), pods.representation);
    repeated(name, move || drop(black_box(ingest::object(&body, &resource, representation))))
}

fn split(fixture: &Fixture) -> Case {
    let object = fixture.json.object(PodId::nth(0));
    let frame = frame::encode(EventType::Modified, &object, View::Full);
    let (mut splitter, mut frames) = (FrameSplitter::new(Encoding::Json, 1 << 20), Vec::new());
    case("split a frame, JSON", TIMES, move || {
        for _ in 0..TIMES {
            splitter.push(frame.clone(), &mut frames).expect("a frame");
            frames.clear();
        }
    })
}

type Watchers = Vec<weir::cache::core::watcher::Watcher>;

fn apply(
    fixture: &Fixture,
    name: &'static str,
    watchers: impl Fn(&(&WatchCache, &Pods)) -> Watchers,
) -> Case {
    let pods = &fixture.json;
    let cache = cache(fixture.objects.clone());
    let watchers = watchers(&(&cache, pods));
    let mut changes: Vec<_> = (1..=TIMES)
        .map(|number| PodId::nth(number * 37 % OBJECTS).at(number as u64))
        .map(|id| Change::Upsert(pods.object(id)))
        .collect();
    case(name, TIMES, move || {
        black_box(&watchers);
        for change in changes.drain(..) {
            cache.apply(vec![change], NOW);
        }
    })
}

fn watch_by_node((cache, pods): &(&WatchCache, &Pods)) -> Watchers {
    (0..2_000).map(|number| watch(cache, node_filter(pods, number % 100))).collect()
}

fn watch_by_label((cache, _): &(&WatchCache, &Pods)) -> Watchers {
    let by_label = |number| WatchFilter {
        labels: LabelSelector::parse(&format!("half=of-{number}")).expect("a selector"),
        ..WatchFilter::default()
    };
    (0..2_000).map(|number| watch(cache, by_label(number))).collect()
}

fn watch_all((cache, _): &(&WatchCache, &Pods)) -> Watchers {
    (0..1_000).map(|_| watch(cache, WatchFilter::default())).collect()
}

fn frame(fixture: &Fixture) -> Case {
    let object = fixture.json.object(PodId::nth(0));
    repeated("encode a frame", move || {
        black_box(frame::encode(EventType::Modified, &object, View::Full));
    })
}

/// Delivers an event to watchers that find its frame encoded, as all but the first watcher do.
fn deliver(fixture: &Fixture) -> Case {
    let cache = cache(fixture.objects.clone());
    let mut watchers = watch_all(&(&cache, &fixture.json));
    let event = fixture.json.object(PodId::nth(0).at(1));
    cache.apply(vec![Change::Upsert(event)], NOW);
    assert_eq!(watchers.pop().map_or(0, |mut first| next_frames(&mut first).len()), 1);
    case("deliver an event to a watch", watchers.len(), move || {
        for watcher in &mut watchers {
            black_box(next_frames(watcher));
        }
    })
}

fn register(fixture: &Fixture) -> Case {
    let cache = cache(fixture.objects.clone());
    let filter = node_filter(&fixture.json, 17);
    repeated("begin and end a watch", move || drop(watch(&cache, filter.clone())))
}

fn get(fixture: &Fixture) -> Case {
    let cache = cache(fixture.objects.clone());
    let key = fixture.json.object(PodId::nth(500)).key;
    repeated("get an object", move || {
        let state = cache.state().expect("it is ready");
        black_box(state.get(&key));
    })
}

fn node(fixture: &Fixture) -> Case {
    select(fixture, "select 10 of 1000 by node", node_filter(&fixture.json, 17))
}

fn label(fixture: &Fixture) -> Case {
    select(fixture, "select 500 of 1000 by label", half_filter())
}

fn select(fixture: &Fixture, name: &'static str, filter: WatchFilter) -> Case {
    let cache = cache(fixture.objects.clone());
    let indexed = fixture.json.resource.selectable.indexed();
    let times = 10;
    case(name, times, move || {
        for _ in 0..times {
            let state = cache.state().expect("it is ready");
            let range = PageRange { indexed, ..PageRange::default() };
            black_box(Snapshot::latest(&state).page(&filter, &range));
        }
    })
}

fn encode(pods: &Pods, name: &'static str) -> Case {
    let objects = lists::shared(pods, 200);
    let times = objects.len();
    // The list is consumed, so the deallocation counts too.
    let mut list = Some(lists::encode(pods, objects));
    case(name, times, move || {
        black_box(list.take().map(lists::consume));
    })
}

/// Compresses a list that is slightly larger than the minimum size for compression.
fn deflate(fixture: &Fixture) -> Case {
    let objects = lists::shared(&fixture.json, 30);
    let times = objects.len();
    let mut list = Some(lists::encode(&fixture.json, objects));
    let segments = SegmentCache::new(0, HeldBytes::new(usize::MAX));
    case("deflate, an object", times, move || {
        black_box(list.take().map(|list| lists::compress_from(&segments, list)));
    })
}

const DISPATCH: &str = "start the next of 10000 in 1000 flows";
const DISPATCH_WIDE: &str = "the same, of 1 to 10 seats";
/// The most instructions of an optimized build.
pub(crate) const TARGETS: [(&str, f64); 2] = [(DISPATCH, 15_000.0), (DISPATCH_WIDE, 15_000.0)];

/// A forwarded request while nobody waits.
fn seats() -> Case {
    let mut queues = Queues::new(7, 1);
    case("take and give back seats", TIMES, move || (0..TIMES).for_each(|_| queues.pass()))
}

/// A request ends, the next one starts, and another one arrives.
fn dispatch(name: &'static str, widest: u64) -> Case {
    let mut queues = Queues::new(1_000, widest);
    queues.fill(10_000);
    case(name, STARTS, move || {
        let mut started = 0;
        while started < STARTS {
            started += queues.dispatch();
        }
    })
}

const STARTS: usize = 2_000;
