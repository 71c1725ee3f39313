//! The bookmarks of a cache, and how their form becomes known before a client needs it.

use std::time::Duration;

use bytes::Bytes;

use super::CacheHandle;
use crate::api::media_type::View;
use crate::api::resource_version::ResourceVersion;
use crate::cache::watch_list_attempt;

impl CacheHandle {
    /// Returns a BOOKMARK frame in `view`; `None` until the form of this resource's bookmarks is
    /// known.
    pub fn bookmark(
        &self,
        resource_version: ResourceVersion,
        initial_events_end: bool,
        view: View,
    ) -> Option<Bytes> {
        self.cached().learned.bookmark(resource_version, initial_events_end, view)
    }

    /// Learns, in the background, what [`Self::bookmark`] and [`Self::upstream_has_watch_list`]
    /// return, unless it is known or a list that fills the cache will show it. A request that will
    /// need it calls this before it waits for anything else.
    pub(crate) fn expect_bookmark(&self) {
        let cached = self.cached();
        // A cache that lists by a watch-list needs no attempt.
        let shows_itself = || cached.watch_cache.state().is_none() && !cached.streams_lists();
        if watch_list_attempt::is_needed(cached) && !shows_itself() {
            // Nobody waits for it here.
            drop(watch_list_attempt::start(cached));
        }
    }

    /// Waits at most `timeout` until it is known what [`Self::bookmark`] and
    /// [`Self::upstream_has_watch_list`] return, or until the upstream did not show it.
    pub(crate) async fn learn_bookmark(&self, timeout: Duration) {
        watch_list_attempt::learn_if_needed(self.cached(), timeout).await;
    }

    /// Returns whether the upstream supports watch-lists; `None` while this is unknown. An upstream
    /// with watch-lists accepts `sendInitialEvents`, and sends the initial-events-end bookmark
    /// without a request for bookmarks (`docs/semantics.md` §1.4). If the upstream has no
    /// watch-lists, Weir's clients must get neither.
    pub fn upstream_has_watch_list(&self) -> Option<bool> {
        self.cached().context.watch_list.last_answer()
    }
}
