//! The flows of a level that wait, in the order in which they are next.
//!
//! They are kept apart by the [`Width`] of their first requests. Whether there are seats depends on
//! that alone: where one request finds none, no other of its width does, and the search passes over
//! them. So a decision costs as much as there are widths, not flows. The widths are kept in the
//! order of their first flows, so that a search that finds the first one looks at no other.

use std::collections::BTreeSet;
use std::collections::btree_set::Iter;
use std::iter::Peekable;

/// The first request of a flow that waits. The least is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Head {
    pub(super) tag: i128,
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
    /// They are sorted by their first flows.
    widths: Vec<FlowsOfWidth>,
}

/// The flows whose first requests have one width. There is one at least.
#[derive(Debug)]
struct FlowsOfWidth {
    width: Width,
    /// The least of `heads`.
    first: Head,
    heads: BTreeSet<Head>,
}

impl Order {
    pub(super) fn insert(&mut self, width: Width, head: Head) {
        let Some(place) = self.place_of(width) else {
            let heads = BTreeSet::from([head]);
            return self.insert_width(FlowsOfWidth { width, first: head, heads });
        };
        let Some(flows) = self.widths.get_mut(place) else { return };
        flows.heads.insert(head);
        if head < flows.first {
            self.set_first(place, head);
        }
    }

    pub(super) fn remove(&mut self, width: Width, head: &Head) {
        let Some(place) = self.place_of(width) else { return };
        let Some(flows) = self.widths.get_mut(place) else { return };
        flows.heads.remove(head);
        if *head != flows.first {
            return;
        }
        match flows.heads.first().copied() {
            Some(next) => self.set_first(place, next),
            None => drop(self.widths.remove(place)),
        }
    }

    fn place_of(&self, width: Width) -> Option<usize> {
        self.widths.iter().position(|flows| flows.width == width)
    }

    fn set_first(&mut self, place: usize, first: Head) {
        let flows = FlowsOfWidth { first, ..self.widths.remove(place) };
        self.insert_width(flows);
    }

    fn insert_width(&mut self, flows: FlowsOfWidth) {
        let place = self.widths.partition_point(|other| other.first < flows.first);
        self.widths.insert(place, flows);
    }

    /// Returns the widths of the first requests of all flows.
    pub(super) fn widths(&self) -> impl Iterator<Item = Width> {
        self.widths.iter().map(|flows| flows.width)
    }

    pub(super) fn first(&self) -> Option<&Head> {
        self.widths.first().map(|flows| &flows.first)
    }

    /// Asks about one flow after another, with the width of its first request, until one is taken.
    pub(super) fn search(&self, mut ask: impl FnMut(Width, &Head) -> SearchStep) -> Option<Head> {
        let mut rest = self.widths.as_slice();
        // The widths whose first flows were passed over.
        let mut begun: Vec<(Width, Peekable<Iter<'_, Head>>)> = Vec::new();
        loop {
            let next = begun.iter_mut().enumerate();
            let next = next.filter_map(|(place, (_, heads))| Some((**heads.peek()?, place))).min();
            let of_rest = rest.split_first();
            if let Some((flows, others)) = of_rest
                && next.is_none_or(|(head, _)| flows.first < head)
            {
                rest = others;
                match ask(flows.width, &flows.first) {
                    SearchStep::Take => return Some(flows.first),
                    SearchStep::OtherFlow => {
                        let mut heads = flows.heads.iter().peekable();
                        heads.next();
                        begun.push((flows.width, heads));
                    }
                    SearchStep::OtherWidth => {}
                }
                continue;
            }
            let (head, place) = next?;
            let (width, heads) = begun.get_mut(place)?;
            match ask(*width, &head) {
                SearchStep::Take => return Some(head),
                SearchStep::OtherFlow => {
                    heads.next();
                }
                SearchStep::OtherWidth => {
                    drop(begun.swap_remove(place));
                }
            }
        }
    }
}

/// The next step of a search that has asked about a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SearchStep {
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
            let mut heads_asked = BTreeSet::new();
            for (number, (tag, width)) in &heads {
                let head = Head { tag: *tag, number: *number, flow: *number };
                order.insert(*width, head);
                if gone.contains(number) {
                    order.remove(*width, &head);
                } else {
                    heads_asked.insert((head, *width));
                }
            }
            prop_assert_eq!(order.first(), heads_asked.first().map(|(head, _)| head));
            let ask = |width: Width, head: &Head| match (too_wide.contains(&width), have_enough.contains(&head.flow)) {
                (true, _) => SearchStep::OtherWidth,
                (_, true) => SearchStep::OtherFlow,
                _ => SearchStep::Take,
            };
            let walk = heads_asked.iter().find(|(head, width)| ask(*width, head) == SearchStep::Take);
            let mut first_asked = None;
            let taken = order.search(|width, head| {
                first_asked.get_or_insert(*head);
                ask(width, head)
            });
            prop_assert_eq!(taken, walk.map(|(head, _)| *head));
            prop_assert_eq!(first_asked.as_ref(), order.first(), "the first is asked about first");
        }
    }
}
