//! The log of writes: every write that etcd applied, by which any earlier state is looked up.
//!
//! The return of etcd to an earlier state, or another cluster in its place, begins a new *epoch*,
//! whose resourceVersions mean something else from there on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use tokio::time::Instant;
use weir::simulator::{Recorded, Simulator};

use crate::resources::{Resource, Selection, without_defaults};

/// All epochs, the present one last; there is at least one.
pub(crate) struct WriteLog {
    simulator: Arc<Simulator>,
    epochs: Vec<Epoch>,
    position: usize,
    /// How many watches were answered that their resourceVersion has expired.
    expired: u64,
}

/// The state of etcd between two restores.
#[derive(Clone, Default)]
pub(crate) struct Epoch {
    logs: BTreeMap<String, Log>,
    /// The newest revision.
    pub(crate) revision: u64,
    /// The revision of its beginning. A watch from before it gets 410: etcd has no history then.
    pub(crate) began_at: u64,
    /// The revision up to which it has the history of the epoch before; `None` for another cluster.
    pub(crate) restored_revision: Option<u64>,
    /// When it ended; `None` for the present one.
    pub(crate) ended: Option<Instant>,
}

/// The writes of one resource, in order.
#[derive(Clone, Default)]
pub(crate) struct Log {
    pub(crate) writes: Vec<Version>,
    keys: BTreeMap<Arc<str>, Vec<usize>>,
}

/// One state of one object, or its deletion.
#[derive(Clone)]
pub(crate) struct Version {
    pub(crate) revision: u64,
    /// When the log learned of it.
    pub(crate) written: Instant,
    pub(crate) key: Arc<str>,
    /// The last state, if it was deleted.
    pub(crate) json: Bytes,
    pub(crate) deleted: bool,
    /// The value of the label `app`.
    pub(crate) label: String,
    /// The node of a pod.
    pub(crate) node: String,
    pub(crate) uid: String,
}

/// A moment in the log of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    pub(crate) epoch: usize,
    pub(crate) revision: u64,
    pub(crate) time: Instant,
}

impl WriteLog {
    pub(crate) fn new(simulator: Arc<Simulator>) -> Self {
        let epochs = vec![Epoch::default()];
        let mut write_log = Self { simulator, epochs, position: 0, expired: 0 };
        write_log.update();
        write_log
    }

    /// Returns the present moment.
    pub(crate) fn now(&mut self) -> Moment {
        self.update();
        let epoch = self.epochs.len() - 1;
        Moment { epoch, revision: self.epochs[epoch].revision, time: Instant::now() }
    }

    /// Returns the epochs that an answer to a request from `begun` may show: those since then, and
    /// the one before if its end may not have been noticed yet.
    pub(crate) fn candidates(&self, begun: Moment) -> std::ops::Range<usize> {
        let unnoticed = |epoch: usize| {
            let ended = self.epochs.get(epoch).and_then(|epoch| epoch.ended);
            ended.is_some_and(|ended| begun.time < ended + NOTICED_WITHIN)
        };
        let mut first = begun.epoch;
        while first > 0 && unnoticed(first - 1) {
            first -= 1;
        }
        first..self.epochs.len()
    }

    /// Whether a watch was answered since the last call that its resourceVersion has expired.
    pub(crate) fn has_expired(&mut self) -> bool {
        let expired = self.simulator.requests().watches_expired();
        std::mem::replace(&mut self.expired, expired) != expired
    }

    /// Gives Weir more time to notice the end of an epoch: the API servers are away again.
    pub(crate) fn delay_notice(&mut self) {
        let now = Instant::now();
        for ended in self.epochs.iter_mut().filter_map(|epoch| epoch.ended.as_mut()) {
            if now < *ended + NOTICED_WITHIN {
                *ended = now;
            }
        }
    }

    /// Returns the epochs before those of [`candidates`](Self::candidates).
    pub(crate) fn lost(&self, begun: Moment) -> std::ops::Range<usize> {
        0..self.candidates(begun).start
    }

    /// Returns the highest revision of all epochs but the present one, if there are others.
    pub(crate) fn highest_lost(&self) -> Option<u64> {
        let (_, lost) = self.epochs.split_last()?;
        lost.iter().map(|epoch| epoch.revision).max()
    }

    /// Returns an epoch.
    pub(crate) fn epoch(&self, number: usize) -> &Epoch {
        &self.epochs[number]
    }

    fn update(&mut self) {
        let entries = self.simulator.recorded_since(self.position);
        self.position += entries.len();
        for entry in entries {
            let last = self.epochs.len() - 1;
            match entry {
                Recorded::Write(write) => self.epochs[last].add(write),
                // Nothing was lost.
                Recorded::Restore { revision, restored_revision }
                    if restored_revision == Some(revision)
                        && revision == self.epochs[last].revision => {}
                Recorded::Restore { revision, restored_revision } => {
                    // Another cluster's objects follow as writes.
                    let mut next = restored_revision
                        .map_or_else(Epoch::default, |restored| self.epochs[last].until(restored));
                    (next.revision, next.began_at, next.restored_revision) =
                        (revision, revision, restored_revision);
                    self.epochs[last].ended = Some(Instant::now());
                    self.epochs.push(next);
                }
            }
        }
    }
}

impl Epoch {
    /// Returns the writes of a resource.
    pub(crate) fn log(&self, resource: &Resource) -> Option<&Log> {
        self.logs.get(resource.storage)
    }

    /// Returns the selected objects at a revision, in key order.
    pub(crate) fn state(&self, selection: &Selection, revision: u64) -> Vec<&Version> {
        let Some(log) = self.log(selection.resource) else { return Vec::new() };
        let at = |writes: &Vec<usize>| {
            let version = log.last(writes, revision)?;
            (!version.deleted && selection.matches(version)).then_some(version)
        };
        log.keys.values().filter_map(at).collect()
    }

    /// Returns when the first write after a revision was made, of any resource.
    pub(crate) fn overtaken(&self, revision: u64) -> Option<Instant> {
        let next = |log: &Log| {
            let next = log.writes.len() - log.count_after(revision);
            log.writes.get(next).map(|write| write.written)
        };
        self.logs.values().filter_map(next).min()
    }

    fn add(&mut self, write: weir::simulator::Write) {
        self.revision = self.revision.max(write.revision);
        let log = self.logs.entry(write.resource).or_default();
        let value: Value = serde_json::from_slice(&write.json).unwrap_or_default();
        let text = |pointer: &str| {
            value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let version = Version {
            revision: write.revision,
            written: Instant::now(),
            key: Arc::clone(&write.key),
            json: without_defaults(write.json),
            deleted: write.deleted,
            label: text("/metadata/labels/app"),
            node: text("/spec/nodeName"),
            uid: text("/metadata/uid"),
        };
        log.keys.entry(write.key).or_default().push(log.writes.len());
        log.writes.push(version);
    }

    /// Returns the same history up to a revision.
    fn until(&self, revision: u64) -> Self {
        let mut logs = self.logs.clone();
        for log in logs.values_mut() {
            let kept = log.writes.partition_point(|write| write.revision <= revision);
            log.writes.truncate(kept);
            log.keys.values_mut().for_each(|writes| writes.retain(|write| *write < kept));
            log.keys.retain(|_, writes| !writes.is_empty());
        }
        Self { logs, revision, began_at: 0, restored_revision: None, ended: None }
    }
}

impl Log {
    /// Returns the version of an object at a revision.
    pub(crate) fn version(&self, key: &str, revision: u64) -> Option<&Version> {
        self.last(self.keys.get(key)?, revision)
    }

    /// Returns the version before the write at an index, of the same object.
    pub(crate) fn before(&self, index: usize) -> Option<&Version> {
        let write = self.writes.get(index)?;
        let version = self.version(&write.key, write.revision - 1)?;
        (!version.deleted).then_some(version)
    }

    /// Returns the revision of the next write of an object after a revision.
    pub(crate) fn next_write(&self, key: &str, revision: u64) -> Option<u64> {
        let writes = self.keys.get(key)?;
        let next = writes.partition_point(|write| self.writes[*write].revision <= revision);
        writes.get(next).map(|write| self.writes[*write].revision)
    }

    /// Whether a watch of a selection brings an event of an object after a revision.
    pub(crate) fn has_event(&self, selection: &Selection, key: &str, revision: u64) -> bool {
        let Some(writes) = self.keys.get(key) else { return false };
        let is_selected = |version: &Version| !version.deleted && selection.matches(version);
        writes.iter().filter(|write| self.writes[**write].revision > revision).any(|write| {
            is_selected(&self.writes[*write]) || self.before(*write).is_some_and(is_selected)
        })
    }

    /// Returns how many writes there are after a revision.
    pub(crate) fn count_after(&self, revision: u64) -> usize {
        self.writes.len() - self.writes.partition_point(|write| write.revision <= revision)
    }

    /// Returns the end of the last span of this length with more than `count` writes.
    pub(crate) fn last_overrun(&self, count: usize, length: Duration) -> Option<Instant> {
        self.writes.windows(count + 1).rev().find_map(|writes| {
            let (first, last) = (writes.first()?.written, writes.last()?.written);
            (last - first < length).then_some(last)
        })
    }

    fn last(&self, writes: &[usize], revision: u64) -> Option<&Version> {
        let count = writes.partition_point(|write| self.writes[*write].revision <= revision);
        count.checked_sub(1).map(|last| &self.writes[writes[last]])
    }
}

/// How long Weir may take to notice that etcd was restored, after it and after each fault that
/// keeps Weir from asking: the longest back-offs of a reflector.
const NOTICED_WITHIN: Duration = Duration::from_secs(90);
