//! Watch caches with pods in them, and those who watch.

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

/// As a reflector's of a resource with many changes.
const LIMITS: WindowLimits = WindowLimits {
    events_min: 100,
    events_max: 1_000,
    age: Duration::from_secs(75),
    bytes_max: 128 << 20,
};

/// No event is older than another.
pub(crate) const NOW: Now = Now(Duration::ZERO);

pub(crate) fn cache(objects: Vec<Object>) -> WatchCache {
    let fields = SelectableFields::built_in(&GroupVersionResource::new("", "v1", "pods"));
    let cache = WatchCache::new(LIMITS).with_index(fields.indexed());
    assert!(cache.replace(objects, resource_version(0), NOW));
    cache
}

pub(crate) fn of_node(pods: &Pods, number: usize) -> WatchFilter {
    let text = format!("spec.nodeName={}", node(number));
    let fields = FieldSelector::parse(&text, &pods.resource.selectable).expect("a selector");
    WatchFilter { fields, ..WatchFilter::default() }
}

pub(crate) fn of_namespace(number: usize) -> WatchFilter {
    WatchFilter { namespace: Some(namespace(number).into()), ..WatchFilter::default() }
}

/// Half of all.
pub(crate) fn of_half() -> WatchFilter {
    let labels = LabelSelector::parse("half=half-1").expect("a selector");
    WatchFilter { labels, ..WatchFilter::default() }
}

/// Of what comes from now on.
pub(crate) fn watch(cache: &WatchCache, filter: WatchFilter) -> Watcher {
    cache.watch(filter, WatchStart::Now).expect("it is ready")
}

/// What is due, in frames.
pub(crate) fn take(watcher: &mut Watcher) -> Vec<Bytes> {
    match watcher.next_batch(1 << 20) {
        Batch::Frames { chunks, .. } => chunks.into_vec(),
        Batch::Idle => Vec::new(),
        other => unreachable!("{other:?}"),
    }
}
