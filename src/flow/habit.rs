//! How a list or a watch is asked for: what decides about its cost, and what a client can change.

use std::time::Duration;

use memchr::memmem;

/// How a list or a watch is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Habit {
    /// The start of the list or watch.
    pub start: Start,
    /// Whether it has a limit.
    pub is_limited: bool,
    /// The form of the objects that it asks for first.
    pub form: AskedForm,
    /// Whether it accepts gzip.
    pub takes_gzip: bool,
    /// Whether the same was asked for on the same connection before: for a GET, within the last
    /// seconds; for a list, three times without an hour between two of them.
    pub is_repeated: bool,
}

impl Habit {
    /// Whether a list begins, and is no further page of one.
    pub fn is_new_list(&self) -> bool {
        self.start != Start::Continue
    }

    /// Whether a list that the API server reads from etcd, as it does from a certain
    /// resourceVersion, is read as a whole.
    pub fn is_unpaged(&self) -> bool {
        !self.is_limited && matches!(self.start, Start::Unset | Start::Version)
    }
}

/// The resourceVersion that a list or a watch starts at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Start {
    /// None: the latest state.
    #[default]
    Unset,
    /// `0`: any state.
    Any,
    /// A certain one.
    Version,
    /// The next page of a list.
    Continue,
}

/// The form of objects that a client asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AskedForm {
    /// JSON, also where nothing is asked for.
    #[default]
    Json,
    /// JSON and nothing else, as the dynamic clients of client-go ask, which cannot read protobuf.
    OnlyJson,
    /// Protobuf.
    Protobuf,
    /// A table, as kubectl prints it.
    Table,
    /// The metadata only.
    Metadata,
    /// Another one.
    Other,
}

impl Start {
    /// Reads the parameters of a request.
    pub fn from_parameters(resource_version: Option<&str>, continue_token: Option<&str>) -> Self {
        match (resource_version, continue_token) {
            (_, Some(token)) if !token.is_empty() => Self::Continue,
            (None | Some(""), _) => Self::Unset,
            (Some("0"), _) => Self::Any,
            (Some(_), _) => Self::Version,
        }
    }
}

impl AskedForm {
    /// Reads the text of an `Accept` header: the first clause counts.
    pub fn from_accept(accept: &str) -> Self {
        if accept.trim() == "application/json" {
            return Self::OnlyJson;
        }
        let first = accept.split(',').next().unwrap_or_default().trim();
        if first.contains("as=Table") {
            return Self::Table;
        }
        if first.contains("as=PartialObjectMetadata") {
            return Self::Metadata;
        }
        match first.split(';').next().unwrap_or_default().trim() {
            "" | "*/*" | "application/json" => Self::Json,
            "application/vnd.kubernetes.protobuf" => Self::Protobuf,
            _ => Self::Other,
        }
    }
}

/// When requests of one kind came: the last time, and in which parts of the last hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    last: Duration,
    /// The number of the part that the lowest bit of `begins` stands for.
    part: u64,
    /// The parts in which requests came, the latest in the lowest bit.
    begins: u16,
}

impl Seen {
    /// Nothing came yet.
    pub fn new(now: Duration) -> Self {
        Self { last: now, part: part_of(now), begins: 0 }
    }

    /// Notes that something came at `now`. `begins` is whether it was a request, and not more of
    /// the response to an earlier one.
    pub fn note(&mut self, now: Duration, begins: bool) {
        self.begins = self.parts(now) | u16::from(begins);
        self.part = part_of(now);
        self.last = now;
    }

    /// Returns the parts of the last hour in which requests came, of five minutes each, as bits.
    pub fn parts(&self, now: Duration) -> u16 {
        let past = part_of(now).saturating_sub(self.part);
        let begins = u32::try_from(past).ok().and_then(|past| self.begins.checked_shl(past));
        begins.unwrap_or(0) & PARTS
    }

    /// Returns how long ago something came last.
    pub fn age(&self, now: Duration) -> Duration {
        now.saturating_sub(self.last)
    }
}

fn part_of(now: Duration) -> u64 {
    now.as_secs() / PART_SECONDS
}

/// Whether the habits of a client are examined. kubectl does what a person or a script means to do
/// once. Nobody can change what kubelets do, each of which is a user of its own.
pub fn is_examined(user: &str, agent: &str) -> bool {
    let is_kubelet =
        agent.starts_with("kubelet/") && (user.is_empty() || user.starts_with("system:node:"));
    !is_kubelet && !agent.starts_with("kubectl")
}

/// Whether the first piece of a watch is the event of a 410: its resourceVersion is too old.
pub fn is_expired(piece: &[u8]) -> bool {
    let head = piece.get(..EVENT_HEAD_BYTES).unwrap_or(piece);
    let is_error = head.starts_with(JSON_ERROR)
        // Four bytes of length, then the type of the event.
        || head.get(4..).is_some_and(|event| event.starts_with(PROTOBUF_ERROR));
    is_error && [JSON_GONE, PROTOBUF_GONE].iter().any(|code| memmem::find(head, code).is_some())
}

/// The beginning of an event with a Status.
const EVENT_HEAD_BYTES: usize = 1024;
const JSON_ERROR: &[u8] = b"{\"type\":\"ERROR\"";
const JSON_GONE: &[u8] = b"\"code\":410";
/// Field 1 of a `WatchEvent`.
const PROTOBUF_ERROR: &[u8] = b"\x0a\x05ERROR";
/// Field 6 of a `Status`: 410 as a variable-length integer.
const PROTOBUF_GONE: &[u8] = b"\x30\x9a\x03";
const PART_SECONDS: u64 = 300;
/// Those of an hour.
const PARTS: u16 = (1 << 12) - 1;

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;
    use weir_api::media_type::Encoding;
    use weir_api::resource_version::ResourceVersion;
    use weir_api::status::Status;
    use weir_codec::frame::encode_error;

    #[test]
    fn parameters_and_headers_are_read() {
        assert_eq!(Start::from_parameters(None, None), Start::Unset);
        assert_eq!(Start::from_parameters(Some(""), Some("")), Start::Unset);
        assert_eq!(Start::from_parameters(Some("0"), None), Start::Any);
        assert_eq!(Start::from_parameters(Some("17"), None), Start::Version);
        assert_eq!(Start::from_parameters(None, Some("abc")), Start::Continue);
        for (accept, form) in [
            ("", AskedForm::Json),
            ("application/json, */*", AskedForm::Json),
            ("application/json", AskedForm::OnlyJson),
            ("application/vnd.kubernetes.protobuf,application/json", AskedForm::Protobuf),
            ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", AskedForm::Table),
            (
                "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
                AskedForm::Metadata,
            ),
            ("application/yaml", AskedForm::Other),
        ] {
            assert_eq!(AskedForm::from_accept(accept), form, "{accept}");
        }
    }

    #[test]
    fn kubectl_and_kubelets_are_not_examined() {
        assert!(!is_examined("jane", "kubectl/v1.36.2 (linux/amd64) kubernetes/4f1e2d3"));
        assert!(!is_examined("system:node:n1", "kubelet/v1.36.2"));
        assert!(!is_examined("", "kubelet/v1.36.2"), "in a sidecar");
        assert!(is_examined("jane", "kubelet/v1.36.2"), "no kubelet");
        assert!(is_examined("system:node:n1", "agent/v1"), "with a kubelet's identity");
        assert!(is_examined("", ""));
    }

    #[test]
    fn a_410_is_known_by_the_first_event_of_a_watch() {
        let expired = Status::expired(ResourceVersion(30), ResourceVersion(450));
        let other = Status { code: StatusCode::FORBIDDEN, ..expired.clone() };
        for encoding in [Encoding::Json, Encoding::Protobuf] {
            assert!(is_expired(&encode_error(&expired, encoding)), "{encoding:?}");
            assert!(!is_expired(&encode_error(&other, encoding)), "{encoding:?}");
        }
        assert!(!is_expired(b"{\"type\":\"ADDED\",\"object\":{\"code\":410}}"));
        assert!(!is_expired(b"") && !is_expired(&[0; 3]));
    }

    #[test]
    fn parts_are_those_of_the_last_hour() {
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        let mut seen = Seen::new(minutes(3));
        assert_eq!(seen.parts(minutes(3)), 0);
        for minute in [3, 4, 11, 12] {
            seen.note(minutes(minute), true);
        }
        assert_eq!(seen.parts(minutes(13)), 0b101);
        seen.note(minutes(20), false);
        assert_eq!(seen.parts(minutes(20)), 0b10100);
        assert_eq!(seen.age(minutes(21)), minutes(1));
        assert_eq!(seen.parts(minutes(65)).count_ones(), 1, "the first one is too old");
        assert_eq!(seen.parts(minutes(1_000_000)), 0);
    }
}
