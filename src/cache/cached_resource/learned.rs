//! The properties of a resource that its cache learns from upstream responses.
//!
//! No locks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::{ArcSwap, ArcSwapOption, Guard};
use bytes::Bytes;
use http::HeaderValue;

use crate::api::media_type::View;
use crate::api::resource::{ApiResource, Representation};
use crate::api::resource_version::ResourceVersion;
use crate::codec::bookmark::BookmarkTemplate;

/// The learned properties of a resource.
pub(crate) struct LearnedTraits {
    /// The template of the bookmarks until the first one was seen.
    minimal_bookmark: Option<BookmarkTemplate>,
    bookmark_template: ArcSwapOption<BookmarkTemplate>,
    /// Whether the template is of another version.
    is_doubted: AtomicBool,
    warnings: ArcSwap<Vec<HeaderValue>>,
}

impl LearnedTraits {
    /// Nothing is learned yet.
    pub(crate) fn new(resource: &ApiResource, representation: Representation) -> Self {
        Self {
            minimal_bookmark: BookmarkTemplate::minimal(resource, representation),
            bookmark_template: ArcSwapOption::empty(),
            is_doubted: AtomicBool::new(false),
            warnings: ArcSwap::default(),
        }
    }

    /// Learns how the upstream writes a bookmark of this resource from the object of one. The
    /// newest form is kept: an upgraded upstream may write its bookmarks differently.
    pub(crate) fn learn_bookmark(&self, object: &[u8]) {
        // The end of a streamed list has none.
        if object.is_empty() {
            return;
        }
        let known = self.bookmark_template.load();
        let known = known.as_deref().filter(|_| !self.is_doubted.swap(false, Ordering::Relaxed));
        if let Some(template) = BookmarkTemplate::learned(known, object) {
            self.bookmark_template.store(Some(Arc::new(template)));
        }
    }

    /// Lets the next bookmark replace the form whatever it is, because the version of the upstream
    /// changed.
    pub(crate) fn doubt_bookmark(&self) {
        self.is_doubted.store(true, Ordering::Relaxed);
    }

    /// Whether a bookmark of the upstream was seen.
    pub(crate) fn has_bookmark(&self) -> bool {
        self.bookmark_template.load().is_some()
    }

    /// Returns a BOOKMARK frame in `view`. `None` only if the definition of the resource names no
    /// valid kind.
    pub(crate) fn bookmark(
        &self,
        resource_version: ResourceVersion,
        initial_events_end: bool,
        view: View,
    ) -> Option<Bytes> {
        let learned = self.bookmark_template.load();
        let template = learned.as_deref().or(self.minimal_bookmark.as_ref());
        template.map(|template| template.frame(resource_version, initial_events_end, view))
    }

    /// Sets the `Warning` headers to those of the upstream's last response (`docs/semantics.md`
    /// §8.8).
    pub(crate) fn set_warnings(&self, values: Vec<HeaderValue>) {
        if **self.warnings.load() != values {
            self.warnings.store(Arc::new(values));
        }
    }

    /// Returns the `Warning` headers that the upstream sends with this resource.
    pub(crate) fn warnings(&self) -> Guard<Arc<Vec<HeaderValue>>> {
        self.warnings.load()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::resource::{GroupVersionResource, built_in};

    /// In protobuf, and in JSON without a zero time, the periodic bookmark is the same before and
    /// after such an upgrade.
    #[test]
    fn after_an_upgrade_the_next_bookmark_replaces_what_was_seen() {
        let pods = built_in(GroupVersionResource::new("", "v1", "pods"), "Pod");
        let learned = LearnedTraits::new(&pods, Representation::Json);
        let periodic = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"5"}}"#;
        let pair = r#""k8s.io/initial-events-end":"true""#;
        let list = r#""kubernetes.io/initial-events-list-blueprint":"eyJr""#;
        let annotated = format!(r#""5","annotations":{{{pair},{list}}}"#);
        let end = periodic.replace(r#""5""#, &annotated);
        learned.learn_bookmark(end.as_bytes());
        let has_list = || {
            let frame = learned.bookmark(ResourceVersion(5), true, View::Full).unwrap();
            String::from_utf8(frame.to_vec()).unwrap().contains(list)
        };
        learned.learn_bookmark(periodic.as_bytes());
        assert!(has_list());
        learned.doubt_bookmark();
        // The end of a streamed list.
        learned.learn_bookmark(b"");
        assert!(has_list(), "until the next one");
        learned.learn_bookmark(periodic.as_bytes());
        assert!(!has_list());
    }
}
