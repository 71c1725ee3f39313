//! Marks each event for the watchers whose filter it concerns, and for no others.
//!
//! The watchers with equal filters are a group, for which an event is evaluated once. The groups
//! that it may concern are found by their terms (`term_index.rs`).
//!
//! All methods are called with the cache's mutex held.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::api::keyed_hash::BuildKeyedHash;
use crate::cache::core::cursor::{Cursor, EndCause, WatchEnd};
use crate::cache::core::filter::WatchFilter;
use crate::cache::core::state::State;
use crate::cache::core::term_index::TermIndex;

/// The registered watchers of one cache.
#[derive(Debug, Default)]
pub(super) struct Dispatcher {
    /// The watchers that have not ended, by group and id.
    cursors: BTreeMap<(u64, u64), Arc<Cursor>>,
    /// The groups of these watchers: each has the id of its first watcher.
    groups: HashMap<Arc<WatchFilter>, u64, BuildKeyedHash>,
    pub(super) index: TermIndex,
    next_id: u64,
    watchers: usize,
}

impl Dispatcher {
    /// Registers a watcher. It receives all later marks.
    pub(super) fn register(&mut self, mut cursor: Cursor) -> Arc<Cursor> {
        self.next_id += 1;
        (cursor.id, cursor.group) = (self.next_id, self.next_id);
        if let Some((filter, group)) = self.groups.get_key_value(&cursor.filter) {
            (cursor.filter, cursor.group) = (Arc::clone(filter), *group);
        } else {
            self.groups.insert(Arc::clone(&cursor.filter), cursor.group);
            self.index.add(cursor.group, &cursor.filter);
        }
        let cursor = Arc::new(cursor);
        self.cursors.insert((cursor.group, cursor.id), Arc::clone(&cursor));
        self.watchers += 1;
        cursor
    }

    /// Removes a watcher, whether it has ended or not.
    pub(super) fn unregister(&mut self, cursor: &Cursor) {
        self.watchers = self.watchers.saturating_sub(1);
        self.remove(cursor);
    }

    fn remove(&mut self, cursor: &Cursor) {
        let removed = self.cursors.remove(&(cursor.group, cursor.id));
        if removed.is_some() && self.group(cursor.group).next().is_none() {
            self.groups.remove(&cursor.filter);
            self.index.remove(cursor.group, &cursor.filter);
        }
    }

    fn group(&self, group: u64) -> impl Iterator<Item = &Arc<Cursor>> {
        self.cursors.range((group, 0)..=(group, u64::MAX)).map(|(_, cursor)| cursor)
    }

    /// Marks the watchers that the events from number `from` on concern. Returns these watchers;
    /// the caller wakes them after publishing the state.
    ///
    /// The mutex is held meanwhile, so that the work is bounded: with many filters or events, some
    /// watchers are marked for events that they evaluate themselves.
    pub(super) fn mark(&self, state: &State, from: u64) -> Vec<Arc<Cursor>> {
        let mut groups: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        let (end, mut budget) = (state.history().end_seq(), COMPARISONS_MAX + CANDIDATES_MAX);
        for (seq, event) in state.history().events(from, end) {
            if budget == 0 {
                for group in self.groups.values() {
                    groups.entry(*group).or_insert((seq, seq)).1 = end - 1;
                }
                break;
            }
            self.index.for_each(event, |group, filter| {
                let is_evaluated = budget > CANDIDATES_MAX;
                let cost = if is_evaluated { 1 + filter.terms() } else { 1 };
                budget = budget.saturating_sub(cost);
                if !is_evaluated || event.event_for(filter).is_some() {
                    groups.entry(group).or_insert((seq, seq)).1 = seq;
                }
            });
        }
        let mut marked = Vec::new();
        for (group, events) in groups {
            for cursor in self.group(group) {
                cursor.marks.mark(events);
                marked.push(Arc::clone(cursor));
            }
        }
        marked
    }

    /// Ends every watcher at `state` and returns them. The caller wakes them after publishing the
    /// next state.
    pub(super) fn end_all(&mut self, state: &Arc<State>, cause: EndCause) -> Vec<Arc<Cursor>> {
        self.groups.clear();
        self.index.clear();
        let ended = std::mem::take(&mut self.cursors).into_values();
        let end = |cursor: &Arc<Cursor>| {
            cursor.set_end(WatchEnd { state: Arc::clone(state), cause });
        };
        ended.inspect(end).collect()
    }

    /// Ends, as [`Self::end_all`] does, the watchers for which `is_ended` returns true.
    pub(super) fn end_some(
        &mut self,
        state: &Arc<State>,
        cause: EndCause,
        is_ended: impl Fn(&Cursor) -> bool,
    ) -> Vec<Arc<Cursor>> {
        let ended: Vec<_> =
            self.cursors.values().filter(|cursor| is_ended(cursor)).cloned().collect();
        for cursor in &ended {
            self.remove(cursor);
            cursor.set_end(WatchEnd { state: Arc::clone(state), cause });
        }
        ended
    }

    /// Ends the watchers that may match an object that cannot be read, given by namespace and name.
    /// They end at `state`, before any of these objects has changed: their clients resume there.
    pub(super) fn end_unreadable<'a>(
        &mut self,
        state: &Arc<State>,
        unreadable: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Vec<Arc<Cursor>> {
        let unreadable: Vec<_> = unreadable.collect();
        if unreadable.is_empty() {
            return Vec::new();
        }
        self.end_some(state, EndCause::Unreadable, |cursor| {
            !cursor.is_follower && unreadable.iter().any(|names| cursor.filter.may_match(*names))
        })
    }

    /// Returns the number of watchers, including those that have ended but were not dropped yet.
    pub(super) fn watchers(&self) -> usize {
        self.watchers
    }

    /// Returns the number of the first event of the window that a watcher has still to read, and
    /// the number of watchers for which it is more than `events_max` before the newest one.
    pub(super) fn unread(&self, state: &State, events_max: usize) -> (u64, usize) {
        let (begin, end) = (state.history().first_seq(), state.history().end_seq());
        let unread = self.cursors.values().filter_map(|cursor| cursor.unread_from(state));
        unread.fold((u64::MAX, 0), |(first, behind), from| {
            let is_behind = end - from.min(end) > events_max as u64;
            // A watcher that has lost events needs no others.
            let first = if from < begin { first } else { first.min(from) };
            (first, behind + usize::from(is_behind))
        })
    }

    /// Returns whether there is no trace of a watcher.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.cursors.is_empty() && self.groups.is_empty() && self.index.is_empty()
    }
}

/// The comparisons of filters in one call of [`Dispatcher::mark`]: about a millisecond. Those of
/// the previous object count as the ones of the new.
const COMPARISONS_MAX: usize = 50_000;
/// The candidates that are then marked without a comparison, before all watchers are.
const CANDIDATES_MAX: usize = 50_000;
