//! The custom resources whose definitions changed a moment ago.
//!
//! The instances of an upstream learn of a change one after another. Meanwhile they write the same
//! objects in different bytes, so a cache that starts then verifies what it was given
//! (`docs/decisions/upstream-bytes.md`).
//!
//! Lock order: the map, with no other lock.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::api::resource::{ApiResource, GroupVersionResource, Shape};

/// All resources.
type ByName = HashMap<GroupVersionResource, Arc<ApiResource>>;

/// When the definitions of custom resources last changed.
#[derive(Debug, Default)]
pub(super) struct Redefined(Mutex<HashMap<GroupVersionResource, Instant>>);

impl Redefined {
    /// Notes the definitions that differ between two states of discovery.
    pub(super) fn note(&self, before: &ByName, after: &ByName) {
        let now = Instant::now();
        let mut changed = self.0.lock();
        changed.retain(|_, at| now.duration_since(*at) < REDEFINED_FOR);
        for (gvr, resource) in after {
            let is_changed =
                before.get(gvr).is_some_and(|previous| previous.revision != resource.revision);
            if is_changed && resource.shape == Shape::Custom {
                changed.insert(gvr.clone(), now);
            }
        }
    }

    /// Whether a definition changed a moment ago.
    pub(super) fn contains(&self, gvr: &GroupVersionResource) -> bool {
        self.0.lock().get(gvr).is_some_and(|at| at.elapsed() < REDEFINED_FOR)
    }
}

/// How long instances of the upstream may lag behind a change. kube-apiserver's informers follow
/// within a second; a process that was stopped or cut off catches up within seconds.
const REDEFINED_FOR: Duration = Duration::from_secs(60);
