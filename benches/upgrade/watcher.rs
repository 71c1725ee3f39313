//! A client that goes on as client-go's reflector does (`tools/cache/reflector.go`). It lists, and
//! watches from there. A watch that ends cleanly, or with its connection, goes on from the last
//! resourceVersion. It lists again after a 410, after another error in the stream, after a watch
//! that ended within a second without any event, and if a watch can not be opened for another
//! reason than a refused connection, 429 or 500.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::{Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::sync::SemaphorePermit;
use tokio::time::{Instant, sleep};

use crate::client::{Call, Client};
use crate::h2_errors::reset;
use crate::objects::{RESOURCES, resource_version, tick};
use crate::seen::{Seen, is_quiet};

pub(crate) struct Watcher {
    number: usize,
    client: Client,
    /// The path of the collection.
    path: String,
    /// A selector, as a part of a query.
    selector: String,
    /// The resourceVersion that it has.
    after: u64,
    /// When its last watch ended.
    since: Instant,
    seen: Arc<Seen>,
}

/// The end of a watch, or of an attempt to open one.
enum End {
    /// Watch again from the last resourceVersion.
    Resume(&'static str),
    /// Wait, and watch again.
    Retry,
    /// List, for this reason.
    List(String),
}

impl Watcher {
    pub(crate) fn new(number: usize, client: Client, seen: Arc<Seen>) -> Self {
        let resource = RESOURCES.get(number % RESOURCES.len()).expect("a resource");
        let selector = match is_quiet(number) {
            true => format!("&fieldSelector=metadata.name%3Dquiet-{}", number % QUIET_NAMES),
            false => String::new(),
        };
        let since = Instant::now();
        Self { number, client, path: resource.path(), selector, after: 0, since, seen }
    }

    /// Lists and watches for ever. Returns the permit when the first watch is open.
    pub(crate) async fn run(mut self, permit: SemaphorePermit<'_>) {
        let mut permit = Some(permit);
        loop {
            if let Err(error) = self.list().await {
                self.note_late(&error);
                self.back_off().await;
                continue;
            }
            loop {
                match self.open().await {
                    Ok(body) => {
                        permit = None;
                        self.seen.opened(self.since.elapsed());
                        let end = self.read(body).await;
                        self.since = Instant::now();
                        match end {
                            End::Resume(how) => self.seen.closed(how),
                            End::Retry => self.seen.closed("with a retry"),
                            End::List(cause) => {
                                self.seen.closed("with an error");
                                self.note_list(cause);
                                break;
                            }
                        }
                    }
                    Err(End::List(cause)) => {
                        self.note_list(cause);
                        break;
                    }
                    Err(_) => {
                        self.seen.note(|figures| figures.retried += 1);
                        self.back_off().await;
                    }
                }
            }
            drop(permit.take());
            self.back_off().await;
        }
    }

    async fn open(&mut self) -> Result<Response<Incoming>, End> {
        let (path, selector, after) = (&self.path, &self.selector, self.after);
        // client-go: five to ten minutes.
        let seconds = fastrand::u32(300..600);
        let path = format!(
            "{path}?watch=1&allowWatchBookmarks=true&timeoutSeconds={seconds}&resourceVersion={after}{selector}"
        );
        let answer = self.client.send(&Call::get(path)).await;
        let response = answer.map_err(|error| {
            self.note_late(&error);
            match error.kind() {
                io::ErrorKind::ConnectionRefused => End::Retry,
                _ => End::List(format!("no watch: {error}")),
            }
        })?;
        let hit = response.headers().get("x-weir-cache");
        let is_hit = hit.is_some_and(|value| value.as_bytes().starts_with(b"hit"));
        match response.status() {
            StatusCode::OK => {
                self.seen.note(|figures| figures.forwarded += usize::from(!is_hit));
                Ok(response)
            }
            StatusCode::TOO_MANY_REQUESTS | StatusCode::INTERNAL_SERVER_ERROR => Err(End::Retry),
            code => Err(End::List(format!("no watch: {code}"))),
        }
    }

    /// Reads events until the watch ends.
    async fn read(&mut self, response: Response<Incoming>) -> End {
        let (mut body, mut text) = (response.into_body(), Vec::new());
        let (opened, mut events) = (Instant::now(), 0_usize);
        while let Some(frame) = body.frame().await {
            let frame = match frame {
                Ok(frame) => frame,
                Err(error) => match reset(&error).and_then(h2::Error::reason) {
                    Some(reason) => return End::List(format!("reset: {reason}")),
                    None => return End::Resume("with the connection"),
                },
            };
            text.extend_from_slice(frame.data_ref().map_or(&[], |data| &data[..]));
            while let Some(end) = memchr::memchr(b'\n', &text) {
                let rest = text.split_off(end + 1);
                let event = std::mem::replace(&mut text, rest);
                events += 1;
                if let Some(end) = self.take(&String::from_utf8_lossy(&event)) {
                    return end;
                }
            }
        }
        if events == 0 && opened.elapsed() < Duration::from_secs(1) {
            return End::List("a very short watch".to_owned());
        }
        End::Resume("cleanly")
    }

    /// Takes an event. Returns the end of the watch if it is an error.
    fn take(&mut self, event: &str) -> Option<End> {
        if event.starts_with(r#"{"type":"ERROR""#) {
            let is_expired = event.contains(r#""code":410"#);
            return Some(End::List(if is_expired { "410" } else { "an error event" }.to_owned()));
        }
        self.after = resource_version(event).unwrap_or(self.after);
        if !is_quiet(self.number)
            && event.contains(r#""name":"ticker""#)
            && let Some(tick) = tick(event)
        {
            self.seen.ticked(self.number, tick);
        }
        None
    }

    async fn list(&mut self) -> io::Result<()> {
        let version = self.after;
        let path = format!("{}?resourceVersion={version}{}", self.path, self.selector);
        let (code, body) = self.client.fetch(&Call::get(path)).await?;
        if !code.is_success() {
            return Err(io::Error::other(format!("list: {code}")));
        }
        let text = String::from_utf8_lossy(&body);
        self.after = resource_version(&text).unwrap_or(self.after);
        let ticker = text.split_once(r#""name":"ticker""#).and_then(|(_, rest)| tick(rest));
        if let Some(tick) = ticker {
            self.seen.listed(self.number, tick);
        }
        Ok(())
    }

    /// Counts a request as failed that Weir had and did not answer.
    fn note_late(&self, error: &io::Error) {
        if error.kind() == io::ErrorKind::TimedOut {
            let failure = format!("watcher {}: {error}", self.number);
            self.seen.note(|figures| figures.failed.push(failure));
        }
    }

    fn note_list(&self, cause: String) {
        self.seen.note(|figures| *figures.lists.entry(cause).or_default() += 1);
    }

    async fn back_off(&self) {
        sleep(BACK_OFF.mul_f64(1.0 + fastrand::f64())).await;
    }
}

/// client-go's first wait.
const BACK_OFF: Duration = Duration::from_millis(800);
/// The objects of a resource that are watched by name.
const QUIET_NAMES: usize = 10;
