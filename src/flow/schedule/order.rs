//! The flows of a level that wait, in the order in which they are next.
//!
//! They are kept apart by the seats of their first requests. Whether there are seats depends on
//! that number alone: where one request finds none, no other of that number does, and the search
//! passes over them. So a decision costs as much as there are numbers of seats, not flows.

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

/// The flows that wait.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// The key is the seats of the first request. None of the sets is empty.
    by_seats: BTreeMap<u64, BTreeSet<Head>>,
}

impl Order {
    pub(super) fn insert(&mut self, seats: u64, head: Head) {
        self.by_seats.entry(seats).or_default().insert(head);
    }

    pub(super) fn remove(&mut self, seats: u64, head: &Head) {
        if let Some(heads) = self.by_seats.get_mut(&seats) {
            heads.remove(head);
            if heads.is_empty() {
                self.by_seats.remove(&seats);
            }
        }
    }

    /// Returns the flow that is next.
    pub(super) fn first(&self) -> Option<&Head> {
        self.by_seats.values().filter_map(BTreeSet::first).min()
    }

    /// Asks about one flow after another, with the seats of its first request, until one is taken.
    pub(super) fn search(&self, mut ask: impl FnMut(u64, &Head) -> SearchStep) -> Option<Head> {
        let by_seats = self.by_seats.iter();
        let mut rest: Vec<_> =
            by_seats.map(|(seats, heads)| (*seats, heads.iter().peekable())).collect();
        loop {
            let next = rest.iter_mut().enumerate();
            let next = next.filter_map(|(place, (_, heads))| Some((*heads.peek()?, place))).min();
            let (head, place) = next?;
            let (seats, heads) = rest.get_mut(place)?;
            match ask(*seats, head) {
                SearchStep::Take => return Some(*head),
                SearchStep::OtherFlow => {
                    heads.next();
                }
                SearchStep::OtherSeats => {
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
    /// It goes on with the next flow whose first request has another number of seats.
    OtherSeats,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The search finds what a search through all flows in their order finds.
        #[test]
        fn a_search_finds_what_a_walk_through_all_finds(
            heads in prop::collection::btree_map(0_u64..40, (0_i128..10, 1_u64..6), 0..40),
            too_wide in prop::collection::btree_set(1_u64..6, 0..6),
            have_enough in prop::collection::btree_set(0_u64..40, 0..30),
            gone in prop::collection::btree_set(0_u64..40, 0..10),
        ) {
            let mut order = Order::default();
            let mut all = BTreeSet::new();
            for (number, (tag, seats)) in &heads {
                let head = Head { tag: *tag, number: *number, flow: *number };
                order.insert(*seats, head);
                if gone.contains(number) {
                    order.remove(*seats, &head);
                } else {
                    all.insert((head, *seats));
                }
            }
            prop_assert_eq!(order.first(), all.first().map(|(head, _)| head));
            let ask = |seats: u64, head: &Head| match (too_wide.contains(&seats), have_enough.contains(&head.flow)) {
                (true, _) => SearchStep::OtherSeats,
                (_, true) => SearchStep::OtherFlow,
                _ => SearchStep::Take,
            };
            let walk = all.iter().find(|(head, seats)| ask(*seats, head) == SearchStep::Take);
            let mut first_asked = None;
            let found = order.search(|seats, head| {
                first_asked.get_or_insert(*head);
                ask(seats, head)
            });
            prop_assert_eq!(found, walk.map(|(head, _)| *head));
            prop_assert_eq!(first_asked.as_ref(), order.first(), "the first is asked about first");
        }
    }
}
