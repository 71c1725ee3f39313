//! One event of the history: an object before and after, and the frames in which watchers get it.
//!
//! What a watcher gets depends on whether the object matched its filter before and matches after
//! (semantics.md §5.5), so an event has up to three frames, in each view that some watcher asks for. Each is encoded once, when the first
//! watcher needs it, and its bytes are shared by all. Those of the metadata-only view are boxed, since most events never need them.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::api::media_type::View;
use crate::api::resource_version::ResourceVersion;
use crate::cache::core::filter::WatchFilter;
use crate::cache::core::now::Now;
use crate::codec::frame::{self, EventType};
use crate::codec::object::Object;

/// Which watchers an event is for. A change that a list showed is two events: the one comes before all that is new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Audience {
    /// All.
    All,
    /// Those whose selector the object leaves.
    Leaving,
    /// The others.
    Remaining,
}

/// See the module.
#[derive(Debug)]
pub struct Event {
    resource_version: ResourceVersion,
    applied: Now,
    object: Arc<Object>,
    previous: Option<Arc<Object>>,
    deleted: bool,
    audience: Audience,
    full: ViewFrames,
    metadata: OnceLock<Box<ViewFrames>>,
}

/// The frames of one view.
#[derive(Debug, Default)]
struct ViewFrames {
    added: OnceLock<Bytes>,
    modified: OnceLock<Bytes>,
    deleted: OnceLock<Bytes>,
}

impl Event {
    /// An object was created, or changed from `previous`.
    pub fn upserted(object: Arc<Object>, previous: Option<Arc<Object>>, applied: Now) -> Self {
        Self::new(object.resource_version, object, previous, false, applied)
    }

    /// An object was deleted: as the DELETED event carries it, and as it was before.
    pub fn deleted(object: Arc<Object>, previous: Arc<Object>, applied: Now) -> Self {
        Self::new(object.resource_version, object, Some(previous), true, applied)
    }

    /// An object is in no list any more: when it was deleted, and as what, was not told.
    pub fn deleted_by_relist(
        previous: Arc<Object>,
        resource_version: ResourceVersion,
        applied: Now,
    ) -> Self {
        Self::new(resource_version, Arc::clone(&previous), Some(previous), true, applied)
    }

    /// An object was found changed in a list: what that is to the watchers whose selector it leaves, at this resourceVersion.
    pub fn leaving_selectors(
        object: Arc<Object>,
        previous: Arc<Object>,
        resource_version: ResourceVersion,
        applied: Now,
    ) -> Self {
        let event = Self::new(resource_version, object, Some(previous), false, applied);
        Self { audience: Audience::Leaving, ..event }
    }

    /// An object was found new or changed in a list: what that is to all other watchers.
    pub fn upserted_by_relist(
        object: Arc<Object>,
        previous: Option<Arc<Object>>,
        applied: Now,
    ) -> Self {
        Self { audience: Audience::Remaining, ..Self::upserted(object, previous, applied) }
    }

    fn new(
        resource_version: ResourceVersion,
        object: Arc<Object>,
        previous: Option<Arc<Object>>,
        deleted: bool,
        applied: Now,
    ) -> Self {
        Self {
            resource_version,
            applied,
            object,
            previous,
            deleted,
            audience: Audience::All,
            full: ViewFrames::default(),
            metadata: OnceLock::new(),
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

    /// Whether the object is gone.
    pub fn is_deletion(&self) -> bool {
        self.deleted
    }

    /// The object before the event.
    pub fn previous(&self) -> Option<&Arc<Object>> {
        self.previous.as_ref()
    }

    /// The frame that a watcher with this filter gets; `None` if the event does not concern it.
    pub fn frame(&self, filter: &WatchFilter, view: View) -> Option<Bytes> {
        let previous = self.previous.as_deref().filter(|previous| filter.matches(previous));
        let matches = !self.deleted && filter.matches(&self.object);
        if previous.is_none() && !matches {
            return None;
        }
        let frames = self.frames(view);
        let encode = |event| frame::encode(event, &self.object, view);
        let frame = match (previous, matches) {
            (_, true) if self.audience == Audience::Leaving => return None,
            (_, false) if self.audience == Audience::Remaining => return None,
            (None, true) => frames.added.get_or_init(|| encode(EventType::Added)),
            (Some(_), true) => frames.modified.get_or_init(|| encode(EventType::Modified)),
            (Some(previous), false) => {
                frames.deleted.get_or_init(|| self.encode_deleted(previous, view))
            }
            (None, false) => return None,
        };
        Some(frame.clone())
    }

    /// What only the history keeps alive, in bytes: the object before, a deletion's object, and one frame, which
    /// is the usual number; more exist only where the event crosses the edge of somebody's selector, or in a metadata-only view.
    pub fn weight(&self) -> usize {
        let previous = self.previous.as_ref().map_or(0, |previous| previous.weight());
        let object = if self.deleted { self.object.weight() } else { 0 };
        size_of::<Self>() + previous + object + self.object.body.len()
    }

    fn frames(&self, view: View) -> &ViewFrames {
        match view {
            View::Full => &self.full,
            View::Metadata => self.metadata.get_or_init(Box::default),
        }
    }

    fn encode_deleted(&self, previous: &Object, view: View) -> Bytes {
        if self.deleted && self.object.resource_version == self.resource_version {
            frame::encode(EventType::Deleted, &self.object, view)
        } else {
            frame::encode_left(previous, self.resource_version, view)
        }
    }
}
