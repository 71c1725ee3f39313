//! How many events one cache takes: 100,000 config maps of 1 KB in protobuf, which an upstream in
//! this process changes faster and faster, and a Weir process. A watch of one of them shows how
//! late each of its events is.
//!
//! A simulator answers everything but the changes. These are copies of one frame with other digits,
//! so that they cost the upstream little, and come many in a chunk.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use memchr::memmem;
use serde_json::json;
use tokio::time::{Instant, sleep};
use weir::codec::protobuf::wire::push_head;
use weir::codec::protobuf::{UNKNOWN_RAW_TAG, UNKNOWN_TAIL, envelope_head};
use weir::simulator::{Simulator, SimulatorOptions};

use crate::client::{Connection, connect, is_hit};
use crate::curve::{Curve, Law, Series};
use crate::testbed::block_on;
use crate::upstream::{NEVER, Watches};
use crate::weir_process::Weir;

const RATES: [usize; 5] = [1_000, 10_000, 50_000, 100_000, 200_000];
const TIME: Duration = Duration::from_secs(5);
const OBJECTS: usize = 100_000;
const COLLECTION: &str = "/api/v1/configmaps";
/// The most events of one chunk, and the most chunks that wait for the connection: what waits
/// longer is not offered yet.
const CHUNK_MAX: usize = 256;
const CHUNKS_MAX: usize = 4;
/// One of this number of chunks begins with an event of the object that is watched.
const CHUNKS_PER_WATCHED: usize = 10;

pub(crate) fn cost() -> Curve {
    block_on(async {
        let options = SimulatorOptions { bookmark_interval: NEVER, ..SimulatorOptions::default() };
        let simulator = Simulator::start(options).await.expect("a simulator");
        for number in 0..OBJECTS {
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": format!("cm-{number:06}"), "namespace": "default"},
                "data": {"text": "x".repeat(TEXT_BYTES)}});
            simulator.store().create(object).expect("the object is created");
        }
        let watches = Arc::new(Watches::of(COLLECTION, CHUNKS_MAX));
        let kubeconfig = watches.serve(&simulator).await;
        let weir = Weir::start(&kubeconfig, json!({"cache": {"verify": "off"}})).await;
        let mut watch = watch_one(weir.address).await;
        let source = Arc::new(Source { watches, frame: Frame::new(), epoch: Instant::now() });
        let (mut cpu, mut applied, mut late) = (Vec::new(), Vec::new(), Vec::new());
        let (mut longest, mut made) = (Vec::new(), FIRST_VERSION);
        for rate in RATES {
            let (before, start, source) = (weir.cpu(), Instant::now(), Arc::clone(&source));
            let epoch = source.epoch;
            let write = move || source.change(rate, made);
            let written = tokio::task::spawn_blocking(write);
            let mut lags = read_until_done(&mut watch, epoch).await;
            let seconds = start.elapsed().as_secs_f64();
            let events = written.await.expect("the writer ends");
            made += events as u64;
            lags.sort_by(f64::total_cmp);
            let (x, events) = (rate as f64, events as f64);
            cpu.push((x, (weir.cpu() - before).as_secs_f64() * 1e6 / events));
            applied.push((x, events / seconds));
            late.push((x, lags.get(lags.len() * 99 / 100).copied().unwrap_or(f64::NAN)));
            longest.push((x, lags.last().copied().unwrap_or(f64::NAN)));
        }
        Curve {
            title: "Events of one cache of 100,000 objects of 1 KB",
            x: "events offered a second",
            y: "µs of CPU, events a second, or ms",
            series: vec![
                Series::new("an event, µs", Some(Law::Constant), cpu),
                Series::new("applied a second", None, applied),
                Series::new("p99 from the offer to a watch of one object, ms", None, late),
                Series::new("the longest, ms", None, longest),
            ],
        }
    })
}

/// The source of the changes.
struct Source {
    watches: Arc<Watches>,
    frame: Frame,
    epoch: Instant,
}

impl Source {
    /// Offers `rate` changes a second, or as many as are taken, and returns their number. The last
    /// one, of the watched object, is [`DONE`].
    fn change(&self, rate: usize, first_version: u64) -> usize {
        let (start, mut written) = (Instant::now(), 0);
        for round in 0.. {
            let is_last = start.elapsed() >= TIME;
            let due = (start.elapsed().as_secs_f64() * rate as f64) as usize;
            let (mut chunk, micros) = (Vec::new(), self.epoch.elapsed().as_micros() as u64);
            let events = if is_last { 1 } else { (due - written).min(CHUNK_MAX) };
            for number in 0..events {
                let is_watched = is_last || (number == 0 && round % CHUNKS_PER_WATCHED == 0);
                let index = if is_watched { 0 } else { 1 + written * 37 % (OBJECTS - 1) };
                let micros = if is_last { DONE } else { micros };
                let version = first_version + written as u64;
                self.frame.write(&mut chunk, [index as u64, version, micros]);
                written += 1;
            }
            if events > 0 {
                self.watches.send(&chunk.into());
            }
            if is_last {
                break;
            }
            if written >= due {
                std::thread::park_timeout(Duration::from_micros(500));
            }
        }
        written
    }
}

/// The frame of which all are copies.
struct Frame {
    bytes: Vec<u8>,
    /// The digits of an object's name, its resourceVersion, and the time of the change.
    offsets: [(usize, usize); 3],
}

impl Frame {
    fn new() -> Self {
        let metadata = [
            field(0x0a, b"cm-424242"),
            field(0x1a, b"default"),
            field(0x2a, b"0da57b8d-9045-4653-aa5e-7ee52be0dccd"),
            field(0x32, VERSION),
        ];
        let text = [CHANGED, MICROS, "x".repeat(TEXT_BYTES).as_bytes()].concat();
        let pair = [field(0x0a, b"text"), field(0x12, &text)].concat();
        let raw = [field(0x0a, &metadata.concat()), field(0x12, &pair)].concat();
        let raw = field(UNKNOWN_RAW_TAG, &raw);
        let object = [&envelope_head("v1", "ConfigMap"), &raw, UNKNOWN_TAIL].concat();
        let event = [field(0x0a, b"MODIFIED"), field(0x12, &field(0x0a, &object))].concat();
        let length = u32::try_from(event.len()).expect("it is small").to_be_bytes();
        let bytes = [&length[..], &event].concat();
        let offset =
            |digits: &[u8]| (memmem::find(&bytes, digits).expect("the frame has it"), digits.len());
        Self { offsets: [offset(b"424242"), offset(VERSION), offset(MICROS)], bytes }
    }

    /// Appends a copy with these numbers.
    fn write(&self, chunk: &mut Vec<u8>, numbers: [u64; 3]) {
        let begin = chunk.len();
        chunk.extend_from_slice(&self.bytes);
        for ((offset, length), mut number) in self.offsets.into_iter().zip(numbers) {
            let at = begin + offset;
            let digits = chunk.get_mut(at..at + length).expect("the offset is inside the frame");
            for digit in digits.iter_mut().rev() {
                *digit = b'0' + (number % 10) as u8;
                number /= 10;
            }
        }
    }
}

fn field(tag: u8, value: &[u8]) -> Vec<u8> {
    let mut field = Vec::new();
    push_head(&mut field, tag, value.len());
    [field, value.to_vec()].concat()
}

/// Waits until Weir has the objects, and watches the first of them.
async fn watch_one(weir: SocketAddr) -> Response<Incoming> {
    let connection = connect(weir).await;
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let list = get(&connection, weir, "?resourceVersion=0&limit=1").await;
        let hit = is_hit(&list);
        list.into_body().collect().await.expect("a body");
        if hit {
            break;
        }
        assert!(Instant::now() < deadline, "no response from the cache within a minute");
        sleep(Duration::from_millis(50)).await;
    }
    let selector = "?watch=1&timeoutSeconds=3600&fieldSelector=metadata.name%3Dcm-000000";
    let watch = get(&connection, weir, &format!("{selector}&resourceVersion=0")).await;
    assert!(is_hit(&watch), "{:?}", watch.headers());
    watch
}

async fn get(connection: &Connection, weir: SocketAddr, query: &str) -> Response<Incoming> {
    let request = Request::get(format!("http://{weir}{COLLECTION}{query}"))
        .header("accept", "application/vnd.kubernetes.protobuf")
        .body(Empty::<Bytes>::new());
    let mut connection = connection.clone();
    connection.ready().await.expect("a free stream");
    connection.send_request(request.expect("a request")).await.expect("a response")
}

/// Reads the watch until the last change. Returns the milliseconds from each change on.
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
            if micros == DONE {
                return lags;
            }
            lags.push(now - micros as f64 / 1e3);
        }
    }
}

/// Fills an object up to 1 KB.
const TEXT_BYTES: usize = 850;
const VERSION: &[u8] = b"818181818";
/// Above those of the simulator, with as many digits as [`VERSION`].
const FIRST_VERSION: u64 = 100_000_000;
/// Before the time of a change, in microseconds.
const CHANGED: &[u8] = b"changed=";
const MICROS: &[u8] = b"7373737373737373";
const DONE: u64 = 9_999_999_999_999_999;
