//! The requests of one flow of a level, and what it was given.

use std::collections::VecDeque;
use std::time::Duration;

use super::order::{Head, Order, Width};
use super::request::Arriving;

#[derive(Debug, Default)]
pub(super) struct Flow {
    pub(super) tag: i128,
    pub(super) queue: VecDeque<Waiting>,
    /// The work of those that wait, in seats times nanoseconds.
    pub(super) work: i128,
    pub(super) running: usize,
    pub(super) in_use: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) number: u64,
    pub(super) arrived: Duration,
    pub(super) request: Arriving,
}

impl Flow {
    fn head(&self) -> Option<(Width, Head)> {
        let first = self.queue.front()?;
        let flow = first.request.flow;
        let width = first.request.width();
        Some((width, Head { tag: self.tag, number: first.number, flow }))
    }

    /// Takes the flow out of the order. It must be put back after a change of its tag or of its
    /// first request.
    pub(super) fn leave(&self, order: &mut Order) {
        if let Some((width, head)) = self.head() {
            order.remove(width, &head);
        }
    }

    /// Counts a request as given to the flow. Call this while it has left the order.
    pub(super) fn start(&mut self, request: &Arriving) {
        self.running += 1;
        self.in_use += request.seats;
        self.tag += request.work();
    }

    pub(super) fn move_by(&mut self, work: i128, order: &mut Order) {
        self.leave(order);
        self.tag += work;
        self.enter(order);
    }

    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.running == 0
    }

    pub(super) fn enter(&self, order: &mut Order) {
        if let Some((width, head)) = self.head() {
            order.insert(width, head);
        }
    }
}

impl Waiting {
    pub(super) fn number(&self) -> u64 {
        self.number
    }
}
