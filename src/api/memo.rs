//! Reuses the allocations of names that many requests have in common: groups, versions and
//! resources, and the empty text.
//!
//! Each thread has its own, so that reference counts stay in the caches of one processor. The memo
//! only saves allocations: its results equal newly created values. Names that clients invent
//! replace others and cost as much as without the memo. Memory is bounded: [`SLOTS`] names a
//! thread, of [`BYTES_MAX`] each.

use std::cell::RefCell;
use std::sync::Arc;

use crate::api::resource::GroupVersionResource;

thread_local! {
    static RESOURCES: RefCell<[Option<GroupVersionResource>; SLOTS]> = const { RefCell::new([const { None }; SLOTS]) };
    static EMPTY: Arc<str> = Arc::from("");
}

/// Returns a value equal to that of [`GroupVersionResource::new`].
pub(super) fn resource(group: &str, version: &str, resource: &str) -> GroupVersionResource {
    let make = || GroupVersionResource::new(group, version, resource);
    if group.len() + version.len() + resource.len() > BYTES_MAX {
        return make();
    }
    RESOURCES.with_borrow_mut(|slots| {
        let Some(slot) = slots.get_mut(slot(group, resource)) else { return make() };
        match slot {
            Some(known) if known.is([group, version, resource]) => known.clone(),
            slot => slot.insert(make()).clone(),
        }
    })
}

/// Returns a shared text. The empty text is not allocated.
pub(super) fn text(text: &str) -> Arc<str> {
    if text.is_empty() { EMPTY.with(Arc::clone) } else { text.into() }
}

/// Returns the slot of a resource. Its versions share one, because clients rarely alternate between
/// them.
fn slot(group: &str, resource: &str) -> usize {
    let fold = |hash: usize, byte: u8| (hash ^ usize::from(byte)).wrapping_mul(FNV_PRIME);
    group.bytes().chain(resource.bytes()).fold(0, fold) % SLOTS
}

const FNV_PRIME: usize = 0x0100_0193;
/// A fresh cluster serves about sixty resources; a few of them make up nearly all requests.
const SLOTS: usize = 64;
/// The longest name that a cluster serves: a group has at most 253 bytes, a resource or version 63.
const BYTES_MAX: usize = 384;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Few and short names, so that they compete for slots.
        #[test]
        fn a_result_equals_a_new_value(
            names in prop::collection::vec(("[ab]{0,3}", "v[12]", "[ab]{0,3}"), 0..200),
        ) {
            for (group, version, resource) in names {
                let found = super::resource(&group, &version, &resource);
                prop_assert!(found.is([&group, &version, &resource]));
                prop_assert_eq!(found, GroupVersionResource::new(&group, &version, &resource));
            }
        }
    }

    #[test]
    fn names_are_not_confused_by_concatenation() {
        let all =
            [("a", "b", "c"), ("ab", "", "c"), ("a", "bc", ""), ("", "ab", "c"), ("", "", "abc")];
        for (index, one) in all.iter().enumerate() {
            for two in &all[index + 1..] {
                assert_ne!(resource(one.0, one.1, one.2), resource(two.0, two.1, two.2));
            }
        }
    }

    #[test]
    fn long_names_are_not_stored() {
        let long = "x".repeat(BYTES_MAX + 1);
        assert!(resource("", "v1", &long).is(["", "v1", &long]));
        RESOURCES.with_borrow(|slots| {
            assert!(slots.iter().flatten().all(|known| known.resource.len() < BYTES_MAX))
        });
    }
}
