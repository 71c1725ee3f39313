//! The end of a forwarded watch when Weir drains, or when a cache can take over.
//!
//! Such a stream lasts at least half an hour, and the upstream does not know that Weir stops. Weir
//! ends it as the upstream ends its own watches when it stops: cleanly, between two events
//! (`docs/semantics.md` §5.7). That is when its connection starts to drain. This needs a format in
//! which the end of an event is visible: JSON and protobuf. Watches in other formats last until the
//! drain deadline.
//!
//! A watch that was forwarded because there was no cache ends in the same way when there is one
//! ([`crate::server::forward::claim`]).

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes};
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http_body::{Body, Frame, SizeHint};
use memchr::{memchr, memmem};
use tokio::time::Instant;

use crate::api::media_type::Encoding;
use crate::codec::gzip::MembersReader;
use crate::server::drain::{WATCH_AGE_MIN, WatchDrain};
use crate::server::forward::claim::WatchClaim;
use crate::upstream::bounded::is_gzip;
use crate::upstream::pool;

/// The body of a forwarded watch, which ends between two events when Weir drains or when a cache
/// can take over.
pub(crate) struct ForwardedWatch {
    body: pool::Body,
    drained: Pin<Box<dyn Future<Output = ()> + Send>>,
    claim: Option<WatchClaim>,
    /// Whether the time of the end has come.
    ending: bool,
    events: EventScanner,
}

impl ForwardedWatch {
    /// Returns the scanner of a response with these headers, if it has a format in which the end of
    /// an event is visible.
    pub(super) fn scanner(headers: &HeaderMap) -> Option<EventScanner> {
        EventScanner::for_response(headers)
    }

    /// Relays `body` until it ends, until Weir drains, or until a cache can take over.
    pub(super) fn new(
        body: pool::Body,
        events: EventScanner,
        drain: WatchDrain,
        claim: Option<WatchClaim>,
    ) -> Self {
        let begun = Instant::now();
        let drained = Box::pin(async move {
            drain.started().cancelled().await;
            tokio::time::sleep_until(begun + WATCH_AGE_MIN).await;
        });
        Self { body, drained, claim, ending: false, events }
    }

    fn poll_ending(&mut self, context: &mut Context<'_>) -> bool {
        let marked = self.events.initial_events_ended();
        self.ending = self.ending
            || self.drained.as_mut().poll(context).is_ready()
            || self.claim.as_mut().is_some_and(|claim| claim.poll_takeover(context, marked));
        self.ending
    }
}

impl Body for ForwardedWatch {
    type Data = Bytes;
    type Error = pool::BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, pool::BodyError>>> {
        if self.poll_ending(context) && self.events.at_event_end() {
            return Poll::Ready(None);
        }
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            self.events.scan(data);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

/// Finds the ends of events in a forwarded watch, and the bookmark that ends its initial events.
///
/// Nothing is changed or delayed: the scanner sees the pieces in which the watch is relayed. It
/// keeps at most the beginning of one event.
#[derive(Debug)]
pub(crate) struct EventScanner {
    encoding: Encoding,
    /// Set if the watch is compressed. After an error no end of an event is seen any more.
    members: Option<MembersReader>,
    is_unreadable: bool,
    /// The beginning of the present event, as long as it may be a bookmark.
    bookmark: Vec<u8>,
    may_be_bookmark: bool,
    /// The part of a protobuf event's length that was read.
    length: Vec<u8>,
    /// The rest of a protobuf event.
    left: usize,
    at_event_end: bool,
    initial_events_ended: bool,
}

impl EventScanner {
    /// Creates a scanner for a response with these headers. Returns `None` if its format does not
    /// show the end of an event.
    fn for_response(headers: &HeaderMap) -> Option<Self> {
        let is_compressed = is_gzip(headers);
        if headers.contains_key(CONTENT_ENCODING) && !is_compressed {
            return None;
        }
        let format = headers.get(CONTENT_TYPE)?;
        let encoding = [Encoding::Json, Encoding::Protobuf]
            .into_iter()
            .find(|encoding| format == encoding.content_type(true))?;
        Some(Self {
            encoding,
            members: is_compressed.then(MembersReader::default),
            is_unreadable: false,
            bookmark: Vec::new(),
            may_be_bookmark: true,
            length: Vec::new(),
            left: 0,
            at_event_end: true,
            initial_events_ended: false,
        })
    }

    fn at_event_end(&self) -> bool {
        self.at_event_end
            && !self.is_unreadable
            && self.members.as_ref().is_none_or(MembersReader::is_between_members)
    }

    /// Whether the bookmark that ends the initial events is among the data so far.
    fn initial_events_ended(&self) -> bool {
        self.initial_events_ended
    }

    fn scan(&mut self, piece: &[u8]) {
        if self.is_unreadable {
            return;
        }
        match self.members.as_mut().map(|members| members.push(piece)) {
            None => self.scan_plain(piece),
            Some(Ok(plain)) => self.scan_plain(&plain),
            Some(Err(_)) => self.is_unreadable = true,
        }
    }

    fn scan_plain(&mut self, piece: &[u8]) {
        match self.encoding {
            Encoding::Json => self.scan_json(piece),
            Encoding::Protobuf => self.scan_protobuf(piece),
        }
    }

    fn scan_json(&mut self, mut rest: &[u8]) {
        while !rest.is_empty() {
            let end = memchr(b'\n', rest);
            let (part, after) = rest.split_at(end.unwrap_or(rest.len()));
            self.read(part);
            rest = after.get(1..).unwrap_or_default();
            self.at_event_end = end.is_some();
            if self.at_event_end {
                self.end_event();
            }
        }
    }

    fn scan_protobuf(&mut self, mut rest: &[u8]) {
        while !rest.is_empty() {
            self.at_event_end = false;
            if self.left == 0 {
                let (part, after) = rest.split_at(rest.len().min(PREFIX_BYTES - self.length.len()));
                self.length.extend_from_slice(part);
                rest = after;
                if self.length.len() < PREFIX_BYTES {
                    return;
                }
                let length = std::mem::take(&mut self.length).as_slice().get_u32();
                self.left = usize::try_from(length).unwrap_or(usize::MAX);
            }
            let (part, after) = rest.split_at(rest.len().min(self.left));
            self.read(part);
            rest = after;
            self.left -= part.len();
            if self.left == 0 {
                self.at_event_end = true;
                self.end_event();
            }
        }
    }

    /// Keeps the beginning of an event that may be the bookmark.
    fn read(&mut self, part: &[u8]) {
        if !self.may_be_bookmark || self.initial_events_ended {
            return;
        }
        let start: &[u8] = match self.encoding {
            Encoding::Json => JSON_BOOKMARK,
            Encoding::Protobuf => PROTOBUF_BOOKMARK,
        };
        let room = BOOKMARK_BYTES_MAX - self.bookmark.len();
        self.bookmark.extend_from_slice(part.get(..room).unwrap_or(part));
        let length = self.bookmark.len().min(start.len());
        self.may_be_bookmark = self.bookmark.get(..length) == start.get(..length)
            && self.bookmark.len() < BOOKMARK_BYTES_MAX;
        if !self.may_be_bookmark {
            self.bookmark = Vec::new();
        }
    }

    fn end_event(&mut self) {
        if self.may_be_bookmark && memmem::find(&self.bookmark, INITIAL_EVENTS_END).is_some() {
            self.initial_events_ended = true;
        }
        self.bookmark.clear();
        self.may_be_bookmark = true;
    }
}

const JSON_BOOKMARK: &[u8] = br#"{"type":"BOOKMARK""#;
/// The start of a bookmark in protobuf: the field `type` of `WatchEvent`.
const PROTOBUF_BOOKMARK: &[u8] = b"\x0a\x08BOOKMARK";
/// The annotation of the bookmark that ends the initial events (`docs/semantics.md` §5.6).
const INITIAL_EVENTS_END: &[u8] = b"k8s.io/initial-events-end";
/// A bookmark is an empty object, and much shorter.
const BOOKMARK_BYTES_MAX: usize = 4096;
/// The length before each event in protobuf (`docs/semantics.md` §5.3).
const PREFIX_BYTES: usize = 4;

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use crate::codec::gzip;

    fn scanner(format: &'static str) -> Option<EventScanner> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(format));
        EventScanner::for_response(&headers)
    }

    fn framed(event: &[u8]) -> Vec<u8> {
        let length = u32::try_from(event.len()).unwrap();
        [&length.to_be_bytes(), event].concat()
    }

    /// Scans both byte by byte and as one piece, and returns after which bytes an event ends.
    fn ends(format: &'static str, data: &[u8]) -> (Vec<usize>, bool) {
        let mut whole = scanner(format).unwrap();
        whole.scan(data);
        let mut bytes = scanner(format).unwrap();
        let mut ends = Vec::new();
        for (at, byte) in data.iter().enumerate() {
            bytes.scan(&[*byte]);
            if bytes.at_event_end() {
                ends.push(at + 1);
            }
        }
        assert_eq!(whole.at_event_end(), bytes.at_event_end());
        assert_eq!(whole.initial_events_ended(), bytes.initial_events_ended());
        (ends, whole.initial_events_ended())
    }

    const MARK: &str =
        r#"{"type":"BOOKMARK","object":{"annotations":{"k8s.io/initial-events-end":"true"}}}"#;

    #[test]
    fn an_event_ends_with_its_newline_in_json() {
        let (ends, ended) = ends("application/json", b"{\"type\":\"ADDED\"}\n{}\n{\"a");
        assert_eq!(ends, [17, 20]);
        assert!(!ended);
    }

    #[test]
    fn an_event_ends_with_its_length_in_protobuf() {
        let data = [framed(b"\x0a\x05ADDED"), framed(b""), framed(b"ab")].concat();
        let (ends, ended) = ends("application/vnd.kubernetes.protobuf;stream=watch", &data);
        assert_eq!(ends, [11, 15, 21]);
        assert!(!ended);
    }

    #[test]
    fn only_the_marked_bookmark_ends_the_initial_events() {
        let json = |line: &str| ends("application/json", format!("{{}}\n{line}\n").as_bytes()).1;
        assert!(json(MARK));
        assert!(!json(&MARK.replace("BOOKMARK", "ADDED")));
        assert!(!json(&MARK.replace("initial-events-end", "other")));
        let event = [PROTOBUF_BOOKMARK, b"...", INITIAL_EVENTS_END].concat();
        let format = "application/vnd.kubernetes.protobuf;stream=watch";
        assert!(ends(format, &framed(&event)).1);
        assert!(!ends(format, &framed(&event[1..])).1);
    }

    #[test]
    fn an_event_of_a_compressed_watch_ends_with_its_member() {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        let mut scanner = EventScanner::for_response(&headers).unwrap();
        let members =
            [gzip::to_member(b"{}\n{}\n"), gzip::to_member(format!("{MARK}\n").as_bytes())];
        let mut ends = Vec::new();
        for (at, byte) in members.concat().iter().enumerate() {
            scanner.scan(&[*byte]);
            if scanner.at_event_end() {
                ends.push(at + 1);
            }
        }
        assert_eq!(ends, [members[0].len(), members.concat().len()]);
        assert!(scanner.initial_events_ended());
        scanner.scan(b"no gzip");
        assert!(!scanner.at_event_end(), "it can no longer be read");
    }

    #[test]
    fn other_formats_have_no_scanner() {
        assert!(scanner("application/yaml").is_none());
        assert!(scanner("application/json;as=Table;g=meta.k8s.io;v=v1").is_none());
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("br"));
        assert!(EventScanner::for_response(&headers).is_none());
    }
}
