//! What changes while it is watched: pods, or one config map where a watch's memory is looked for, since a cache of one object has freed
//! nothing that watches could take up unseen. Each change tells in an annotation when it was made.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::client::{Ask, Connection, Protocol};
use crate::pods::{self, PODS};
use crate::server::Server;

/// Carries the time of the last change, so many digits; there from the start, so that sizes stay.
pub(crate) const SENT: &str = "weir.dev/compare-sent";
pub(crate) const SENT_DIGITS: usize = 16;

/// Watches are open for longer than this when the first change is made; a smaller number in its place, in microseconds, is no time.
pub(crate) const EARLIEST: u64 = 1_000_000;

/// Nothing is changed twice within so many changes, and neighbours are of different nodes.
const STEP: usize = 37;

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Watchable {
    Pods,
    ConfigMaps,
}

impl Watchable {
    fn collection(self) -> &'static str {
        match self {
            Self::Pods => "/api/v1/pods",
            Self::ConfigMaps => "/api/v1/configmaps",
        }
    }

    /// A watch of all of them, from a revision on.
    pub(crate) fn watch(self, from: &str, selector: &str) -> String {
        let collection = self.collection();
        format!("{collection}?watch=1&resourceVersion={from}&timeoutSeconds=3600{selector}")
    }

    fn touch(self, upstream: &Server, index: usize, sent: u64) -> Ask {
        let sent = format!("{sent:0SENT_DIGITS$}");
        let body = json!({"metadata": {"annotations": {SENT: sent}}}).to_string();
        let path = match self {
            Self::Pods => pods::path(index * STEP % PODS),
            Self::ConfigMaps => {
                format!("/api/v1/namespaces/{}/configmaps/weir-compare", pods::namespace(0))
            }
        };
        let merge_patch = Some("application/merge-patch+json");
        Ask::with_body(upstream, Method::PATCH, &path, merge_patch, body.into())
    }

    /// The revision of a change just made, so that every cache of them will get there.
    pub(crate) async fn latest(self, upstream: &Server, connection: &Connection) -> String {
        // What changes nothing makes no revision.
        let ask = self.touch(upstream, 0, fastrand::u64(..EARLIEST));
        let (code, body) = connection.collect(&ask).await;
        assert!(code.is_success(), "{code}");
        let object: Value = serde_json::from_slice(&body).expect("an object");
        let revision = object.pointer("/metadata/resourceVersion").and_then(Value::as_str);
        revision.expect("it has one").to_owned()
    }
}

/// Makes changes at a steady rate.
pub(crate) struct Writer<'a> {
    upstream: &'a Server,
    connection: Connection,
    what: Watchable,
    epoch: Instant,
}

impl<'a> Writer<'a> {
    pub(crate) async fn new(upstream: &'a Server, what: Watchable) -> Self {
        let connection = Connection::open(upstream, Protocol::Http2).await;
        Self { upstream, connection, what, epoch: Instant::now() }
    }

    /// Since when times are counted.
    pub(crate) fn epoch(&self) -> Instant {
        self.epoch
    }

    pub(crate) async fn latest(&self) -> String {
        self.what.latest(self.upstream, &self.connection).await
    }

    /// So many a second, none waiting for another; how many. What the upstream can't take in time comes later, and not twice as fast.
    pub(crate) async fn write(&self, rate: f64, time: Duration) -> usize {
        let mut ticks = interval(Duration::from_secs_f64(1.0 / rate));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (start, mut written, mut tasks) = (Instant::now(), 0, Vec::new());
        while start.elapsed() < time {
            ticks.tick().await;
            let ask = self.what.touch(self.upstream, written, micros(self.epoch));
            let connection = self.connection.clone();
            tasks.push(tokio::spawn(async move { connection.count(&ask).await.code }));
            written += 1;
        }
        for task in tasks {
            let code = task.await.expect("it ends");
            assert!(code.is_success(), "{code}");
        }
        written
    }
}

pub(crate) fn micros(epoch: Instant) -> u64 {
    u64::try_from(epoch.elapsed().as_micros()).expect("it is short")
}
