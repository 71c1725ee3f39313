//! The record of all writes, by which a checker looks up any earlier state.

use std::sync::Arc;

use bytes::Bytes;

use crate::object::Object;

/// The changes of the store, in order.
#[derive(Clone, Debug)]
pub enum Recorded {
    /// A write of one object.
    Write(Write),
    /// The return to an earlier state, or another cluster's state: its objects follow as writes.
    Restore {
        /// The revision from then on.
        revision: u64,
        /// The revision of the earlier state; `None` for another cluster's.
        restored_revision: Option<u64>,
    },
}

/// A write of one object.
#[derive(Clone, Debug)]
pub struct Write {
    /// Its revision.
    pub revision: u64,
    /// The group and the plural name of the resource: `apps/deployments`, `/pods`.
    pub resource: String,
    /// The sort key of the object: `namespace/name`, or its name.
    pub key: Arc<str>,
    /// The object in JSON, as it was stored: its last state, if it was deleted.
    pub json: Bytes,
    /// Whether the object was deleted.
    pub deleted: bool,
}

/// The record; it grows without a bound.
#[derive(Debug, Default)]
pub(super) struct Recording {
    entries: Vec<Recorded>,
    is_on: bool,
}

impl Recording {
    pub(super) fn new(is_on: bool) -> Self {
        Self { entries: Vec::new(), is_on }
    }

    /// Adds a write.
    pub(super) fn write(&mut self, storage: &str, object: &Object, deleted: bool) {
        if !self.is_on {
            return;
        }
        self.entries.push(Recorded::Write(Write {
            revision: object.revision,
            resource: storage.to_owned(),
            key: Arc::clone(&object.key),
            json: object.json.clone(),
            deleted,
        }));
    }

    /// Adds the return to an earlier state, or another cluster's.
    pub(super) fn restore(&mut self, revision: u64, of_revision: Option<u64>) {
        if self.is_on {
            self.entries.push(Recorded::Restore { revision, restored_revision: of_revision });
        }
    }

    /// Returns the entries from a position on.
    pub(super) fn since(&self, position: usize) -> Vec<Recorded> {
        self.entries.get(position..).unwrap_or_default().to_vec()
    }
}
