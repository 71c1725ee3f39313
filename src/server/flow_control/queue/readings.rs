//! The requests that hold seats: how many of several seats there are, how large their responses
//! are, and how fast their clients read them.

use std::sync::Arc;

use http::StatusCode;
use http::response::Parts;

use super::{Inner, Queue, SeatHold};
use crate::flow::doctor::GZIP_RATIO;
use crate::flow::read_pace::{Pace, ReadPace};
use crate::flow::schedule::request::WideLoad;
use crate::server::flow_control::reading::{Reading, SeatedReading};
use crate::upstream::bounded::is_gzip;
use crate::upstream::pool::Body;

impl Queue {
    /// Waits until several requests of several seats run, or one waits for others to end. Returns
    /// their load.
    pub(in crate::server::flow_control) async fn until_wide(&self) -> WideLoad {
        loop {
            let load = self.inner.lock().scheduler.wide_load();
            if load.is_limited || load.seats > ONE_LIST {
                return load;
            }
            self.wide_began.notified().await;
        }
    }

    /// Returns the bytes of the response to a request of this kind, if there was one like it.
    pub(in crate::server::flow_control) fn expected_bytes(&self, kind: u64) -> Option<u64> {
        self.inner.lock().estimates.bytes(kind)
    }

    /// Looks at how fast responses are read. The seats of slow ones fall to one. Stalled ones are
    /// dropped while requests wait. Call this about once a second.
    pub(in crate::server::flow_control) fn tend(&self) {
        let now = self.began.elapsed();
        let mut stalled = Vec::new();
        let mut inner = self.inner.lock();
        let Inner { scheduler, readings, .. } = &mut *inner;
        let are_others = scheduler.waiting() > 0;
        for (number, seated) in readings.iter_mut() {
            let (read, waits_for_client) = seated.reading.progress();
            let pace = seated.pace.observe(now, read, waits_for_client);
            if pace >= Pace::Slow && !seated.is_narrow {
                seated.is_narrow = true;
                scheduler.narrow(now, &mut seated.ticket);
                self.metrics.slow_response("narrowed");
            }
            if pace == Pace::Stalled && are_others {
                stalled.push(*number);
            }
        }
        let dropped: Vec<Arc<Reading>> = stalled
            .into_iter()
            .filter_map(|number| {
                let seated = inner.readings.remove(&number)?;
                inner.scheduler.finish(now, seated.ticket);
                self.metrics.slow_response("dropped");
                Some(seated.reading)
            })
            .collect();
        self.settle(&mut inner, None);
        drop(inner);
        dropped.iter().for_each(|reading| reading.drop_body());
    }
}

impl SeatHold {
    /// Returns the number of seats.
    pub(crate) fn seats(&self) -> u64 {
        self.ticket.seats()
    }

    /// Returns the body of the response that holds these seats. The queue observes how fast it is
    /// read.
    pub(crate) fn read(&mut self, body: Body, head: &Parts) -> Arc<Reading> {
        let ratio = if is_gzip(&head.headers) { GZIP_RATIO as u64 } else { 1 };
        let expansion = (head.status == StatusCode::OK).then_some(ratio);
        let reading = Arc::new(Reading::new(body, expansion));
        self.follow(Arc::clone(&reading));
        reading
    }

    /// Has the queue observe how fast a response is read.
    pub(in crate::server::flow_control) fn follow(&mut self, reading: Arc<Reading>) {
        let mut inner = self.queue.inner.lock();
        inner.last_reading += 1;
        let number = inner.last_reading;
        let seated = SeatedReading {
            reading,
            pace: ReadPace::default(),
            ticket: self.ticket,
            is_narrow: false,
        };
        inner.readings.insert(number, seated);
        drop(inner);
        self.reading = Some(number);
    }
}

/// The seats of one list that a watch cache answers.
const ONE_LIST: u64 = 10;
