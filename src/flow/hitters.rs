//! The heaviest of a stream's keys, in bounded memory: the Space-Saving algorithm (Metwally,
//! Agrawal, El Abbadi 2005) with weights and decay.
//!
//! A summary keeps [`KEYS_MAX`] keys. A new key replaces the lightest one and inherits its weight
//! as its possible error. So a weight is at most `error` too high and never too low, the error is
//! at most the total weight divided by [`KEYS_MAX`], and every key with more than that is kept.
//! The costs of a key are counted from when it was last inserted: they are never too high.

use std::collections::HashMap;

use crate::flow::cost::Cost;
use crate::flow::hash_of_hash::BuildHashOfHash;

/// The heaviest keys of a stream.
#[derive(Debug)]
pub struct Summary<K> {
    counters: Vec<Counter<K>>,
    places: HashMap<u64, usize, BuildHashOfHash>,
    total: f64,
    replaced: u64,
}

/// The weight and the costs of a key.
#[derive(Clone, Debug)]
pub struct Counter<K> {
    hash: u64,
    /// The key.
    pub key: K,
    /// Its weight, at most `error` too high.
    pub weight: f64,
    /// How much of the weight may be that of other keys.
    pub error: f64,
    /// The key's costs since it was inserted.
    pub cost: Cost,
}

impl<K> Default for Summary<K> {
    fn default() -> Self {
        Self { counters: Vec::new(), places: HashMap::default(), total: 0.0, replaced: 0 }
    }
}

impl<K> Summary<K> {
    /// Adds the cost of a key. `hash` stands for the key, which is only made if it is new: the hash
    /// must be keyed, so that no client can make two keys with the same one.
    pub fn add(&mut self, hash: u64, cost: &Cost, key: impl FnOnce() -> K) {
        let weight = cost.weight();
        self.total += weight;
        if let Some(counter) = self.places.get(&hash).and_then(|it| self.counters.get_mut(*it)) {
            counter.weight += weight;
            counter.cost.add(cost);
            return;
        }
        let (place, error) = match self.lightest() {
            Some((place, weight)) if self.counters.len() >= KEYS_MAX => (Some(place), weight),
            _ => (None, 0.0),
        };
        let counter = Counter { hash, key: key(), weight: weight + error, error, cost: *cost };
        match place.and_then(|place| Some((place, self.counters.get_mut(place)?))) {
            Some((place, lightest)) => {
                let replaced = std::mem::replace(lightest, counter);
                self.places.remove(&replaced.hash);
                self.places.insert(hash, place);
                self.replaced += 1;
            }
            None => {
                self.places.insert(hash, self.counters.len());
                self.counters.push(counter);
            }
        }
    }

    /// Multiplies all weights and costs.
    pub fn decay(&mut self, factor: f64) {
        self.total *= factor;
        for counter in &mut self.counters {
            counter.weight *= factor;
            counter.error *= factor;
            counter.cost.scale(factor);
        }
    }

    /// Returns the keys, the heaviest first.
    pub fn heaviest(&self) -> Vec<&Counter<K>> {
        let mut counters: Vec<_> = self.counters.iter().collect();
        counters.sort_by(|one, other| other.weight.total_cmp(&one.weight));
        counters
    }

    /// Returns the weight of all keys, also of those that are not kept.
    pub fn total(&self) -> f64 {
        self.total
    }

    /// Returns how many keys were replaced by others.
    pub fn replaced(&self) -> u64 {
        self.replaced
    }

    fn lightest(&self) -> Option<(usize, f64)> {
        let weights = self.counters.iter().map(|counter| counter.weight).enumerate();
        weights.min_by(|(_, one), (_, other)| one.total_cmp(other))
    }
}

/// The keys of a summary.
pub const KEYS_MAX: usize = 200;

#[cfg(test)]
mod tests;
