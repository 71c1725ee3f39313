//! The checks against the truth: every state that was listed, and every event of every informer.

use std::collections::BTreeMap;

use super::informer::{Run, digest, digest_of};
use super::objects::Scope;
use super::reference::{Change, History, Key, Kind};
use super::report::Listed;

/// The histories of all scopes, ready to be searched.
pub(super) struct Timelines {
    histories: Vec<BTreeMap<Scope, Timeline>>,
}

/// One scope in one history.
struct Timeline {
    base: (u64, u64),
    changes: Vec<Change>,
    /// The digest after each change.
    digests: Vec<u64>,
}

impl Timelines {
    pub(super) fn new(histories: &[History]) -> Self {
        let timelines = |history: &History| {
            let scopes = Scope::every_scope().into_iter();
            scopes.map(|scope| (scope, Timeline::new(history, scope))).collect()
        };
        Self { histories: histories.iter().map(timelines).collect() }
    }

    /// Returns what is wrong with a listed state.
    pub(super) fn check_list(&self, listed: &Listed) -> Option<String> {
        let right = |timeline: &Timeline| timeline.digest_at(listed.at) == Some(listed.digest);
        let of_number = listed.history.map(|number| &self.histories[number - 1][&listed.scope]);
        let is_right = match of_number {
            Some(timeline) => right(timeline),
            None => self.timelines_of(listed.scope).any(right),
        };
        (!is_right).then(|| format!("{} at {}: not the state of etcd", listed.what, listed.at))
    }

    /// Compares a run with the histories. It must be a contiguous part of one, or lead to its
    /// states.
    pub(super) fn check_run(&self, scope: Scope, run: &Run) -> Verdict {
        let verdicts: Vec<_> =
            self.timelines_of(scope).map(|timeline| timeline.check_run(run)).collect();
        if let Some(right) = verdicts.iter().find(|verdict| !matches!(verdict, Verdict::Wrong(_))) {
            return right.clone();
        }
        let texts = verdicts.iter().map(|verdict| match verdict {
            Verdict::Wrong(text) => text.as_str(),
            _ => "",
        });
        let texts: Vec<_> = texts.collect();
        let (from, reached) = (run.from, run.reached);
        Verdict::Wrong(format!("{scope}, events in ({from}, {reached}]: {}", texts.join("; or ")))
    }

    fn timelines_of(&self, scope: Scope) -> impl Iterator<Item = &Timeline> {
        self.histories.iter().filter_map(move |history| history.get(&scope))
    }
}

impl Timeline {
    fn new(history: &History, scope: Scope) -> Self {
        let mut objects: BTreeMap<Key, u64> = history.base.0.clone();
        objects.retain(|key, _| scope.contains(key));
        let base = (history.base.1, digest(&objects));
        let changes: Vec<_> =
            history.changes.iter().filter(|change| scope.contains(&change.key)).cloned().collect();
        let mut now = base.1;
        let mut digests = Vec::new();
        for change in &changes {
            let before = match change.kind {
                Kind::Deleted => objects.remove(&change.key),
                _ => objects.insert(change.key.clone(), change.revision),
            };
            now ^= before.map_or(0, |at| digest_of(&change.key, at));
            now ^= objects.get(&change.key).map_or(0, |at| digest_of(&change.key, *at));
            digests.push(now);
        }
        Self { base, changes, digests }
    }

    /// Returns the digest of the state at a revision; `None` before the first.
    fn digest_at(&self, revision: u64) -> Option<u64> {
        match self.after(revision) {
            0 => (revision >= self.base.0).then_some(self.base.1),
            n => self.digests.get(n - 1).copied(),
        }
    }

    /// Returns how many changes there were up to a revision.
    fn after(&self, revision: u64) -> usize {
        self.changes.partition_point(|change| change.revision <= revision)
    }

    fn check_run(&self, run: &Run) -> Verdict {
        if self.digest_at(run.from) != Some(run.digest) {
            return Verdict::Wrong("another state at the beginning".to_owned());
        }
        let expected = &self.changes[self.after(run.from)..self.after(run.reached)];
        if run.events == expected {
            return Verdict::Complete;
        }
        // Weir's own list after a 410 leaves out states in between. The objects must still be those
        // of etcd at each bookmark.
        for (at, digest) in &run.bookmarks {
            if self.digest_at(*at) != Some(*digest) {
                return Verdict::Wrong(format!("at the bookmark {at} the objects differ"));
            }
        }
        for event in &run.events {
            if !self.is_possible(event) {
                return Verdict::Wrong(format!("{event:?} never happened"));
            }
        }
        Verdict::Compressed
    }

    /// Whether an event shows a state that etcd had: the object as it was written then, or, for a
    /// deletion after a list, that it was gone some time.
    fn is_possible(&self, event: &Change) -> bool {
        let mut of_object = self.changes.iter().filter(|change| change.key == event.key);
        match event.kind {
            Kind::Deleted => of_object.any(|change| change.kind == Kind::Deleted),
            _ => of_object
                .any(|change| change.revision == event.revision && change.kind != Kind::Deleted),
        }
    }
}

/// How a run compares with the truth.
#[derive(Clone)]
pub(super) enum Verdict {
    /// It has every event.
    Complete,
    /// It has the states, but not every event.
    Compressed,
    Wrong(String),
}
