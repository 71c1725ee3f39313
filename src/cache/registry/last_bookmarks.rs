//! Before Weir drains, the form of the bookmarks with which its watches will end.
//!
//! A cache of a quiet resource may not have needed a bookmark yet ([`watch_list_attempt`]). A watch
//! that ends without one goes on from its last event, which may be too old
//! (`docs/decisions/drain.md`).

use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::time::timeout;

use super::Registry;
use crate::cache::watch_list_attempt;

impl Registry {
    /// Learns the form of a bookmark for each cache that has watchers and does not know it. Takes
    /// at most [`LAST_BOOKMARKS_WAIT`]. Cancel safe.
    pub(crate) async fn learn_last_bookmarks(&self) {
        let caches = self.inner.caches.all().into_iter();
        let lacking = caches.filter(|cached| {
            cached.watch_cache.watchers() > 0 && watch_list_attempt::lacks_bookmark(cached)
        });
        let learning =
            stream::iter(lacking).for_each_concurrent(ATTEMPTS_MAX, |cached| async move {
                watch_list_attempt::learn_if_needed(&cached, LAST_BOOKMARKS_WAIT).await;
            });
        let _elapsed = timeout(LAST_BOOKMARKS_WAIT, learning).await;
    }
}

/// How much later a drain may begin for the sake of last bookmarks.
const LAST_BOOKMARKS_WAIT: Duration = Duration::from_secs(1);
/// Attempts of different caches at the same time.
const ATTEMPTS_MAX: usize = 8;
