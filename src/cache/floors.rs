//! How far the caches of a resource have come, beyond the life of each: nothing that a client was
//! shown may be taken back (`docs/decisions/shown-states.md`).
//!
//! All caches of a resource, in any representation and scope, share one floor, since their
//! resourceVersions can be compared. A state below it is never served: a consistent list below the
//! floor is a sign of a rewound history, any other list below it is repeated, and no cache starts
//! from an older resourceVersion that a watcher requested.

use dashmap::DashMap;

use crate::api::resource::GroupVersionResource;
use crate::api::resource_version::ResourceVersion;

/// The floors of all resources.
#[derive(Default)]
pub(crate) struct Floors {
    /// The floors by group and resource. Each has the generation of the upstream's history in which
    /// it was reached, and has no meaning in another.
    floors: DashMap<(String, String), (ResourceVersion, u64)>,
}

impl Floors {
    /// Raises the floor of a resource to a resourceVersion that a cache showed in `generation`.
    pub(crate) fn raise(
        &self,
        gvr: &GroupVersionResource,
        resource_version: ResourceVersion,
        generation: u64,
    ) {
        let key = key(gvr);
        if self.floors.len() >= FLOORS_MAX && !self.floors.contains_key(&key) {
            return;
        }
        let mut floor = self.floors.entry(key).or_insert((resource_version, generation));
        if floor.1 < generation || (floor.1 == generation && floor.0 < resource_version) {
            *floor = (resource_version, generation);
        }
    }

    /// Returns the floor of a resource in `generation`.
    pub(crate) fn get(
        &self,
        gvr: &GroupVersionResource,
        generation: u64,
    ) -> Option<ResourceVersion> {
        self.floors.get(&key(gvr)).filter(|floor| floor.1 == generation).map(|floor| floor.0)
    }

    /// Whether a cache may start at `at`. Once [`FLOORS_MAX`] floors are stored, no cache of
    /// another resource may.
    pub(crate) fn allows(
        &self,
        gvr: &GroupVersionResource,
        at: ResourceVersion,
        generation: u64,
    ) -> bool {
        match self.get(gvr, generation) {
            Some(floor) => at >= floor,
            None => self.floors.len() < FLOORS_MAX || self.floors.contains_key(&key(gvr)),
        }
    }
}

fn key(gvr: &GroupVersionResource) -> (String, String) {
    (gvr.group.to_string(), gvr.resource.to_string())
}

/// The largest number of floors. Definitions come and go, so the number must be bounded.
const FLOORS_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_floor_rises_and_ends_with_its_generation() {
        let floors = Floors::default();
        let pods = GroupVersionResource::new("", "v1", "pods");
        let rv = ResourceVersion;
        assert!(floors.allows(&pods, rv(1), 0));
        floors.raise(&pods, rv(10), 0);
        floors.raise(&pods, rv(7), 0);
        assert_eq!(floors.get(&pods, 0), Some(rv(10)));
        assert!(floors.allows(&pods, rv(10), 0) && !floors.allows(&pods, rv(9), 0));
        assert_eq!(floors.get(&pods, 1), None);
        floors.raise(&pods, rv(3), 1);
        floors.raise(&pods, rv(20), 0);
        assert_eq!(floors.get(&pods, 1), Some(rv(3)));
    }
}
