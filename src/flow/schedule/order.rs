//! The flows of a level that wait, in the order in which they are next.
//!
//! They are kept apart by the [`Width`] of their first requests. Whether there are seats depends on
//! that alone: where one request finds none, no other of its width does, and the search passes over
//! them. So a decision costs as much as there are widths, not flows.

use std::collections::{BTreeMap, BTreeSet};

/// The first request of a flow that waits. The least is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Head {
    /// The start tag of the flow.
    pub(super) tag: i128,
    /// The number of the request.
    pub(super) number: u64,
    pub(super) flow: u64,
}

/// The needs of a request, as far as they decide whether there is room for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Width {
    pub(super) seats: u64,
    /// Whether it is expected to hold them for long.
    pub(super) is_long: bool,
}

/// The flows that wait.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// The key is the width of the first request. None of the sets is empty.
    by_width: BTreeMap<Width, BTreeSet<Head>>,
}

impl Order {
    pub(super) fn insert(&mut self, width: Width, head: Head) {
        self.by_width.entry(width).or_default().insert(head);
    }

    pub(super) fn remove(&mut self, width: Width, head: &Head) {
        if let Some(heads) = self.by_width.get_mut(&width) {
            heads.remove(head);
            if heads.is_empty() {
                self.by_width.remove(&width);
            }
        }
    }

    /// Returns the flow that is next.
    pub(super) fn first(&self) -> Option<&Head> {
        self.by_width.values().filter_map(BTreeSet::first).min()
    }

    /// Asks about one flow after another, with the width of its first request, until one is taken.
    pub(super) fn search(&self, mut ask: impl FnMut(Width, &Head) -> SearchStep) -> Option<Head> {
        let by_width = self.by_width.iter();
        let mut rest: Vec<_> =
            by_width.map(|(width, heads)| (*width, heads.iter().peekable())).collect();
        loop {
            let next = rest.iter_mut().enumerate();
            let next = next.filter_map(|(place, (_, heads))| Some((*heads.peek()?, place))).min();
            let (head, place) = next?;
            let (width, heads) = rest.get_mut(place)?;
            match ask(*width, head) {
                SearchStep::Take => return Some(*head),
                SearchStep::OtherFlow => {
                    heads.next();
                }
                SearchStep::OtherWidth => {
                    drop(rest.swap_remove(place));
                }
            }
        }
    }
}

/// The next step of a search that has asked about a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SearchStep {
    /// It ends.
    Take,
    /// It goes on with the next flow.
    OtherFlow,
    /// It goes on with the next flow whose first request has another width.
    OtherWidth,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn width() -> impl Strategy<Value = Width> {
        (1_u64..6, any::<bool>()).prop_map(|(seats, is_long)| Width { seats, is_long })
    }

    proptest! {
        /// The search finds what a search through all flows in their order finds.
        #[test]
        fn a_search_finds_what_a_walk_through_all_finds(
            heads in prop::collection::btree_map(0_u64..40, (0_i128..10, width()), 0..40),
            too_wide in prop::collection::btree_set(width(), 0..6),
            have_enough in prop::collection::btree_set(0_u64..40, 0..30),
            gone in prop::collection::btree_set(0_u64..40, 0..10),
        ) {
            let mut order = Order::default();
            let mut all = BTreeSet::new();
            for (number, (tag, width)) in &heads {
                let head = Head { tag: *tag, number: *number, flow: *number };
                order.insert(*width, head);
                if gone.contains(number) {
                    order.remove(*width, &head);
                } else {
                    all.insert((head, *width));
                }
            }
            prop_assert_eq!(order.first(), all.first().map(|(head, _)| head));
            let ask = |width: Width, head: &Head| match (too_wide.contains(&width), have_enough.contains(&head.flow)) {
                (true, _) => SearchStep::OtherWidth,
                (_, true) => SearchStep::OtherFlow,
                _ => SearchStep::Take,
            };
            let walk = all.iter().find(|(head, width)| ask(*width, head) == SearchStep::Take);
            let mut first_asked = None;
            let found = order.search(|width, head| {
                first_asked.get_or_insert(*head);
                ask(width, head)
            });
            prop_assert_eq!(found, walk.map(|(head, _)| *head));
            prop_assert_eq!(first_asked.as_ref(), order.first(), "the first is asked about first");
        }
    }
}
