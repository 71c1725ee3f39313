//! Changes of objects while they are watched. Each change has its time in an annotation. The
//! objects are pods, or a single config map in rows that measure the memory of watches: a large
//! cache frees memory when it is filled, which watches would reuse, so that they would seem to need
//! none.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::client::{Connection, PreparedRequest, Protocol};
use crate::pods::{self, PODS};
use crate::server::Server;

/// The annotation with the time of the last change. Objects are created with it and its value
/// always has [`SENT_DIGITS`] digits, so that their size does not change.
pub(crate) const SENT: &str = "weir.dev/compare-sent";
pub(crate) const SENT_DIGITS: usize = 16;

/// The smallest value, in microseconds, that is a time. Smaller values are random and only make a
/// patch a change. Watches are open for longer than this before the first timed change.
pub(crate) const EARLIEST: u64 = 1_000_000;

/// The distance in [`pods::path`]'s order between consecutively changed pods, so that they are on
/// different nodes. It has no common factor with [`PODS`], so that all pods are changed before one
/// is changed again.
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

    /// Returns the path of a watch of the collection that starts after revision `from`.
    pub(crate) fn watch(self, from: &str, selector: &str) -> String {
        let collection = self.collection();
        format!("{collection}?watch=1&resourceVersion={from}&timeoutSeconds=3600{selector}")
    }

    fn touch(self, upstream: &Server, index: usize, sent: u64) -> PreparedRequest {
        let sent = format!("{sent:0SENT_DIGITS$}");
        let body = json!({"metadata": {"annotations": {SENT: sent}}}).to_string();
        let path = match self {
            Self::Pods => pods::path(index * STEP % PODS),
            Self::ConfigMaps => {
                format!("/api/v1/namespaces/{}/configmaps/weir-compare", pods::namespace(0))
            }
        };
        let merge_patch = Some("application/merge-patch+json");
        PreparedRequest::with_body(upstream, Method::PATCH, &path, merge_patch, body.into())
    }

    /// Makes a change and returns its revision, which every cache of the collection will reach.
    pub(crate) async fn latest(self, upstream: &Server, connection: &Connection) -> String {
        // A patch without effect creates no revision.
        let request = self.touch(upstream, 0, fastrand::u64(..EARLIEST));
        let (code, body) = connection.collect(&request).await;
        assert!(code.is_success(), "{code}");
        let object: Value = serde_json::from_slice(&body).expect("an object");
        let revision = object.pointer("/metadata/resourceVersion").and_then(Value::as_str);
        revision.expect("the object has a resourceVersion").to_owned()
    }
}

/// Makes changes at a steady rate.
pub(crate) struct Writer<'a> {
    upstream: &'a Server,
    connection: Connection,
    resource: Watchable,
    epoch: Instant,
}

impl<'a> Writer<'a> {
    pub(crate) async fn new(upstream: &'a Server, resource: Watchable) -> Self {
        let connection = Connection::open(upstream, Protocol::Http2).await;
        Self { upstream, connection, resource, epoch: Instant::now() }
    }

    /// Returns the instant that the times in changes are relative to.
    pub(crate) fn epoch(&self) -> Instant {
        self.epoch
    }

    pub(crate) async fn latest(&self) -> String {
        self.resource.latest(self.upstream, &self.connection).await
    }

    /// Sends `rate` changes per second for `time`, without waiting for responses, and returns their
    /// number. Missed ticks delay the later ones instead of causing a burst.
    pub(crate) async fn write(&self, rate: f64, time: Duration) -> usize {
        let mut ticks = interval(Duration::from_secs_f64(1.0 / rate));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (start, mut written, mut tasks) = (Instant::now(), 0, Vec::new());
        while start.elapsed() < time {
            ticks.tick().await;
            let request = self.resource.touch(self.upstream, written, micros(self.epoch));
            let connection = self.connection.clone();
            tasks.push(tokio::spawn(async move { connection.count(&request).await.code }));
            written += 1;
        }
        for task in tasks {
            let code = task.await.expect("the request ends");
            assert!(code.is_success(), "{code}");
        }
        written
    }
}

pub(crate) fn micros(epoch: Instant) -> u64 {
    u64::try_from(epoch.elapsed().as_micros()).expect("the run is short enough")
}
