//! The upstream's version: what it can do, and when it was upgraded (design, sections 4 and 9).

use std::time::Duration;

use serde::Deserialize;
use tokio::sync::watch;

use crate::upstream::error::UpstreamError;
use crate::upstream::{Upstream, fetch};

/// What `/version` tells.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UpstreamVersion {
    /// Such as 1.
    pub major: u32,
    /// Such as 36; a trailing `+` is dropped.
    pub minor: u32,
    /// The whole string, such as `v1.36.2`. A change of it forces a relist.
    pub git_version: String,
}

impl UpstreamVersion {
    /// Asks the upstream.
    pub async fn fetch(upstream: &Upstream) -> Result<Self, UpstreamError> {
        let answer =
            fetch::get(upstream, "/version", "application/json", None, VERSION_BYTES_MAX).await?;
        Self::parse(answer.body()).ok_or_else(|| UpstreamError::Malformed("/version".to_owned()))
    }

    /// Whether exact lists and pages come from its watch cache (`ListFromCacheSnapshot`, on since 1.34). Others read every list with a limit
    /// from their store: the keys in its tokens lack the leading slash, and a limit counts beside resourceVersion `0` (semantics.md §3.4).
    pub fn has_snapshots(&self) -> bool {
        (self.major, self.minor) >= (1, 34)
    }

    /// Whether a list in JSON is written item by item as it is sent (KEP-5116, on for good since 1.34), and a consistent one comes from its watch
    /// cache (KEP-2340, the same): then a list without pages costs it no more than a watch-list.
    pub fn streams_lists(&self) -> bool {
        (self.major, self.minor) >= (1, 34)
    }

    fn parse(body: &[u8]) -> Option<Self> {
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
        })
    }
}

/// Keeps the version up to date for as long as anybody receives; one that can't be had leaves the last in place.
pub(super) async fn follow(upstream: Upstream, known: watch::Sender<Option<UpstreamVersion>>) {
    while !known.is_closed() {
        match UpstreamVersion::fetch(&upstream).await {
            Ok(version) if known.borrow().as_ref() != Some(&version) => {
                tracing::info!(version = version.git_version, "the upstream's version");
                known.send_replace(Some(version));
            }
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "cannot learn the upstream's version"),
        }
        let pause = if known.borrow().is_some() { INTERVAL } else { RETRY };
        tokio::time::sleep(pause).await;
    }
}

/// What tells two clusters apart that answer at one address (design, section 6): the uid of the namespace kube-system.
/// `None` where Weir's identity may not read it.
pub async fn cluster_uid(upstream: &Upstream) -> Result<Option<String>, UpstreamError> {
    #[derive(Deserialize)]
    struct Namespace {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        uid: String,
    }
    let path = "/api/v1/namespaces/kube-system";
    match fetch::get(upstream, path, "application/json", None, VERSION_BYTES_MAX).await {
        Ok(answer) => serde_json::from_slice::<Namespace>(answer.body())
            .map(|namespace| Some(namespace.metadata.uid))
            .map_err(|_| UpstreamError::Malformed("the namespace kube-system".to_owned())),
        Err(UpstreamError::Status { code, .. })
            if code == http::StatusCode::FORBIDDEN || code == http::StatusCode::NOT_FOUND =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// All caches start anew then; objects are rare that another release writes otherwise, so that a minute is soon enough.
const INTERVAL: Duration = Duration::from_secs(60);
/// While it is not known.
const RETRY: Duration = Duration::from_secs(2);
/// Both answers are a few hundred bytes; a namespace may carry long annotations.
const VERSION_BYTES_MAX: usize = 2 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        let body = br#"{"major":"1","minor":"31+","gitVersion":"v1.31.4-eks-2"}"#;
        let version = UpstreamVersion::parse(body).unwrap();
        assert_eq!((version.major, version.minor), (1, 31));
        assert_eq!(version.git_version, "v1.31.4-eks-2");
        assert_eq!(UpstreamVersion::parse(b"{}"), None);
        let snapshots = |minor| UpstreamVersion { minor, ..version.clone() }.has_snapshots();
        assert_eq!([31, 33, 34, 36].map(snapshots), [false, false, true, true]);
    }
}
