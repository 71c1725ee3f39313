//! Checks a list that another Weir sent (`docs/decisions/seeding-from-siblings.md`). Pure: the
//! reflector sends the requests.
//!
//! Three comparisons come before anything is served. The list must be the one that the sibling
//! stores ([`check_list`]). The API server must have the same number of objects at the same
//! resourceVersion, and the same objects on two pages there ([`parts`], [`agrees`]): the first
//! objects byte for byte, and a page of metadata at a random place. A collection that fits on these
//! pages is compared completely. In a larger one the numbers do not show a missing object and one
//! too many that cancel out: the comparison that follows does.
//!
//! Invariant: the pages have at most the objects and the bytes of [`ComparedPart`], and one object
//! more, however large the collection is. The API server sends no list, but may read all objects
//! behind the first key of a page.

pub(crate) mod digest;

use http::StatusCode;

use crate::api::resource_version::ResourceVersion;
use crate::api::seed::{DIGEST_BYTES, SeedManifest};
use crate::cache::core::page_comparison::is_same;
use crate::codec::list::ListPage;
use crate::codec::object::Object;
use crate::config::siblings::ComparedPart;
use crate::upstream::error::UpstreamError;
use crate::upstream::lister_watcher::{ExactPart, ExactRequest, ExactServer};
use crate::upstream::siblings::failure::{SiblingFailure, message_of};

/// Why a cache is not filled from a sibling. The upstream is listed then.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum NotSeeded {
    /// No sibling has a list.
    #[error("no sibling has a list: {0}")]
    Refused(String),
    /// A sibling does not know Weir's identity, or does not let it list the resource.
    #[error("a sibling denies the list: {0}")]
    Denied(String),
    /// The own credentials, or the CA of siblings, cannot be read.
    #[error("the credentials for siblings are unusable: {0}")]
    Credentials(String),
    /// No sibling can be reached.
    #[error("no sibling can be reached: {0}")]
    Unreachable(String),
    /// It takes too long.
    #[error("the siblings, the list or its proof take too long")]
    Late,
    /// The list is not the one that the sibling stores.
    #[error("the sibling's list is damaged: {0}")]
    Damaged(&'static str),
    /// The sibling belongs to another cluster.
    #[error("the sibling has another cluster, or the cluster is not known")]
    OtherCluster,
    /// The sibling's state cannot be continued.
    #[error("the sibling's state cannot be continued: {0}")]
    OutOfStep(&'static str),
    /// The API server has other objects.
    #[error("the API server has other objects at the resourceVersion of the sibling's list")]
    Different,
    /// The API server did not say whether it has the same.
    #[error("the API server does not show whether the sibling's list is right: {0}")]
    Unproved(String),
}

impl NotSeeded {
    /// Returns the value of the `outcome` label.
    pub(crate) fn as_str(&self) -> &'static str {
        match self {
            Self::Refused(_) => "refused",
            Self::Denied(_) => "denied",
            Self::Credentials(_) => "credentials",
            Self::Unreachable(_) => "unreachable",
            Self::Late => "late",
            Self::Damaged(_) => "damaged",
            Self::OtherCluster => "other-cluster",
            Self::OutOfStep(_) => "out-of-step",
            Self::Different => "different",
            Self::Unproved(_) => "unproved",
        }
    }

    /// Returns the reason after the failure of a request to a sibling.
    pub(crate) fn from_sibling(error: &UpstreamError) -> Self {
        let message = message_of(error);
        match SiblingFailure::of(error) {
            SiblingFailure::Refused => Self::Refused(message),
            SiblingFailure::Denied => Self::Denied(message),
            SiblingFailure::Credentials => Self::Credentials(message),
            SiblingFailure::Unreachable => Self::Unreachable(message),
            SiblingFailure::Unusable => {
                Self::Damaged("it cannot be read, or it is not one of a sibling's cache")
            }
        }
    }

    /// Returns the reason after the failure of a request to the upstream.
    pub(crate) fn from_upstream(error: &UpstreamError) -> Self {
        match error {
            UpstreamError::Status { code: StatusCode::GONE, .. } => {
                Self::OutOfStep("the upstream no longer has the events after it")
            }
            error => Self::Unproved(error.to_string()),
        }
    }
}

/// Checks that a list is the one that the sibling describes, and that it can be a state at all.
pub(crate) fn check_list(
    objects: &[Object],
    at: ResourceVersion,
    digest: &[u8; DIGEST_BYTES],
    manifest: &SeedManifest,
) -> Result<(), NotSeeded> {
    if objects.len() as u64 != manifest.objects {
        return Err(NotSeeded::Damaged("it has another number of objects than the sibling says"));
    }
    if *digest != manifest.digest {
        return Err(NotSeeded::Damaged("its objects are not those that the sibling stores"));
    }
    if !objects.is_sorted_by(|one, next| one.key < next.key) {
        return Err(NotSeeded::Damaged("its keys are not in order"));
    }
    if at == ResourceVersion::default() || objects.iter().any(|it| it.resource_version > at) {
        return Err(NotSeeded::Damaged("it has no resourceVersion, or a newer object"));
    }
    Ok(())
}

/// Returns the pages that are compared with the API server. `random` returns a number below its
/// argument, which is not 0.
pub(crate) fn parts(
    objects: &[Object],
    at: ResourceVersion,
    compared: ComparedPart,
    random: impl FnOnce(usize) -> usize,
) -> Vec<ExactRequest> {
    let request = |after, limit: usize, is_whole| {
        let part = ExactPart::Page { after, limit: u32::try_from(limit).unwrap_or(u32::MAX) };
        ExactRequest { at, part, is_whole, server: ExactServer::Own }
    };
    let mut weight = 0_usize;
    let is_within = |object: &&Object| {
        weight = weight.saturating_add(object.weight());
        weight <= compared.whole_bytes
    };
    let whole = objects.iter().take(compared.objects).take_while(is_within).count();
    // One more than there are: the API server may have more.
    let limit = if whole == objects.len() { whole + 1 } else { whole.max(1) };
    let mut parts = vec![request(None, limit, true)];
    if whole < objects.len() {
        let places = objects.len().saturating_sub(compared.objects) + 1;
        let before = random(places).checked_sub(1).and_then(|before| objects.get(before));
        let after = before.map(|object| object.key.clone());
        parts.push(request(after, compared.objects, false));
    }
    parts
}

/// Whether a page of the API server has the objects of a list, and whether as many follow.
pub(crate) fn agrees(objects: &[Object], request: &ExactRequest, page: &ListPage) -> bool {
    let ExactPart::Page { after, .. } = &request.part else { return false };
    let start = after.as_ref().map_or(0, |after| objects.partition_point(|it| it.key <= *after));
    let expected = objects.get(start..).unwrap_or_default();
    let following = match page.continue_token.is_empty() {
        true => Some(0),
        // Without their number nothing shows that the list is complete.
        false => page.remaining_item_count,
    };
    let count = (page.objects.len() as u64).checked_add(following.unwrap_or(u64::MAX));
    let is_same = |(held, listed): (&Object, &Object)| {
        held.key == listed.key && is_same(Some(held), Some(listed), request.is_whole)
    };
    count == Some(expected.len() as u64) && expected.iter().zip(&page.objects).all(is_same)
}

#[cfg(test)]
mod tests;
