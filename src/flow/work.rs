//! Estimates the seats that a forwarded request takes in the API server, by the rules of
//! kube-apiserver's work estimator (`util/flowcontrol/request/list_work_estimator.go`, with the
//! feature gate SizeBasedListCostEstimate).
//!
//! kube-apiserver knows the number and the mean size of all objects of a resource. Weir knows both
//! where it has a cache; elsewhere it counts the bytes of the response, or of the one before it
//! that was like it. These are as many where no selector leaves objects out. The seats that a write
//! takes for the watchers of its object are not estimated: Weir does not see them.

use crate::plan::Plan;
use weir_api::list_options::ListOptions;
use weir_api::request_info::{RequestInfo, Verb};

/// The work of a forwarded request, as far as it is known before the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// One seat.
    One,
    /// A list, or a watch that begins with the current state.
    List {
        /// Whether the API server's own cache answers, piece by piece.
        from_cache: bool,
        /// The bytes that the API server reads; `None` if unknown.
        bytes: Option<u64>,
    },
    /// The options are invalid, and the API server assumes the most.
    Most,
}

/// The size of all objects of a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CollectionSize {
    /// The number of objects.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Work {
    /// Returns the work of a request. `size` is that of its resource in all namespaces, if known.
    pub fn from_request(info: &RequestInfo, size: Option<CollectionSize>) -> Self {
        if !matches!(info.verb, Verb::List | Verb::Watch) {
            return Self::One;
        }
        let Some(options) = ListOptions::decode(&info.query) else { return Self::Most };
        let is_watch = info.verb == Verb::Watch;
        let begins_now = matches!(&*options.resource_version, "" | "0");
        if is_watch && options.send_initial_events != Some(true) && !begins_now {
            return Self::One;
        }
        let from_cache = is_watch || !reads_storage(&options);
        let is_single = info.resource.as_ref().is_some_and(|resource| !resource.name.is_empty());
        let bytes = size.map(|size| read_bytes(size, &options, from_cache, is_single));
        Self::List { from_cache, bytes }
    }

    /// Returns the bytes of a response whose like was never seen: as many as the limit allows.
    pub fn bytes_at_most(info: &RequestInfo) -> u64 {
        let limit = info.query.first("limit").and_then(|limit| limit.parse().ok());
        let is_of_one = info.resource.as_ref().is_some_and(|resource| !resource.name.is_empty());
        match (info.verb, limit) {
            (Verb::List, _) if is_of_one => OBJECT_BYTES,
            (Verb::List, None | Some(0)) => u64::MAX,
            (Verb::List, Some(limit)) => OBJECT_BYTES.saturating_mul(limit),
            _ => 0,
        }
    }

    /// Returns the seats. `response_bytes` count where the size of the resource is unknown.
    pub fn seats(self, response_bytes: u64, seats_max: u64) -> u64 {
        let bytes = match self {
            Self::One => return 1,
            Self::Most => return seats_max,
            Self::List { from_cache, bytes } => {
                let bytes = bytes.unwrap_or(response_bytes);
                if from_cache { bytes.min(CACHE_BYTES_MAX) } else { bytes }
            }
        };
        bytes.div_ceil(SEAT_BYTES).clamp(1, seats_max.max(1))
    }
}

/// Returns the most seats of one list in a level, in an API server with the default limits.
pub fn seats_max(plan: &Plan, level: &str) -> u64 {
    let level = plan.level_named(level).and_then(|level| Some((level, level.queuing?.hand_size)));
    let Some((level, hand)) = level else { return LIST_SEATS_MAX };
    let nominal = (SERVER_SEATS * u64::from(level.shares)).div_ceil(plan.shares().max(1));
    let share = (nominal * LEVEL_PERCENT_MAX).div_ceil(100);
    share.min(nominal / u64::from(hand).max(1)).clamp(1, LIST_SEATS_MAX)
}

/// Whether the API server reads a list from etcd (`delegator.ShouldDelegateListMeta`).
fn reads_storage(options: &ListOptions) -> bool {
    match &*options.resource_version_match {
        "Exact" => true,
        "NotOlderThan" => false,
        _ => {
            let has_version = !matches!(&*options.resource_version, "" | "0");
            !options.continue_token.is_empty() || (has_version && options.limit > 0)
        }
    }
}

fn read_bytes(size: CollectionSize, options: &ListOptions, from_cache: bool, single: bool) -> u64 {
    let CollectionSize { objects, bytes } = size;
    let limited = match u64::try_from(options.limit) {
        Ok(limit) if limit > 0 => limit.min(objects),
        _ => objects,
    };
    let selects = !options.label_selector.is_empty() || !options.field_selector.is_empty();
    let read = match (single, from_cache) {
        (true, _) => 1,
        (false, false) if selects => limited.max(objects / 2),
        (false, _) => limited,
    };
    bytes.checked_div(objects).map_or(0, |mean| mean.saturating_mul(read))
}

/// `bytesPerSeat`.
const SEAT_BYTES: u64 = 100_000;
/// The size of an object of an unknown resource.
const OBJECT_BYTES: u64 = 2_000;
/// `cacheWithStreamingMaxMemoryUsage`.
const CACHE_BYTES_MAX: u64 = 1_000_000;
/// `MaximumListSeatsLimit`.
pub const LIST_SEATS_MAX: u64 = 100;
/// `--max-requests-inflight` and `--max-mutating-requests-inflight` by default.
const SERVER_SEATS: u64 = 600;
/// The part of a level that one request may take.
const LEVEL_PERCENT_MAX: u64 = 15;

#[cfg(test)]
mod tests;
