//! The order of the events of one watch.
//!
//! An API server sends the events of a resource by ascending resourceVersion (`docs/semantics.md`
//! §5.11). The cache ignores an event that is not newer than its state. So it ignores an event that
//! comes too late, and lacks what that event says. The pages of the cache are then compared with
//! the API server at once (`docs/decisions/disordered-events.md`).
//!
//! An API server may send the same event twice in a row, and an old bookmark. Neither changes
//! anything. The events after a bookmark are newer than the bookmark.

use crate::api::resource_version::ResourceVersion;
use crate::codec::object::Key;
use crate::upstream::lister_watcher::UpstreamEvent;

/// The last event or bookmark of a watch.
#[derive(Debug)]
pub(super) struct EventOrder {
    resource_version: ResourceVersion,
    /// The key of its object; `None` for a bookmark, and for the start.
    key: Option<Key>,
    /// Whether an event that came too late was logged.
    pub(super) is_reported: bool,
}

impl EventOrder {
    /// Starts at the resourceVersion after which the watch begins.
    pub(super) fn after(resource_version: ResourceVersion) -> Self {
        Self { resource_version, key: None, is_reported: false }
    }

    /// Returns the highest resourceVersion of the events and bookmarks.
    pub(super) fn resource_version(&self) -> ResourceVersion {
        self.resource_version
    }

    /// Notes an event. Returns whether it is in order.
    pub(super) fn note(&mut self, event: &UpstreamEvent) -> bool {
        let (at, key) = match event {
            UpstreamEvent::Upsert(object) | UpstreamEvent::Delete(object) => {
                (object.resource_version, Some(&object.key))
            }
            UpstreamEvent::Bookmark { resource_version, .. } => (*resource_version, None),
            UpstreamEvent::Error(_) => return true,
        };
        if at > self.resource_version {
            (self.resource_version, self.key) = (at, key.cloned());
            return true;
        }
        let is_repeated = at == self.resource_version && self.key.as_ref() == key;
        key.is_none() || is_repeated
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::script::{bookmark, object, upsert};

    #[test]
    fn events_ascend_and_may_be_repeated() {
        let mut order = EventOrder::after(ResourceVersion(10));
        assert!(!order.note(&upsert("a", 10)), "not after the start");
        assert!(order.note(&upsert("a", 11)) && order.note(&upsert("a", 11)));
        assert!(!order.note(&upsert("b", 11)), "two writes have two resourceVersions");
        assert!(order.note(&UpstreamEvent::Delete(object("b", 13))));
        assert!(!order.note(&upsert("a", 12)) && !order.note(&upsert("b", 12)));
        assert!(order.note(&bookmark(12, false)) && order.note(&upsert("a", 14)));
        assert!(order.note(&bookmark(16, false)) && order.note(&bookmark(16, false)));
        assert!(!order.note(&upsert("a", 15)) && !order.note(&upsert("a", 16)));
        assert!(order.note(&upsert("a", 17)));
    }
}
