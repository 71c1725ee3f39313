//! Watch caches that hold pods, and their watchers.

use std::time::Duration;

use bytes::Bytes;
use weir::api::resource::GroupVersionResource;
use weir::api::selectable::SelectableFields;
use weir::api::selector::field::FieldSelector;
use weir::api::selector::label::LabelSelector;
use weir::cache::core::watch_cache::{Now, WatchCache, WindowLimits};
use weir::cache::core::watcher::{Batch, WatchFilter, WatchStart, Watcher};
use weir::codec::object::Object;

use crate::pods::{Pods, namespace, node, resource_version};

/// The limits that a reflector uses for a resource with frequent changes.
const LIMITS: WindowLimits = WindowLimits {
    events_min: 100,
    events_max: 1_000,
    age: Duration::from_secs(75),
    bytes_max: 128 << 20,
    unread_from: u64::MAX,
    unread_bytes_max: 0,
};

/// The time of every event: none expires by age.
pub(crate) const NOW: Now = Now(Duration::ZERO);

pub(crate) fn cache(objects: Vec<Object>) -> WatchCache {
    let fields = SelectableFields::built_in(&GroupVersionResource::new("", "v1", "pods"));
    let cache = WatchCache::new(LIMITS).with_index(fields.indexed());
    assert!(cache.replace(objects, resource_version(0)));
    cache
}

pub(crate) fn node_filter(pods: &Pods, number: usize) -> WatchFilter {
    let text = format!("spec.nodeName={}", node(number));
    let fields = FieldSelector::parse(&text, &pods.resource.selectable).expect("a selector");
    WatchFilter { fields, ..WatchFilter::default() }
}

pub(crate) fn namespace_filter(number: usize) -> WatchFilter {
    WatchFilter { namespace: Some(namespace(number).into()), ..WatchFilter::default() }
}

/// Matches half of all pods.
pub(crate) fn half_filter() -> WatchFilter {
    let labels = LabelSelector::parse("half=half-1").expect("a selector");
    WatchFilter { labels, ..WatchFilter::default() }
}

/// Starts a watch of the events after the current state.
pub(crate) fn watch(cache: &WatchCache, filter: WatchFilter) -> Watcher {
    cache.watch(filter, WatchStart::Now).expect("the cache is ready")
}

/// Returns the frames of all pending events.
pub(crate) fn next_frames(watcher: &mut Watcher) -> Vec<Bytes> {
    match watcher.next_batch(1 << 20) {
        Batch::Frames { chunks, .. } => chunks.into_vec(),
        Batch::Idle => Vec::new(),
        other => unreachable!("{other:?}"),
    }
}
