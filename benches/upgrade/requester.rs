//! A reader or the writer: it sends one request after the other.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use crate::client::{Call, Client};
use crate::objects::{RESOURCES, TICKER, patch};
use crate::seen::Seen;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// GET of an object with `resourceVersion=0`, which a cache answers.
    CachedRead,
    /// GET of an object as it is now, which the API server answers.
    ForwardedRead,
    /// Patches the object that changes, of one resource after the other.
    Write,
}

pub(crate) struct Requester {
    kind: Kind,
    client: Client,
    /// The time between two requests.
    interval: Duration,
    seen: Arc<Seen>,
}

impl Requester {
    pub(crate) fn new(kind: Kind, client: Client, interval: Duration, seen: &Arc<Seen>) -> Self {
        Self { kind, client, interval, seen: Arc::clone(seen) }
    }

    /// Sends requests until the upgrade is over.
    pub(crate) async fn run(mut self) {
        let mut due = interval(self.interval);
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for number in (0..RESOURCES.len()).cycle() {
            due.tick().await;
            if self.seen.are_requests_stopped() {
                return;
            }
            self.send(number).await;
        }
    }

    async fn send(&mut self, number: usize) {
        let (Some(resource), Some(written)) =
            (RESOURCES.get(number), self.seen.written.get(number))
        else {
            return;
        };
        let path = format!("{}/{TICKER}", resource.namespaced());
        // A write without an answer is repeated as it was: if it was done, it changes nothing.
        let tick = written.load(Ordering::Relaxed) + 1;
        let call = match self.kind {
            Kind::CachedRead => Call::get(format!("{path}?resourceVersion=0")),
            Kind::ForwardedRead => Call::get(path),
            Kind::Write => Call {
                method: Method::PATCH,
                path,
                content_type: "application/merge-patch+json",
                body: Bytes::from(patch(tick).to_string()),
            },
        };
        let began = Instant::now();
        let repeated = self.client.repeated;
        let answer = timeout(TIMEOUT, self.client.fetch(&call)).await;
        let failure = match answer {
            Ok(Ok((code, _))) if code.is_success() => None,
            Ok(Ok((code, body))) => Some(format!("{code} {}", String::from_utf8_lossy(&body))),
            Ok(Err(error)) => Some(format!("{error}")),
            Err(_) => Some("no answer in time".to_owned()),
        };
        let repeated = self.client.repeated - repeated;
        if failure.is_none() && self.kind == Kind::Write {
            written.store(tick, Ordering::Relaxed);
        }
        self.seen.note(|figures| {
            figures.repeated += repeated;
            match failure {
                Some(failure) => figures.failed.push(format!("{:?}: {failure}", self.kind)),
                None => {
                    let took = began.elapsed().as_secs_f64() * 1e3;
                    figures.answered.entry(self.kind).or_default().push(took);
                }
            }
        });
    }
}

/// Longer than the client waits for a head: a request that it sends again has that time twice.
const TIMEOUT: Duration = Duration::from_secs(60);
