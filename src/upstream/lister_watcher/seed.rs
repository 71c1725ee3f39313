//! Lists the whole state at another Weir (`docs/decisions/seeding-from-siblings.md`).
//!
//! The list is one like those of the upstream, and is decoded like them. The sibling's description
//! of it is compared here as far as that needs no objects: a response without the header
//! [`SEED_HEADER`] did not come from a cache, and its body is not read.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Response};
use tokio::time::timeout;

use super::http::HttpListWatch;
use super::list_watch::{Seed, Seeded};
use super::stream::HttpWatch;
use crate::api::resource::Representation;
use crate::api::resource_version::ResourceVersion;
use crate::api::seed::{CODEC_VERSION, SEED_HEADER, SeedManifest, SeedRequest};
use crate::upstream::bounded::with_timeout;
use crate::upstream::error::UpstreamError;
use crate::upstream::fetch::Get;
use crate::upstream::siblings::Siblings;
use crate::upstream::version::UpstreamVersion;
use crate::upstream::{TrafficClass, pool};

impl HttpListWatch {
    /// Fills caches from siblings.
    pub(crate) fn with_siblings(mut self, siblings: Option<Arc<Siblings>>) -> Self {
        self.siblings = siblings;
        self
    }

    /// Starts the list at the sibling after `attempt` others; `None` if there are no more.
    pub(super) async fn seed_from(
        &self,
        attempt: usize,
        at: Option<ResourceVersion>,
    ) -> Seeded<HttpWatch> {
        let siblings = self.siblings.as_ref()?;
        let release = self.release(siblings.timeout() / RELEASE_PART).await?;
        let urls = siblings.urls().await;
        let first = siblings.first_for(&self.path_and_query(""), urls.len());
        let url = urls.iter().cycle().skip(first).take(urls.len()).nth(attempt)?.clone();
        if siblings.is_left(&url) {
            let problem = "the sibling was unreachable or late a short time ago";
            return Some(Err(UpstreamError::Request(problem.to_owned())));
        }
        let seed = self.seed_at(siblings, url.clone(), &release, at).await;
        if let Err(error) = &seed {
            siblings.note_failure(&url, error);
        }
        Some(seed)
    }

    /// Lets a sibling not be asked for a while.
    pub(super) fn leave(&self, sibling: &str) {
        if let Some(siblings) = &self.siblings {
            siblings.leave(sibling);
        }
    }

    /// Waits for the upstream's version, and returns it. `None` if it does not become known, or if
    /// pages at one resourceVersion, with which a seed is compared, would be read from etcd.
    async fn release(&self, wait: Duration) -> Option<String> {
        let mut version = self.version.clone();
        let known = timeout(wait, version.wait_for(Option::is_some)).await.ok()?.ok()?.clone();
        known.filter(UpstreamVersion::has_snapshots).map(|version| version.git_version)
    }

    async fn seed_at(
        &self,
        siblings: &Siblings,
        sibling: String,
        release: &str,
        at: Option<ResourceVersion>,
    ) -> Result<Seed<HttpWatch>, UpstreamError> {
        let head_timeout = siblings.timeout() / HEAD_PART;
        let connecting = with_timeout(head_timeout, siblings.connect(&sibling)).await;
        let upstream = connecting.map_err(|error| match error {
            // Nothing is dialed yet.
            UpstreamError::Timeout(_) => {
                UpstreamError::Credentials("they could not be read in time".to_owned())
            }
            error => error,
        })?;
        let path_and_query = self.path_and_query("resourceVersion=0");
        let request = SeedRequest { codec: CODEC_VERSION, at }.to_string();
        let header = HeaderValue::try_from(request)
            .map_err(|error| UpstreamError::Request(error.to_string()))?;
        let get = Get {
            header: Some((SEED_HEADER, header)),
            ..self.request(&path_and_query, TrafficClass::List, head_timeout)
        };
        let response = get.send(&upstream).await?;
        let manifest = manifest(&response, release, self.resource.revision)?;
        let objects = match self.representation {
            Representation::Json => HttpWatch::list(response.into_body(), self.resource.clone()),
            _ => {
                let list = self.parse_list(response);
                HttpWatch::of_page(with_timeout(siblings.timeout() / BODY_PART, list).await?)
            }
        };
        Ok(Seed { sibling, manifest, objects })
    }
}

/// Reads the header of a response, and compares what can be compared without the objects.
fn manifest(
    response: &Response<pool::Body>,
    release: &str,
    definition: u64,
) -> Result<SeedManifest, UpstreamError> {
    let unusable = |problem: &str| UpstreamError::Malformed(problem.to_owned());
    let header = response.headers().get(SEED_HEADER).and_then(|value| value.to_str().ok());
    let header = header.ok_or_else(|| unusable("the list does not come from a sibling's cache"))?;
    let manifest: SeedManifest = header.parse().map_err(|error| {
        UpstreamError::Malformed(format!("the sibling's list is not described: {error}"))
    })?;
    if manifest.codec != CODEC_VERSION {
        return Err(unusable("the sibling stores objects in another form"));
    }
    if manifest.release != release {
        return Err(unusable("the sibling's API server has another release"));
    }
    if manifest.definition != definition {
        return Err(unusable("the sibling knows another definition of the resource"));
    }
    Ok(manifest)
}

/// The part of the whole time that the credentials for a sibling have to be read, and then the
/// sibling for the head of its response: a second each. It waits for a moment, and reads its
/// objects once for their digest.
const HEAD_PART: u32 = 2;
/// The part of the whole time that a list has which is read before it is parsed. Without a time-out
/// of its own the caller would not know whose list is late.
const BODY_PART: u32 = 2;
/// The part of the whole time in which the upstream's version must become known: 250 ms. An
/// identity may have no permission to read it.
const RELEASE_PART: u32 = 8;
