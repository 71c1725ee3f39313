//! The upstream's version, which shows its features and its upgrades.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::header::{DATE, USER_AGENT};
use http::{HeaderMap, Request, StatusCode, Uri};
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::upstream::bounded::read_body;
use crate::upstream::endpoints::ApiServer;
use crate::upstream::error::UpstreamError;
use crate::upstream::fetch::{Get, WEIR_USER_AGENT};
use crate::upstream::one_server::OneServer;
use crate::upstream::pools::LATE_AFTER;
use crate::upstream::{RequestBody, Upstream, empty_body, fetch};

/// The response of `/version`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UpstreamVersion {
    /// The major version, such as 1.
    pub major: u32,
    /// The minor version, such as 36, without a trailing `+`.
    pub minor: u32,
    /// The whole version, such as `v1.36.2`. A change forces a relist.
    pub git_version: String,
    /// Whether other instances have shown another version lately.
    pub is_mixed: bool,
}

impl UpstreamVersion {
    /// Reads the version from the upstream.
    pub async fn fetch(upstream: &Upstream) -> Result<Self, UpstreamError> {
        let answer =
            fetch::get(upstream, "/version", "application/json", None, VERSION_BYTES_MAX).await?;
        if let Some(seconds) = clock_skew(answer.headers(), Timestamp::now()) {
            upstream.inner.metrics.clock_skew(seconds);
        }
        Self::parse(answer.body()).ok_or_else(|| UpstreamError::Malformed("/version".to_owned()))
    }

    /// Returns whether the upstream serves exact lists and pages from its watch cache
    /// (`ListFromCacheSnapshot`, on since 1.34). Older releases read every list with a limit from
    /// etcd: the keys in their tokens have no leading slash, and they respect a limit with
    /// resourceVersion `0` (`docs/semantics.md` §3.4).
    pub fn has_snapshots(&self) -> bool {
        (self.major, self.minor) >= (1, 34)
    }

    /// Returns whether the upstream encodes a list in JSON item by item while it sends it
    /// (KEP-5116, always on since 1.34), and serves a consistent list from its watch cache
    /// (KEP-2340, also since 1.34). A list without pages then costs the upstream no more than a
    /// watch-list.
    pub fn streams_lists(&self) -> bool {
        (self.major, self.minor) >= (1, 34)
    }

    /// Returns whether the upstream omits a zero `creationTimestamp` in JSON. Releases before 1.34
    /// write `null`.
    pub fn omits_zero_times(&self) -> bool {
        (self.major, self.minor) >= (1, 34)
    }

    /// Parses the document; `None` if it is malformed.
    pub(crate) fn parse(body: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Version {
            major: String,
            minor: String,
            git_version: String,
        }
        let version: Version = serde_json::from_slice(body).ok()?;
        Some(Self {
            major: version.major.parse().ok()?,
            minor: version.minor.trim_end_matches('+').parse().ok()?,
            git_version: version.git_version,
            is_mixed: false,
        })
    }
}

/// Returns how many seconds `now` is after the Date of a response; `None` without a Date.
fn clock_skew(headers: &HeaderMap, now: Timestamp) -> Option<i64> {
    let date = headers.get(DATE)?.to_str().ok()?;
    let date = rfc2822::parse(date).ok()?.timestamp();
    Some(now.as_second() - date.as_second())
}

/// The versions that the instances of the upstream have shown lately.
///
/// While a control plane is upgraded, its instances have different versions, and each answer comes
/// from another one. So an answer counts as a change only if its version was not seen lately, and a
/// version that is not seen any more counts as a change once.
#[derive(Debug, Default)]
struct SeenVersions(Vec<(UpstreamVersion, Instant)>);

impl SeenVersions {
    /// Notes an answer. Returns whether it changes the set of versions; the first one does not.
    fn note(&mut self, version: UpstreamVersion) -> bool {
        let now = Instant::now();
        let is_first = self.0.is_empty();
        let before = self.0.len();
        let has_others_gone = {
            self.0.retain(|(seen, at)| *seen == version || now.duration_since(*at) < SEEN_FOR);
            self.0.len() < before
        };
        if let Some((_, at)) = self.0.iter_mut().find(|(seen, _)| *seen == version) {
            *at = now;
            return has_others_gone;
        }
        if self.0.len() >= SEEN_MAX {
            self.0.remove(0);
        }
        self.0.push((version, now));
        !is_first
    }

    /// Returns the texts of all versions.
    fn texts(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(version, _)| version.git_version.as_str())
    }

    /// Returns the oldest version, whose features all instances have.
    fn oldest(&self) -> Option<&UpstreamVersion> {
        let versions = self.0.iter().map(|(version, _)| version);
        versions.min_by(|one, other| {
            let key = |version: &UpstreamVersion| (version.major, version.minor);
            key(one).cmp(&key(other)).then_with(|| one.git_version.cmp(&other.git_version))
        })
    }
}

/// Keeps the version up to date while `published` has receivers, and counts `changes`. A failure
/// keeps the last version. `published` has the oldest of several versions.
pub(super) async fn follow(
    upstream: Upstream,
    published: watch::Sender<Option<UpstreamVersion>>,
    changes: watch::Sender<u64>,
) {
    let mut seen = SeenVersions::default();
    while !published.is_closed() {
        match UpstreamVersion::fetch(&upstream).await {
            Ok(version) => {
                let text = version.git_version.clone();
                let has_changed = seen.note(version);
                upstream.inner.metrics.versions(seen.texts());
                published.send_if_modified(|published| {
                    let is_mixed = seen.0.len() > 1;
                    let oldest = seen.oldest().cloned();
                    let oldest = oldest.map(|oldest| UpstreamVersion { is_mixed, ..oldest });
                    let differs = *published != oldest;
                    *published = oldest;
                    differs
                });
                if has_changed {
                    tracing::info!(version = text, "the upstream's version changed");
                    changes.send_modify(|count| *count += 1);
                }
            }
            Err(error) => tracing::debug!(%error, "cannot read the upstream's version"),
        }
        let delay = if published.borrow().is_some() { INTERVAL } else { RETRY_DELAY };
        tokio::time::sleep(delay).await;
    }
}

/// Returns a request for the version, which every identity may send.
pub(crate) fn request() -> Request<RequestBody> {
    let mut request = Request::new(empty_body());
    *request.uri_mut() = Uri::from_static("/version");
    request.headers_mut().insert(USER_AGENT, WEIR_USER_AGENT);
    request
}

/// Returns the uid of the namespace kube-system, which distinguishes two clusters behind one
/// address. `None` if Weir's identity may not read it. Asks every API server that requests go to,
/// each over a new connection: the older ones may still lead to another cluster than the latest
/// one. Where the answers differ, those of another cluster are no longer used: an error. A server
/// that goes out of use meanwhile is not waited for.
pub async fn cluster_uid(upstream: &Upstream) -> Result<Option<String>, UpstreamError> {
    let mut uids = Vec::new();
    for (server, answer) in ask_each(upstream, |server| uid_of(server).boxed()).await? {
        let uid = answer?;
        upstream.endpoints().note_uid(&server, uid.clone());
        uids.push(uid);
    }
    let uid = uids.first().cloned().flatten();
    if uids.iter().all(|other| *other == uid) {
        return Ok(uid);
    }
    Err(UpstreamError::Malformed("the API servers are of different clusters".to_owned()))
}

/// Asks every API server that requests go to, each over a new connection. Returns the answers, at
/// least one. A server that goes out of use meanwhile is not waited for.
pub(super) async fn ask_each<T>(
    upstream: &Upstream,
    ask: Ask<T>,
) -> Result<Vec<(Arc<ApiServer>, Result<T, UpstreamError>)>, UpstreamError> {
    let servers = upstream.endpoints().in_use();
    let asked = servers.iter().map(|server| ask_while_in_use(upstream, server, ask));
    let answers = futures_util::future::join_all(asked).await;
    let answers: Vec<_> = servers
        .into_iter()
        .zip(answers)
        .filter_map(|(server, answer)| Some((server, answer?)))
        .collect();
    if answers.is_empty() {
        return Err(UpstreamError::Lost("all API servers went out of use".to_owned()));
    }
    Ok(answers)
}

/// A request to one API server.
pub(super) type Ask<T> = for<'a> fn(&'a mut OneServer) -> BoxFuture<'a, Result<T, UpstreamError>>;

/// Returns the answer of one API server; `None` if the server goes out of use before. While the
/// server is late it is probed, so that one that hangs goes out of use within three seconds. A
/// server that is ready and slow is waited for: what came from it may be of another cluster.
async fn ask_while_in_use<T>(
    upstream: &Upstream,
    server: &Arc<ApiServer>,
    ask: Ask<T>,
) -> Option<Result<T, UpstreamError>> {
    let answer = async {
        let mut connection = OneServer::connect_to(upstream, server).await?;
        ask(&mut connection).await
    };
    if server.is_out() || !upstream.endpoints().has_several() {
        return Some(answer.await);
    }
    let out = async {
        while timeout(LATE_AFTER, server.until_out()).await.is_err() {
            server.suspect();
        }
    };
    tokio::select! {
        answer = answer => (answer.is_ok() || !server.is_out()).then_some(answer),
        () = out => None,
    }
}

/// Returns the uid of the namespace kube-system of one API server; `None` if Weir's identity may
/// not read it.
pub(super) async fn uid_of(server: &mut OneServer) -> Result<Option<String>, UpstreamError> {
    // Weir's role may list namespaces and may get none. A smaller role may allow the reverse.
    for path in [KUBE_SYSTEM_LIST, KUBE_SYSTEM] {
        let answer = match Get::json(path).send_to(server).await {
            Ok(answer) => read_body(answer.into_body(), VERSION_BYTES_MAX).await?,
            Err(UpstreamError::Status { code, .. })
                if code == StatusCode::FORBIDDEN || code == StatusCode::NOT_FOUND =>
            {
                continue;
            }
            Err(error) => return Err(error),
        };
        let malformed = || UpstreamError::Malformed("the namespace kube-system".to_owned());
        return parse_uid(&answer).map(Some).ok_or_else(malformed);
    }
    Ok(None)
}

/// Returns the uid of an object, or of the only item of a list.
fn parse_uid(body: &[u8]) -> Option<String> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let items = body.get("items").filter(|items| !items.is_null());
    let object = items.map_or(Some(&body), |items| items.get(0))?;
    object.pointer("/metadata/uid")?.as_str().map(str::to_owned)
}

/// The namespace as a list of one, from the API server's watch cache.
const KUBE_SYSTEM_LIST: &str =
    "/api/v1/namespaces?fieldSelector=metadata.name%3Dkube-system&resourceVersion=0";
const KUBE_SYSTEM: &str = "/api/v1/namespaces/kube-system";
/// How long a version counts after its last answer: ten answers of other instances.
const SEEN_FOR: Duration = Duration::from_secs(600);
/// The largest number of versions at the same time.
const SEEN_MAX: usize = 8;
/// The interval of reading the version. All caches list again after a change. Few objects are
/// encoded differently by another release, so that a minute is soon enough.
const INTERVAL: Duration = Duration::from_secs(60);
/// The delay after a failure before the first success.
const RETRY_DELAY: Duration = Duration::from_secs(2);
/// The largest response. Both have a few hundred bytes, but a namespace may have long annotations.
const VERSION_BYTES_MAX: usize = 2 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::headers;

    #[test]
    fn the_skew_of_the_clock_is_that_of_the_date() {
        let now: Timestamp = "1994-11-06T08:49:40Z".parse().unwrap();
        let skew = |headers: &HeaderMap| clock_skew(headers, now);
        assert_eq!(skew(&headers(&[("date", "Sun, 06 Nov 1994 08:49:37 GMT")])), Some(3));
        assert_eq!(skew(&headers(&[("date", "Sun, 06 Nov 1994 08:50:00 GMT")])), Some(-20));
        assert_eq!(skew(&headers(&[("date", "yesterday")])), None);
        assert_eq!(skew(&HeaderMap::new()), None);
    }

    /// A control plane that is upgraded answers with two versions in turn for a while.
    #[tokio::test(start_paused = true)]
    async fn a_control_plane_of_mixed_versions_changes_twice_and_not_with_each_answer() {
        let version = |minor: u32| {
            let git_version = format!("v1.{minor}.0");
            UpstreamVersion { major: 1, minor, git_version, is_mixed: false }
        };
        let mut seen = SeenVersions::default();
        let mut note = async |minor| {
            tokio::time::advance(INTERVAL).await;
            let has_changed = seen.note(version(minor));
            (has_changed, seen.oldest().unwrap().minor)
        };
        assert_eq!(note(35).await, (false, 35));
        assert_eq!(note(36).await, (true, 35), "the first instance is upgraded");
        for _ in 0..30 {
            assert_eq!(note(35).await, (false, 35));
            assert_eq!(note(36).await, (false, 35));
        }
        let mut changes = 0;
        for _ in 0..30 {
            changes += usize::from(note(36).await.0);
        }
        assert_eq!(changes, 1, "the last instance is upgraded");
        assert_eq!(note(36).await, (false, 36));
        assert_eq!(note(35).await, (true, 35), "back again");
    }

    #[test]
    fn the_uid_is_read_from_an_object_or_a_list() {
        let uid = |body: &str| parse_uid(body.as_bytes());
        let expected = Some("u".to_owned());
        assert_eq!(uid(r#"{"metadata":{"uid":"u"},"spec":{}}"#), expected);
        assert_eq!(uid(r#"{"metadata":{},"items":[{"metadata":{"uid":"u"}}]}"#), expected);
        assert_eq!(uid(r#"{"metadata":{},"items":[]}"#), None);
        assert_eq!(uid("{}"), None);
    }

    #[test]
    fn versions_are_parsed() {
        let body = br#"{"major":"1","minor":"31+","gitVersion":"v1.31.4-eks-2"}"#;
        let version = UpstreamVersion::parse(body).unwrap();
        assert_eq!((version.major, version.minor), (1, 31));
        assert_eq!(version.git_version, "v1.31.4-eks-2");
        assert_eq!(UpstreamVersion::parse(b"{}"), None);
        let snapshots = |minor| UpstreamVersion { minor, ..version.clone() }.has_snapshots();
        assert_eq!([31, 33, 34, 36].map(snapshots), [false, false, true, true]);
    }
}
