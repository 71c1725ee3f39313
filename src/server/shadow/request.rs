//! A read that is compared: its head, how a cache would answer it, the copy of its answer, and what
//! the report shows of it.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::header::{ACCEPT, USER_AGENT};
use http::request::Parts;
use http::{HeaderMap, Request, StatusCode};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::api::request_info::RequestInfo;
use crate::codec::held_bytes::Claim;
use crate::flow::rules::product;
use crate::server::connection::client::Client;
use crate::server::delegate::{CachedDecision, Reason};
use crate::upstream::bounded::is_gzip;

pub(crate) struct ShadowRequest {
    pub(crate) client: Arc<Client>,
    pub(crate) parts: Parts,
    /// How a cache would answer it.
    pub(crate) decision: Result<CachedDecision, Reason>,
    /// Why a cache would forward it although its answer can be compared.
    pub(crate) forwards: Option<Reason>,
    pub(crate) began: Instant,
    pub(crate) kind: ReadKind,
}

pub(crate) struct Comparison {
    pub(crate) request: Box<ShadowRequest>,
    pub(crate) answer: Copied,
}

pub(crate) enum Copied {
    Whole(AnswerHead, Vec<CopiedChunk>),
    /// A watch, while it goes on.
    Watch(AnswerHead, mpsc::Receiver<CopiedChunk>),
}

#[derive(Clone, Debug)]
pub(crate) struct AnswerHead {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
}

impl AnswerHead {
    pub(crate) fn is_gzip(&self) -> bool {
        is_gzip(&self.headers)
    }
}

/// Bytes of an answer, which count as long as they are kept.
pub(crate) struct CopiedChunk {
    pub(crate) bytes: Bytes,
    pub(super) claim: Option<Claim>,
}

impl CopiedChunk {
    /// Whether there was no room for the bytes, so that nothing follows.
    pub(crate) fn is_lost(&self) -> bool {
        self.claim.is_none()
    }
}

/// The kind of a read, by which the report counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReadKind {
    /// The first product of the user agent, without its version.
    pub(crate) agent: Box<str>,
    pub(crate) verb: &'static str,
    /// The resource, with its group.
    pub(crate) resource: Box<str>,
}

impl ReadKind {
    pub(crate) fn from_request(info: &RequestInfo, headers: &HeaderMap) -> Self {
        let agent = headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok());
        let agent = product(agent.unwrap_or_default());
        let agent = agent.split_once('/').map_or(agent, |(name, _version)| name);
        let agent: String = agent.chars().take(AGENT_CHARS_MAX).collect();
        let resource = info.resource.as_ref().map(|resource| {
            let (group, name) = (&resource.gvr.group, &resource.gvr.resource);
            if group.is_empty() { name.to_string() } else { format!("{name}.{group}") }
        });
        let resource = resource.unwrap_or_default().into();
        Self { agent: agent.into(), verb: info.verb.as_str(), resource }
    }
}

/// Returns the head of a request without what belongs to its connection.
pub(crate) fn head_of(parts: &Parts) -> Parts {
    let (mut head, ()) = Request::new(()).into_parts();
    head.method = parts.method.clone();
    head.uri = parts.uri.clone();
    head.headers = parts.headers.clone();
    head
}

/// Returns path and query as the report shows them: names are kept, values that select are hashed.
pub(crate) fn report_target(parts: &Parts) -> String {
    let mut text: String = parts.uri.path().chars().take(PATH_CHARS_MAX).collect();
    let query = parts.uri.query().unwrap_or_default();
    for (number, pair) in query.split('&').filter(|pair| !pair.is_empty()).enumerate() {
        if number == PAIRS_MAX {
            text.push_str("&...");
            break;
        }
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let name: String = name.chars().filter(char::is_ascii_alphanumeric).take(64).collect();
        text.push(if number == 0 { '?' } else { '&' });
        text.push_str(&name);
        text.push('=');
        if KEPT.contains(&&*name) && value.len() <= VALUE_BYTES_MAX && is_word(value) {
            text.push_str(value);
        } else {
            text.push_str(&format!("#{:08x}", keyed_hash(value) >> 32));
        }
    }
    text
}

/// Returns the form that a request asks for, as the report shows it.
pub(crate) fn shown_form(headers: &HeaderMap) -> &'static str {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    match (accept.contains("protobuf"), accept.contains("PartialObjectMetadata")) {
        (false, false) => "json",
        (true, false) => "protobuf",
        (false, true) => "metadata in json",
        (true, true) => "metadata in protobuf",
    }
}

/// Hashes with a key of this process, so that nobody can try values out.
fn keyed_hash(value: &str) -> u64 {
    static KEY: OnceLock<RandomState> = OnceLock::new();
    KEY.get_or_init(RandomState::new).hash_one(value)
}

fn is_word(value: &str) -> bool {
    value.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// The parameters whose values say how something is read, not what.
const KEPT: [&str; 9] = [
    "allowWatchBookmarks",
    "limit",
    "pretty",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeout",
    "timeoutSeconds",
    "watch",
];

const AGENT_CHARS_MAX: usize = 64;
const PATH_CHARS_MAX: usize = 512;
const VALUE_BYTES_MAX: usize = 32;
const PAIRS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(uri: &str) -> Parts {
        Request::get(uri).body(()).unwrap().into_parts().0
    }

    #[test]
    fn values_that_select_are_hashed() {
        let text = report_target(&parts(
            "/api/v1/namespaces/a/pods?limit=5&labelSelector=app%3Dsecret&continue=xyz&resourceVersion=0",
        ));
        assert!(text.starts_with("/api/v1/namespaces/a/pods?limit=5&labelSelector=#"), "{text}");
        assert!(text.ends_with("&resourceVersion=0"), "{text}");
        assert!(!text.contains("secret") && !text.contains("xyz"), "{text}");
        let other = report_target(&parts("/a?labelSelector=app%3Dsecret"));
        let hash =
            |text: &str| text.split("labelSelector=").nth(1).unwrap().get(..9).unwrap().to_owned();
        assert_eq!(hash(&text), hash(&other), "equal values have equal hashes");
        assert!(!report_target(&parts("/a?limit=%3Cscript%3E")).contains("script"));
    }

    #[test]
    fn a_kind_has_the_family_of_the_agent() {
        let parts = Request::get("/apis/apps/v1/deployments?watch=1")
            .header(USER_AGENT, "kube-scheduler/v1.36.2 (linux/amd64) kubernetes/abc/scheduler")
            .body(())
            .unwrap()
            .into_parts()
            .0;
        let info = RequestInfo::parse(&parts.method, parts.uri.path(), "watch=1");
        let kind = ReadKind::from_request(&info, &parts.headers);
        assert_eq!(
            (&*kind.agent, kind.verb, &*kind.resource),
            ("kube-scheduler", "watch", "deployments.apps")
        );
    }
}
