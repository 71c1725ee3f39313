//! An event of the history: an object before and after a change, and the frames sent to watchers.
//!
//! The frame for a watcher depends on whether the object matched its filter before the change and
//! matches after it (`docs/semantics.md` §5.5). An event therefore has up to three frames in each
//! view that a watcher requests. Each frame is encoded, or compressed, when the first watcher needs
//! it, and all watchers share its bytes. The frames of all but the full view, and compressed ones,
//! are boxed, since most events never need them.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;

use crate::api::media_type::View;
use crate::api::resource_version::ResourceVersion;
use crate::cache::core::filter::WatchFilter;
use crate::codec::attrs::Attrs;
use crate::codec::frame::{self, EventType};
use crate::codec::gzip;
use crate::codec::object::Object;

/// The time since a fixed start of the caller's choice. Callers pass it: the core reads no clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Now(pub Duration);

/// The watchers that an event is for. A relist makes two events of one changed object: the first,
/// for the watchers whose selector no longer matches, comes before everything that is new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Audience {
    /// All watchers.
    All,
    /// The watchers whose selector matched the object before, but no longer does.
    Leaving,
    /// All other watchers.
    Remaining,
}

/// A change of one object.
#[derive(Debug)]
pub struct Event {
    resource_version: ResourceVersion,
    received: Now,
    object: Arc<Object>,
    previous: Option<Arc<Object>>,
    deleted: bool,
    audience: Audience,
    full: ViewFrames,
    metadata: OnceLock<Box<ViewFrames>>,
    /// Those without managed fields: of the whole object, and of the metadata.
    without_managers: OnceLock<Box<[ViewFrames; 2]>>,
}

/// The encoded frames in one view.
#[derive(Debug, Default)]
struct ViewFrames {
    plain: FrameSet,
    compressed: OnceLock<Box<FrameSet>>,
}

/// The frames of an event for the watchers to whom it is an addition, a change or a deletion.
#[derive(Debug, Default)]
struct FrameSet {
    added: OnceLock<Bytes>,
    modified: OnceLock<Bytes>,
    deleted: OnceLock<Bytes>,
}

impl FrameSet {
    fn get(&self, event: EventType) -> &OnceLock<Bytes> {
        match event {
            EventType::Added => &self.added,
            EventType::Modified => &self.modified,
            EventType::Deleted => &self.deleted,
        }
    }
}

impl Event {
    /// An object was created, or changed from `previous`.
    pub fn upserted(object: Arc<Object>, previous: Option<Arc<Object>>, received: Now) -> Self {
        Self::new(object.resource_version, object, previous, false, received)
    }

    /// An object was deleted. `object` is from the DELETED event, `previous` is the object before
    /// it.
    pub fn deleted(object: Arc<Object>, previous: Arc<Object>, received: Now) -> Self {
        Self::new(object.resource_version, object, Some(previous), true, received)
    }

    /// A relist no longer contained the object. The time and the last state of the deletion are
    /// unknown.
    pub fn deleted_by_relist(
        previous: Arc<Object>,
        resource_version: ResourceVersion,
        received: Now,
    ) -> Self {
        Self::new(resource_version, Arc::clone(&previous), Some(previous), true, received)
    }

    /// A relist contained a changed object. This event, at `resource_version`, is for the watchers
    /// whose selector the object no longer matches.
    pub fn leaving_selectors(
        object: Arc<Object>,
        previous: Arc<Object>,
        resource_version: ResourceVersion,
        received: Now,
    ) -> Self {
        let event = Self::new(resource_version, object, Some(previous), false, received);
        Self { audience: Audience::Leaving, ..event }
    }

    /// A relist contained a new or changed object. This event is for all other watchers.
    pub fn upserted_by_relist(
        object: Arc<Object>,
        previous: Option<Arc<Object>>,
        received: Now,
    ) -> Self {
        Self { audience: Audience::Remaining, ..Self::upserted(object, previous, received) }
    }

    fn new(
        resource_version: ResourceVersion,
        object: Arc<Object>,
        previous: Option<Arc<Object>>,
        deleted: bool,
        received: Now,
    ) -> Self {
        Self {
            resource_version,
            received,
            object,
            previous,
            deleted,
            audience: Audience::All,
            full: ViewFrames::default(),
            metadata: OnceLock::new(),
            without_managers: OnceLock::new(),
        }
    }

    /// Returns the resourceVersion of the change.
    pub fn resource_version(&self) -> ResourceVersion {
        self.resource_version
    }

    /// Returns when the change was received.
    pub fn received(&self) -> Now {
        self.received
    }

    /// Returns the object after the change; for a deletion, its last state with the resourceVersion
    /// of the event.
    pub fn object(&self) -> &Arc<Object> {
        &self.object
    }

    /// Returns whether the object was deleted.
    pub fn is_deletion(&self) -> bool {
        self.deleted
    }

    /// Returns the object before the change.
    pub fn previous(&self) -> Option<&Arc<Object>> {
        self.previous.as_ref()
    }

    /// Returns the attributes of the object before the change, and after it unless it was deleted.
    /// They decide for which filters the event is. Equal ones, as most are, are returned once.
    pub(super) fn attrs(&self) -> impl Iterator<Item = Attrs<'_>> {
        let previous = self.previous.as_ref().map(|previous| previous.attrs());
        let object = Some(self.object.attrs()).filter(|_| !self.deleted);
        previous.into_iter().chain(object.filter(|attrs| Some(*attrs) != previous))
    }

    /// Returns the frame for a watcher with this filter, or `None` if the event is not for it.
    pub fn frame(&self, filter: &WatchFilter, view: View) -> Option<Bytes> {
        let event = self.event_for(filter)?;
        let frames = &self.frames(view).plain;
        Some(frames.get(event).get_or_init(|| self.encode(event, view)).clone())
    }

    /// Returns that frame as a gzip member.
    pub fn compressed_frame(&self, filter: &WatchFilter, view: View) -> Option<Bytes> {
        let event = self.event_for(filter)?;
        let frames = self.frames(view);
        let compress = || match frames.plain.get(event).get() {
            Some(plain) => gzip::to_member(plain),
            None => gzip::to_member(&self.encode(event, view)),
        };
        let compressed = frames.compressed.get_or_init(Box::default);
        Some(compressed.get(event).get_or_init(compress).clone())
    }

    /// Returns what the event is to a watcher with this filter, or `None` if it is not for it.
    pub(super) fn event_for(&self, filter: &WatchFilter) -> Option<EventType> {
        let matched = self.previous.as_deref().is_some_and(|previous| filter.matches(previous));
        let matches = !self.deleted && filter.matches(&self.object);
        match (matched, matches) {
            (_, true) if self.audience == Audience::Leaving => None,
            (_, false) if self.audience == Audience::Remaining => None,
            (false, true) => Some(EventType::Added),
            (true, true) => Some(EventType::Modified),
            (true, false) => Some(EventType::Deleted),
            (false, false) => None,
        }
    }

    /// Returns the size in bytes of the data that only the history keeps alive: the previous
    /// object, the object of a deletion, and one frame. More frames exist only if the object starts
    /// or stops matching some selector, or in other views; a compressed one is small beside it.
    pub fn weight(&self) -> usize {
        let previous = self.previous.as_ref().map_or(0, |previous| previous.weight());
        let object = if self.deleted { self.object.weight() } else { 0 };
        size_of::<Self>() + previous + object + self.object.body().len()
    }

    fn frames(&self, view: View) -> &ViewFrames {
        match view {
            View::Full => &self.full,
            View::Metadata => self.metadata.get_or_init(Box::default),
            View::FullWithoutManagers | View::MetadataWithoutManagers => {
                let [full, metadata] = &**self.without_managers.get_or_init(Box::default);
                if view.is_metadata() { metadata } else { full }
            }
        }
    }

    fn encode(&self, event: EventType, view: View) -> Bytes {
        let has_deleted_object =
            self.deleted && self.object.resource_version == self.resource_version;
        match &self.previous {
            Some(previous) if event == EventType::Deleted && !has_deleted_object => {
                frame::encode_left_selector(previous, self.resource_version, view)
            }
            _ => frame::encode(event, &self.object, view),
        }
    }
}
