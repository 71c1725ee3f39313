//! The gate of TLS handshakes: at most a few of a listener are computed at once, and the addresses
//! that wait take turns (`docs/decisions/accepted-connections.md`).
//!
//! A handshake holds its place while Weir computes keys and signatures, not while it waits for the
//! client, so that clients that do not go on keep nobody out. Beyond [`BUSY_AT`] waiting ones the
//! listener leaves further connections in the kernel's backlog; beyond [`WAITING_MAX`], the newest
//! of the address with the most is refused.
//!
//! From the stage of overload on at which Weir refuses watches that begin with a state, new
//! connections have a quarter of the places: their first requests would be such watches and lists.
//!
//! Lock: that of the state, for a few instructions. No waiter is woken while it is held.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::Arc;
use std::thread::available_parallelism;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use crate::auth::peer::client_key;
use crate::flow::overload::Stage;
use crate::server::metrics::ServerMetrics;
use crate::server::overload::Overload;

/// The gate of one listener. Cheap to clone.
#[derive(Clone, Debug)]
pub(in crate::server) struct HandshakeGate(Arc<Gate>);

#[derive(Debug)]
struct Gate {
    /// The handshakes that may be computed at once.
    places: usize,
    state: Mutex<State>,
    /// Wakes the accept loop once few handshakes wait.
    calm: Notify,
    overload: Arc<Overload>,
    metrics: ServerMetrics,
}

#[derive(Debug)]
struct State {
    /// The places in use; more than none while handshakes wait.
    in_use: usize,
    waiting: RoundRobin<Option<IpAddr>, oneshot::Sender<Place>>,
}

/// The place of a handshake that is computed. Dropping it lets the next one in.
#[derive(Debug)]
pub(in crate::server) struct Place(Option<Arc<Gate>>);

/// Error: too many handshakes wait, most of them from this address.
#[derive(Debug)]
pub(in crate::server) struct GateFull;

impl HandshakeGate {
    /// Creates a gate with two places for each processor.
    pub(in crate::server) fn new(overload: Arc<Overload>, metrics: ServerMetrics) -> Self {
        let processors = available_parallelism().map_or(1, usize::from);
        Self::with_places(PLACES_PER_PROCESSOR * processors, overload, metrics)
    }

    fn with_places(places: usize, overload: Arc<Overload>, metrics: ServerMetrics) -> Self {
        let state = Mutex::new(State { in_use: 0, waiting: RoundRobin::default() });
        Self(Arc::new(Gate { places, state, calm: Notify::new(), overload, metrics }))
    }

    /// Waits for a place for a client at `address`. Cancel safe.
    pub(in crate::server) async fn enter(
        &self,
        address: Option<IpAddr>,
    ) -> Result<Place, GateFull> {
        let (sender, receiver) = oneshot::channel();
        let refused = {
            let mut state = self.0.state.lock();
            if state.in_use < self.0.share_of(self.0.places) {
                state.in_use += 1;
                return Ok(Place(Some(Arc::clone(&self.0))));
            }
            state.waiting.push(address.map(client_key), sender);
            let is_full = state.waiting.len() > WAITING_MAX;
            is_full.then(|| state.waiting.pop_newest_of_longest()).flatten()
        };
        drop(refused);
        let _waiting = self.0.metrics.handshake_waiting();
        receiver.await.map_err(|_| GateFull)
    }

    /// Waits until few handshakes wait. Only one task may call this.
    pub(in crate::server) async fn until_calm(&self) {
        while self.0.state.lock().waiting.len() >= self.0.share_of(BUSY_AT) {
            self.0.calm.notified().await;
        }
    }
}

impl Gate {
    /// Returns the part of a limit that the present stage of overload leaves to new connections.
    fn share_of(&self, limit: usize) -> usize {
        let is_paced = self.overload.stage() >= Stage::InitialStates;
        if is_paced { (limit / PACED_PART).max(1) } else { limit }
    }

    /// Gives a place back, and those that are free to the next.
    fn leave(self: &Arc<Self>) {
        let mut returned = 1;
        while returned > 0 {
            let (next, is_calm) = {
                let mut state = self.state.lock();
                state.in_use = state.in_use.saturating_sub(returned);
                let free = self.share_of(self.places).saturating_sub(state.in_use);
                let next = std::iter::from_fn(|| state.waiting.pop()).take(free);
                let next: Vec<_> = next.collect();
                state.in_use += next.len();
                (next, state.waiting.len() < self.share_of(BUSY_AT))
            };
            if is_calm {
                self.calm.notify_one();
            }
            returned = 0;
            for sender in next {
                // A client that is gone leaves its turn to the next.
                if let Err(mut place) = sender.send(Place(Some(Arc::clone(self)))) {
                    place.0 = None;
                    returned += 1;
                }
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(gate) = self.0.take() {
            gate.leave();
        }
    }
}

/// Values by key. The keys take turns; the values of one key are in the order of their arrival.
#[derive(Debug)]
struct RoundRobin<K, V> {
    by_key: HashMap<K, VecDeque<V>>,
    /// The keys that have values, the next one first.
    order: VecDeque<K>,
    len: usize,
}

impl<K, V> Default for RoundRobin<K, V> {
    fn default() -> Self {
        Self { by_key: HashMap::new(), order: VecDeque::new(), len: 0 }
    }
}

impl<K: Clone + Eq + Hash, V> RoundRobin<K, V> {
    fn len(&self) -> usize {
        self.len
    }

    fn push(&mut self, key: K, value: V) {
        self.len += 1;
        match self.by_key.entry(key) {
            Entry::Occupied(mut values) => values.get_mut().push_back(value),
            Entry::Vacant(values) => {
                self.order.push_back(values.key().clone());
                values.insert(VecDeque::from([value]));
            }
        }
    }

    /// Removes the oldest value of the next key.
    fn pop(&mut self) -> Option<V> {
        let key = self.order.pop_front()?;
        let values = self.by_key.get_mut(&key)?;
        let value = values.pop_front()?;
        self.len -= 1;
        if values.is_empty() {
            self.by_key.remove(&key);
        } else {
            self.order.push_back(key);
        }
        Some(value)
    }

    /// Removes the newest value of the key with the most.
    fn pop_newest_of_longest(&mut self) -> Option<V> {
        let (key, values) = self.by_key.iter_mut().max_by_key(|(_, values)| values.len())?;
        let value = values.pop_back()?;
        self.len -= 1;
        if values.is_empty() {
            let key = key.clone();
            self.by_key.remove(&key);
            self.order.retain(|other| *other != key);
        }
        Some(value)
    }
}

/// The part of the limits that new connections have while Weir is overloaded.
const PACED_PART: usize = 4;
/// One that computes, and one that is ready when it ends.
const PLACES_PER_PROCESSOR: usize = 2;
/// From this number of waiting handshakes on, no further connection is accepted: some tens of
/// milliseconds of work.
const BUSY_AT: usize = 64;
/// Limit of the handshakes that wait. Connections that were accepted before the gate was busy may
/// be more than [`BUSY_AT`], since their first bytes arrive later.
const WAITING_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use proptest::prelude::*;

    use super::*;
    use crate::flow::overload::Signals;
    use crate::server::overload::Stages;

    fn gate(places: usize) -> HandshakeGate {
        let metrics = ServerMetrics::register(&prometheus::Registry::new()).unwrap();
        HandshakeGate::with_places(places, Overload::calm(), metrics)
    }

    fn address(last: u8) -> Option<IpAddr> {
        Some(IpAddr::from([192, 0, 2, last]))
    }

    fn waiting(gate: &HandshakeGate, last: u8) -> tokio::task::JoinHandle<Result<Place, GateFull>> {
        let gate = gate.clone();
        tokio::spawn(async move { gate.enter(address(last)).await })
    }

    async fn all_wait(gate: &HandshakeGate, count: usize) {
        while gate.0.state.lock().waiting.len() < count {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn addresses_take_turns() {
        let gate = gate(1);
        let place = gate.enter(address(1)).await.unwrap();
        let mut flood = Vec::new();
        for count in 1..=10 {
            flood.push(waiting(&gate, 1));
            all_wait(&gate, count).await;
        }
        let other = waiting(&gate, 2);
        all_wait(&gate, 11).await;
        drop(place);
        let first = flood.remove(0).await.unwrap().unwrap();
        drop(first);
        let other = other.await.unwrap().unwrap();
        assert!(flood.iter().all(|waiting| !waiting.is_finished()));
        drop(other);
        for waiting in flood {
            drop(waiting.await.unwrap().unwrap());
        }
        assert_eq!(gate.0.state.lock().in_use, 0);
    }

    #[tokio::test]
    async fn a_client_that_is_gone_leaves_its_turn() {
        let gate = gate(1);
        let place = gate.enter(address(1)).await.unwrap();
        let gone = waiting(&gate, 2);
        all_wait(&gate, 1).await;
        gone.abort();
        let _ended = gone.await;
        let next = waiting(&gate, 3);
        all_wait(&gate, 2).await;
        drop(place);
        drop(next.await.unwrap().unwrap());
        assert_eq!(gate.0.state.lock().in_use, 0);
    }

    #[tokio::test]
    async fn while_weir_is_overloaded_few_handshakes_are_computed() {
        let gate = gate(8);
        let set = |stage| {
            let stages = Stages { overall: stage, space: Stage::Calm };
            gate.0.overload.set(stages, &Signals::default());
        };
        set(Stage::InitialStates);
        let places = [gate.enter(address(1)).await.unwrap(), gate.enter(address(1)).await.unwrap()];
        let waiting: Vec<_> = (2..12).map(|last| waiting(&gate, last)).collect();
        all_wait(&gate, 10).await;
        set(Stage::LargeLists);
        let [first, second] = places;
        drop(first);
        assert_eq!(gate.0.state.lock().in_use, 8, "all places are used again");
        set(Stage::VitalOnly);
        drop(second);
        assert_eq!(gate.0.state.lock().in_use, 7, "those that compute go on");
        for waiting in waiting {
            drop(waiting.await.unwrap().unwrap());
        }
        assert_eq!(gate.0.state.lock().in_use, 0);
    }

    #[tokio::test]
    async fn the_newest_of_the_most_is_refused_and_the_loop_pauses() {
        let gate = gate(1);
        let place = gate.enter(address(1)).await.unwrap();
        let pass = |last| {
            let gate = gate.clone();
            tokio::spawn(async move { gate.enter(address(last)).await.map(drop) })
        };
        let flood: Vec<_> = (0..WAITING_MAX).map(|_| pass(1)).collect();
        all_wait(&gate, WAITING_MAX).await;
        let other = pass(2);
        while !flood.iter().any(tokio::task::JoinHandle::is_finished) {
            tokio::task::yield_now().await;
        }
        assert_eq!(flood.iter().filter(|waiting| waiting.is_finished()).count(), 1);
        let mut calm = pin!(gate.until_calm());
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(calm.as_mut().poll(&mut context), Poll::Pending);
        drop(place);
        assert!(other.await.unwrap().is_ok());
        let results = futures::future::join_all(flood).await;
        assert_eq!(results.into_iter().filter(|ended| ended.as_ref().unwrap().is_err()).count(), 1);
        calm.await;
    }

    proptest! {
        /// The model is a list in the order of arrival and the order of the keys.
        #[test]
        fn keys_are_served_as_in_the_model(steps in proptest::collection::vec((0_u8..3, 0_u8..5), 0..200)) {
            let mut queue = RoundRobin::default();
            let mut model: Vec<(u8, usize)> = Vec::new();
            let mut order: Vec<u8> = Vec::new();
            for (number, (step, key)) in steps.into_iter().enumerate() {
                match step {
                    0 | 1 => {
                        queue.push(key, number);
                        model.push((key, number));
                        if !order.contains(&key) {
                            order.push(key);
                        }
                    }
                    _ => {
                        let expected = (!order.is_empty()).then(|| {
                            let key = order.remove(0);
                            let place = model.iter().position(|(other, _)| *other == key).unwrap();
                            let (_, number) = model.remove(place);
                            if model.iter().any(|(other, _)| *other == key) {
                                order.push(key);
                            }
                            number
                        });
                        prop_assert_eq!(queue.pop(), expected);
                    }
                }
                prop_assert_eq!(queue.len(), model.len());
            }
            while let Some(newest) = queue.pop_newest_of_longest() {
                let count = |key: u8| model.iter().filter(|(other, _)| *other == key).count();
                let place = model.iter().position(|(_, number)| *number == newest).unwrap();
                let (key, _) = model[place];
                prop_assert!((0..5).all(|other| count(other) <= count(key)));
                prop_assert!(model[place + 1..].iter().all(|(other, _)| *other != key));
                model.remove(place);
            }
            prop_assert!(model.is_empty() && queue.order.is_empty());
        }
    }
}
