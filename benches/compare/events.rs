//! Readers of watches. They count events, and some of them record arrival times.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::Response;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use memchr::memmem::Finder;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::changes::{EARLIEST, SENT, SENT_DIGITS, micros};
use crate::results::sorted;

/// The events that all readers of one server received.
#[derive(Default)]
pub(crate) struct Observations {
    deliveries: AtomicUsize,
    /// The time of each change and of its arrival, in microseconds.
    times: Mutex<Vec<(u64, u64)>>,
}

impl Observations {
    pub(crate) fn deliveries(&self) -> usize {
        self.deliveries.load(Ordering::Relaxed)
    }

    /// Returns the sorted lags in milliseconds: from the change until its arrival here, and from
    /// its arrival at `reference` until its arrival here.
    pub(crate) fn lags(&self, reference: &Self) -> (Vec<f64>, Vec<f64>) {
        let times = self.times.lock();
        let first: HashMap<u64, u64> = reference.times.lock().iter().copied().collect();
        let since = |from: u64, to: u64| (to as f64 - from as f64) / 1e3;
        let lag = times.iter().map(|&(sent, came)| since(sent, came)).collect();
        let beyond = times.iter().filter_map(|(sent, came)| Some(since(*first.get(sent)?, *came)));
        (sorted(lag), sorted(beyond.collect()))
    }
}

/// The reader of one watch.
pub(crate) struct Reader {
    response: Response<Incoming>,
    frames: Frames,
    epoch: Instant,
    sent: Option<Finder<'static>>,
}

impl Reader {
    pub(crate) fn new(
        response: Response<Incoming>,
        protobuf: bool,
        samples: bool,
        epoch: Instant,
    ) -> Self {
        let frames =
            if protobuf { Frames::Protobuf { left: 0, length: Vec::new() } } else { Frames::Json };
        let sent = samples.then(|| Finder::new(SENT));
        Self { response, frames, epoch, sent }
    }

    /// Reads until the task is aborted or the server ends the watch. Servers end slow watches, and
    /// on a busy machine any watch can be slow.
    pub(crate) async fn run(mut self, observations: Arc<Observations>) {
        while let Some(Ok(frame)) = self.response.body_mut().frame().await {
            let data = frame.into_data().unwrap_or_default();
            let events = self.frames.count(&data);
            observations.deliveries.fetch_add(events, Ordering::Relaxed);
            if let Some(finder) = &self.sent {
                let came = micros(self.epoch);
                let times = finder.find_iter(&data).filter_map(|at| sent(&data, at + SENT.len()));
                observations.times.lock().extend(
                    times.filter(|written| *written >= EARLIEST).map(|written| (written, came)),
                );
            }
        }
    }
}

/// Parses the time in the annotation's value, which follows the key after at most three bytes that
/// are not digits. Returns `None` for the key in managedFields, which has no value.
fn sent(data: &Bytes, after_key: usize) -> Option<u64> {
    let rest = data.get(after_key..)?;
    let start = rest.iter().take(4).position(u8::is_ascii_digit)?;
    let digits = std::str::from_utf8(rest.get(start..start + SENT_DIGITS)?).ok()?;
    digits.parse().ok()
}

/// The framing of events.
enum Frames {
    /// Each event is a line.
    Json,
    /// A length of four bytes precedes each event. `left` is the rest of the current event,
    /// `length` the part of the next length that has arrived.
    Protobuf { left: usize, length: Vec<u8> },
}

impl Frames {
    /// Returns the number of events that end in `data`.
    fn count(&mut self, mut data: &[u8]) -> usize {
        let Self::Protobuf { left, length } = self else {
            return memchr::memchr_iter(b'\n', data).count();
        };
        let mut ended = 0;
        while !data.is_empty() {
            if *left == 0 {
                let (some, rest) = data.split_at(data.len().min(4 - length.len()));
                length.extend_from_slice(some);
                data = rest;
                let Ok(bytes) = <[u8; 4]>::try_from(length.as_slice()) else { continue };
                *left = u32::from_be_bytes(bytes) as usize;
                length.clear();
            } else {
                let read = data.len().min(*left);
                *left -= read;
                data = data.get(read..).unwrap_or_default();
                ended += usize::from(*left == 0);
            }
        }
        ended
    }
}
