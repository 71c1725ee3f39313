//! How many events one cache takes: 100,000 config maps of 1 KB, whose upstream offers events
//! faster and faster, and a Weir process. A watch of one of them shows how late its events are.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::Response;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use memchr::memmem;
use serde_json::json;
use tokio::time::{Instant, sleep};
use weir::api::resource::Representation;

use crate::client::{JSON, PROTOBUF, connect, get, is_hit};
use crate::curve::{Curve, Law, Series, percentile};
use crate::frames::{CHANGED, Kind, MICROS};
use crate::source::{COLLECTION, LIST_OF_ONE, Source};
use crate::testbed::block_on;
use crate::weir_process::Weir;

const RATES: [usize; 5] = [1_000, 10_000, 50_000, 100_000, 200_000];
const TIME: Duration = Duration::from_secs(5);
const OBJECTS: usize = 100_000;
const OBJECT_BYTES: usize = 1_000;
/// One of this number of events is of the object that is watched.
const EVENTS_PER_WATCHED: u64 = 1_000;
/// The time that the last event of a series has.
pub(crate) const DONE: u64 = 9_999_999_999_999_999;

/// Which events a series has, and how they come.
#[derive(Clone, Copy)]
struct Form {
    representation: Representation,
    is_tls: bool,
    /// Whether half are creations and half deletions.
    creates: bool,
}

const MODIFIED: Form =
    Form { representation: Representation::Protobuf, is_tls: false, creates: false };

/// The cost of a series of events.
struct Cost {
    cpu_us: f64,
    applied_per_s: f64,
    /// The milliseconds from the offer of an event to its arrival at a client, sorted.
    lags: Vec<f64>,
}

impl Cost {
    fn lag(&self, percent: usize) -> f64 {
        percentile(&self.lags, percent)
    }
}

/// The cost of an event by the rate at which events are offered.
pub(crate) fn cost() -> Curve {
    let names = ["JSON", "protobuf over TLS", "creations and deletions"];
    let forms = [
        Form { representation: Representation::Json, ..MODIFIED },
        Form { is_tls: true, ..MODIFIED },
        Form { creates: true, ..MODIFIED },
    ];
    let x = |index: usize| RATES.get(index).copied().unwrap_or_default() as f64;
    let points = |costs: &[Cost], y: &dyn Fn(&Cost) -> f64| {
        costs.iter().enumerate().map(|(index, cost)| (x(index), y(cost))).collect::<Vec<_>>()
    };
    let costs = measure(MODIFIED, &RATES);
    let mut series = vec![
        Series::new("protobuf", Some(Law::Constant), points(&costs, &|cost| cost.cpu_us)),
        Series::new(
            "its events applied a second",
            None,
            points(&costs, &|cost| cost.applied_per_s),
        ),
        Series::new("its p99 to a watch, ms", None, points(&costs, &|cost| cost.lag(99))),
        Series::new("its longest, ms", None, points(&costs, &|cost| cost.lag(100))),
    ];
    for (name, form) in names.into_iter().zip(forms) {
        let costs = measure(form, &RATES);
        series.push(Series::new(name, Some(Law::Constant), points(&costs, &|cost| cost.cpu_us)));
    }
    Curve {
        title: "An event of one cache of 100,000 objects of 1 KB",
        x: "events offered a second",
        y: "µs of CPU, if not named",
        series,
    }
}

/// The lag by the part of the rate that is the most.
pub(crate) fn lag() -> Curve {
    let most = measure(MODIFIED, &[usize::MAX / 1_000_000]);
    let most = most.first().map_or(0.0, |cost| cost.applied_per_s);
    let percents = [50, 80, 95];
    let costs =
        measure(MODIFIED, &percents.map(|percent| (most * percent as f64 / 100.0) as usize));
    let points = |percent: usize| {
        let pairs = percents.iter().zip(&costs);
        pairs.map(|(x, cost)| (*x as f64, cost.lag(percent))).collect()
    };
    Curve {
        title: "How late events are, by the rate",
        x: "percent of the most events a second",
        y: "ms",
        series: vec![
            Series::new("p50", None, points(50)),
            Series::new("p99", None, points(99)),
            Series::new("the longest", None, points(100)),
        ],
    }
}

/// Offers events at each of these rates.
fn measure(form: Form, rates: &[usize]) -> Vec<Cost> {
    block_on(async {
        let (source, kubeconfig) = Source::start(OBJECTS, OBJECT_BYTES, form.is_tls).await;
        let weir = Weir::start(&kubeconfig, json!({"cache": {"verify": "off"}})).await;
        let mut watch = watch_one(weir.address, form.representation).await;
        let mut costs = Vec::new();
        for rate in rates.iter().copied() {
            let (before, start) = (weir.cpu(), Instant::now());
            let event = move |number| event(form, number);
            let (events, lags) = change(&source, (rate, TIME), event, &mut watch).await;
            let (seconds, events) = (start.elapsed().as_secs_f64(), events as f64);
            let cpu_us = (weir.cpu() - before).as_secs_f64() * 1e6 / events;
            costs.push(Cost { cpu_us, applied_per_s: events / seconds, lags });
        }
        costs
    })
}

/// The n-th event: its type, and the number of its object.
fn event(form: Form, number: u64) -> (Kind, u64) {
    let objects = OBJECTS as u64;
    if number.is_multiple_of(EVENTS_PER_WATCHED) {
        return (Kind::Modified, 0);
    }
    if !form.creates {
        return (Kind::Modified, 1 + number * 37 % (objects - 1));
    }
    // Those that were created before are deleted in the same order.
    let block = number / 1_000;
    let kind = if block.is_multiple_of(2) { Kind::Added } else { Kind::Deleted };
    (kind, objects + block / 2 % 50 * 1_000 + number % 1_000)
}

/// Waits until Weir has the objects, and watches the first of them.
pub(crate) async fn watch_one(
    weir: SocketAddr,
    representation: Representation,
) -> Response<Incoming> {
    let connection = connect(weir).await;
    let accept = match representation {
        Representation::Protobuf => PROTOBUF,
        _ => JSON,
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let list = get(&connection, weir, accept, LIST_OF_ONE).await;
        let hit = is_hit(&list);
        list.into_body().collect().await.expect("a body");
        if hit {
            break;
        }
        assert!(Instant::now() < deadline, "no response from the cache within a minute");
        sleep(Duration::from_millis(50)).await;
    }
    let query =
        "watch=1&resourceVersion=0&timeoutSeconds=3600&fieldSelector=metadata.name%3Dcm-0000000";
    let watch = get(&connection, weir, accept, &format!("{COLLECTION}?{query}")).await;
    assert!(is_hit(&watch), "{:?}", watch.headers());
    watch
}

/// Offers `rate` events a second for `time`. Returns their number, and the milliseconds from each
/// of the first object until `watch` shows it, sorted.
pub(crate) async fn change(
    source: &Arc<Source>,
    (rate, time): (usize, Duration),
    event: impl Fn(u64) -> (Kind, u64) + Send + 'static,
    watch: &mut Response<Incoming>,
) -> (usize, Vec<f64>) {
    let writer = Arc::clone(source);
    let sent = tokio::task::spawn_blocking(move || writer.send(rate, time, event, DONE));
    let mut lags = read_until_done(watch, source.epoch()).await;
    lags.sort_by(f64::total_cmp);
    (sent.await.expect("the writer ends"), lags)
}

/// The n-th of events of which every second one is of the first of this number of objects.
pub(crate) fn every_second_is_of_first(objects: usize) -> impl Fn(u64) -> (Kind, u64) {
    move |number| {
        let object = if number.is_multiple_of(2) { 0 } else { number % objects as u64 };
        (Kind::Modified, object)
    }
}

/// Reads the watch until the last event. Returns the milliseconds from the offer of each on.
async fn read_until_done(watch: &mut Response<Incoming>, epoch: Instant) -> Vec<f64> {
    let mut lags = Vec::new();
    loop {
        let frame = watch.body_mut().frame().await.expect("the watch continues");
        let data = frame.expect("the watch continues").into_data().unwrap_or_default();
        let now = epoch.elapsed().as_secs_f64() * 1e3;
        for at in memmem::find_iter(&data, CHANGED) {
            let at = at + CHANGED.len();
            let digits = data.get(at..at + MICROS.len()).expect("a frame in one piece");
            let micros: u64 = String::from_utf8_lossy(digits).parse().expect("a number");
            match micros {
                DONE => return lags,
                // The object as it was when the watch began.
                0 => {}
                _ => lags.push(now - micros as f64 / 1e3),
            }
        }
    }
}
