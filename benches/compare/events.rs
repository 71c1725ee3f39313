//! Those who see changes: readers that count events and, some of them, tell when they came.

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

/// What readers saw, of one server.
#[derive(Default)]
pub(crate) struct Seen {
    deliveries: AtomicUsize,
    /// When a change was made, and when it came, in microseconds.
    times: Mutex<Vec<(u64, u64)>>,
}

impl Seen {
    pub(crate) fn deliveries(&self) -> usize {
        self.deliveries.load(Ordering::Relaxed)
    }

    /// In milliseconds, from the change, and from when another saw it.
    pub(crate) fn lags(&self, reference: &Self) -> (Vec<f64>, Vec<f64>) {
        let times = self.times.lock();
        let first: HashMap<u64, u64> = reference.times.lock().iter().copied().collect();
        let since = |from: u64, to: u64| (to as f64 - from as f64) / 1e3;
        let lag = times.iter().map(|&(sent, came)| since(sent, came)).collect();
        let beyond = times.iter().filter_map(|(sent, came)| Some(since(*first.get(sent)?, *came)));
        (sorted(lag), sorted(beyond.collect()))
    }
}

/// One watch.
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

    /// Reads until it is aborted, or the server ends it: one that is slow, as all are on a busy machine, is dropped.
    pub(crate) async fn run(mut self, seen: Arc<Seen>) {
        while let Some(Ok(frame)) = self.response.body_mut().frame().await {
            let data = frame.into_data().unwrap_or_default();
            let events = self.frames.count(&data);
            seen.deliveries.fetch_add(events, Ordering::Relaxed);
            if let Some(finder) = &self.sent {
                let came = micros(self.epoch);
                let times = finder.find_iter(&data).filter_map(|at| sent(&data, at + SENT.len()));
                seen.times.lock().extend(times.filter(|it| *it >= EARLIEST).map(|it| (it, came)));
            }
        }
    }
}

/// The time in an annotation's value, which follows its key after a few bytes that are no digits; managedFields have the key alone.
fn sent(data: &Bytes, after_key: usize) -> Option<u64> {
    let rest = data.get(after_key..)?;
    let start = rest.iter().take(4).position(u8::is_ascii_digit)?;
    let digits = std::str::from_utf8(rest.get(start..start + SENT_DIGITS)?).ok()?;
    digits.parse().ok()
}

/// Where events end.
enum Frames {
    /// At each line.
    Json,
    /// After so many bytes, as four bytes before them say.
    Protobuf { left: usize, length: Vec<u8> },
}

impl Frames {
    /// How many ended in these bytes.
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
