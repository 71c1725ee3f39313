//! One event of the history: an object before and after, and the frames in which watchers get it.
//!
//! What a watcher gets depends on whether the object matched its filter before and matches after
//! (semantics.md §5.5), so an event has up to three forms. Each is encoded once, when the first watcher needs it,
//! and its bytes are shared by all.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::api::media_type::View;
use crate::api::resource_version::ResourceVersion;
use crate::cache::core::filter::WatchFilter;
use crate::cache::core::watch_cache::Now;
use crate::codec::frame::{self, EventType};
use crate::codec::object::Object;

/// See the module.
#[derive(Debug)]
pub struct Event {
    resource_version: ResourceVersion,
    applied: Now,
    object: Arc<Object>,
    previous: Option<Arc<Object>>,
    deleted: bool,
    added: OnceLock<Bytes>,
    modified: OnceLock<Bytes>,
    gone: OnceLock<Bytes>,
}

impl Event {
    /// An object was created, or changed from `previous`.
    pub fn upserted(object: Arc<Object>, previous: Option<Arc<Object>>, applied: Now) -> Self {
        Self::new(object, previous, false, applied)
    }

    /// An object was deleted: as the DELETED event carries it, and as it was before.
    pub fn deleted(object: Arc<Object>, previous: Arc<Object>, applied: Now) -> Self {
        Self::new(object, Some(previous), true, applied)
    }

    fn new(
        object: Arc<Object>,
        previous: Option<Arc<Object>>,
        deleted: bool,
        applied: Now,
    ) -> Self {
        Self {
            resource_version: object.resource_version,
            applied,
            object,
            previous,
            deleted,
            added: OnceLock::new(),
            modified: OnceLock::new(),
            gone: OnceLock::new(),
        }
    }

    /// The resourceVersion at which it happened.
    pub fn resource_version(&self) -> ResourceVersion {
        self.resource_version
    }

    /// When it was applied.
    pub fn applied(&self) -> Now {
        self.applied
    }

    /// The object after the event; of a deletion, its last state with the event's resourceVersion.
    pub fn object(&self) -> &Arc<Object> {
        &self.object
    }

    /// The object before the event.
    pub fn previous(&self) -> Option<&Arc<Object>> {
        self.previous.as_ref()
    }

    /// The frame that a watcher with this filter gets; `None` if the event does not concern it.
    pub fn frame(&self, filter: &WatchFilter, view: View) -> Option<Bytes> {
        let previous = self.previous.as_deref().filter(|previous| filter.matches(previous));
        let matches = !self.deleted && filter.matches(&self.object);
        let frame = match (previous, matches) {
            (None, true) => {
                self.added.get_or_init(|| frame::encode(EventType::Added, &self.object, view))
            }
            (Some(_), true) => {
                self.modified.get_or_init(|| frame::encode(EventType::Modified, &self.object, view))
            }
            (Some(previous), false) => self.gone.get_or_init(|| self.encode_gone(previous, view)),
            (None, false) => return None,
        };
        Some(frame.clone())
    }

    /// What only the history keeps alive, in bytes: the object before, a deletion's object, and one frame, which
    /// is the usual number; more forms exist only where the event crosses the edge of somebody's selector.
    pub fn weight(&self) -> usize {
        let previous = self.previous.as_ref().map_or(0, |previous| previous.weight());
        let object = if self.deleted { self.object.weight() } else { 0 };
        size_of::<Self>() + previous + object + self.object.body.len()
    }

    fn encode_gone(&self, previous: &Object, view: View) -> Bytes {
        if self.deleted {
            frame::encode(EventType::Deleted, &self.object, view)
        } else {
            frame::encode_left(previous, self.resource_version, view)
        }
    }
}
