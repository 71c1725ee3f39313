//! The order of the events of one watch.
//!
//! An API server sends the events of a resource by ascending resourceVersion (`docs/semantics.md`
//! §5.11). The cache ignores an event that is not newer than its state. So it ignores an event that
//! comes too late, and lacks the change in that event. The pages of the cache are then compared
//! with the API server at once (`docs/decisions/verified-caches.md`).
//!
//! An API server may send the same event twice in a row, and an old bookmark. Neither changes
//! anything. The events after a bookmark are newer than the bookmark.

use std::sync::Arc;

use crate::api::resource_version::ResourceVersion;
use crate::codec::object::Key;
use crate::upstream::lister_watcher::UpstreamEvent;

/// The last event or bookmark of a watch.
#[derive(Debug)]
pub(super) struct EventOrder {
    resource_version: ResourceVersion,
    subject: Subject,
    /// Whether an event that came too late was logged.
    pub(super) is_reported: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Subject {
    /// No object: a bookmark, or the start.
    Nothing,
    /// An object was created or changed.
    Upsert(Key),
    /// An object was deleted.
    Delete(Key),
    /// An object that cannot be read, by its uid, and whether it was deleted.
    Unreadable(Arc<str>, bool),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It is newer than all before it, or says nothing of an object.
    Next,
    /// It is the same as the one before it.
    Repeated,
    /// It came too late.
    Late,
}

impl EventOrder {
    /// Starts at the resourceVersion after which the watch begins.
    pub(super) fn after(resource_version: ResourceVersion) -> Self {
        Self { resource_version, subject: Subject::Nothing, is_reported: false }
    }

    /// Returns the highest resourceVersion of the events and bookmarks.
    pub(super) fn resource_version(&self) -> ResourceVersion {
        self.resource_version
    }

    /// Notes an event. Returns its place.
    pub(super) fn note(&mut self, event: &UpstreamEvent) -> Place {
        let (at, subject) = match event {
            UpstreamEvent::Upsert(object) => {
                (object.resource_version, Subject::Upsert(object.key.clone()))
            }
            UpstreamEvent::Delete(object) => {
                (object.resource_version, Subject::Delete(object.key.clone()))
            }
            UpstreamEvent::Unreadable { object, is_deletion } => {
                let uid = Arc::clone(&object.uid);
                (object.resource_version, Subject::Unreadable(uid, *is_deletion))
            }
            UpstreamEvent::Bookmark { resource_version, .. } => {
                (*resource_version, Subject::Nothing)
            }
            UpstreamEvent::Error(_) => return Place::Next,
        };
        if at > self.resource_version {
            (self.resource_version, self.subject) = (at, subject);
            return Place::Next;
        }
        let is_repeated = at == self.resource_version && self.subject == subject;
        match subject {
            Subject::Nothing => Place::Next,
            _ if is_repeated => Place::Repeated,
            _ => Place::Late,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::script::{bookmark, object, upsert};

    #[test]
    fn events_ascend_and_may_be_repeated() {
        use Place::{Late, Next, Repeated};
        let mut order = EventOrder::after(ResourceVersion(10));
        let deleted = |name, at| UpstreamEvent::Delete(object(name, at));
        for (event, place) in [
            (upsert("a", 10), Late),
            (upsert("a", 11), Next),
            (upsert("a", 11), Repeated),
            // Two writes have two resourceVersions.
            (upsert("b", 11), Late),
            (deleted("a", 11), Late),
            (deleted("b", 13), Next),
            (deleted("b", 13), Repeated),
            (upsert("b", 13), Late),
            (upsert("a", 12), Late),
            (upsert("b", 12), Late),
            (bookmark(12, false), Next),
            (upsert("a", 14), Next),
            (bookmark(16, false), Next),
            (bookmark(16, false), Next),
            (upsert("a", 15), Late),
            (upsert("a", 16), Late),
            (upsert("a", 17), Next),
        ] {
            assert_eq!(order.note(&event), place, "{event:?}");
        }
    }
}
