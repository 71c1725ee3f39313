//! W8: nobody is shown another object under a name that it holds, without the deletion of the
//! first.
//!
//! W2 between two claims: a client can be cut after each event, and resume elsewhere from the
//! resourceVersion of that event. The objects that it holds and the events after that one must give
//! the right state.
//!
//! This matters for the difference of a relist, whose events are at resourceVersions that the
//! client's objects do not show.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::Checker;
use super::stream::{Notice, StreamCheck};
use crate::resources::Selection;
use crate::write_log::{Epoch, Version};

impl Checker {
    /// Returns whether a client that resumes with what it received in an epoch holds a lost
    /// history, and the target cannot know: no cache of it has shown that, or it was restarted
    /// after the end of that epoch, or shortly before. Its watch shows what comes after its
    /// resourceVersion, as that of an API server does.
    pub(crate) fn is_lost_unnoticed(&self, target: &str, epoch: usize, is_forwarded: bool) -> bool {
        let inner = self.0.lock();
        let Some(ended) = inner.write_log.epoch(epoch).ended else { return false };
        let restart = inner.restarts.get(target);
        is_forwarded || restart.is_some_and(|restart| restart.started + FIRST_READS > ended)
    }

    /// W8: checks that an event of an object has the uid of the one that its client holds under
    /// that name.
    pub(crate) fn same_uid(
        &self,
        stream: &StreamCheck,
        notice: &Notice,
        store: &BTreeMap<String, Box<[u8]>>,
    ) {
        let (Notice::Put { key, uid, revision, .. } | Notice::Deleted { key, uid, revision }) =
            notice
        else {
            return;
        };
        let mut inner = self.0.lock();
        inner.checked("W8");
        let Some(held) = store.get(key) else { return };
        let (text, wanted) = (&**held, format!("\"uid\":\"{uid}\""));
        if text.windows(wanted.len()).any(|part| part == wanted.as_bytes()) {
            return;
        }
        let held: Value = serde_json::from_slice(held).unwrap_or_default();
        if held["metadata"]["uid"] != **uid {
            let path = stream.selection().path("");
            let what = format!(
                "{path} from {}: the event at {revision} of {key} has the uid {uid}, and its client \
                 holds {}",
                stream.target(),
                held["metadata"]["uid"]
            );
            inner.violated("W8", what);
        }
    }

    /// Checks that a client with these objects can resume after an event at `revision`.
    pub(crate) fn resumable(
        &self,
        stream: &StreamCheck,
        revision: u64,
        store: &BTreeMap<String, Box<[u8]>>,
    ) {
        let mut inner = self.0.lock();
        inner.write_log.now();
        inner.checked("W2");
        let (selection, target) = (stream.selection(), stream.target());
        let mut problem = String::new();
        for epoch in inner.write_log.candidates(stream.begun()) {
            match lost(inner.write_log.epoch(epoch), selection, revision, store) {
                None => return,
                Some(key) => problem = key,
            }
        }
        let path = selection.path("");
        let what = format!(
            "{path} from {target}: a client that resumes at {revision} elsewhere never learns the \
             state of {problem}"
        );
        inner.violated("W2", what);
    }
}

/// Returns an object that is wrong, and of which no event after `revision` comes, nor a 410.
fn lost(
    epoch: &Epoch,
    selection: &Selection,
    revision: u64,
    store: &BTreeMap<String, Box<[u8]>>,
) -> Option<String> {
    if revision < epoch.began_at {
        return None;
    }
    let log = epoch.log(selection.resource)?;
    let state = epoch.state(selection, revision);
    let is_right =
        |version: &&Version| store.get(&*version.key).is_some_and(|bytes| **bytes == *version.json);
    let differing = state.iter().filter(|version| !is_right(version)).map(|version| &*version.key);
    let extra = store.keys().map(String::as_str);
    let extra = extra.filter(|key| !state.iter().any(|version| *version.key == **key));
    differing.chain(extra).find(|key| !log.has_event(selection, key, revision)).map(str::to_owned)
}

/// In this time after its start a Weir may have no cache of a resource.
const FIRST_READS: Duration = Duration::from_secs(30);
