//! The heaviest of a stream's keys, in bounded memory: the Space-Saving algorithm (Metwally,
//! Agrawal, El Abbadi 2005) with weights and decay.
//!
//! A summary keeps a number of keys, [`KEYS_MAX`] by default. A new key replaces the lightest one
//! and inherits its weight as its possible error. So a weight is at most `error` too high and never
//! too low, the error is at most the total weight divided by the number of keys, and every key with
//! more than that is kept.
//! The costs of a key are counted from when it was last inserted: they are never too high.

use std::collections::HashMap;

use crate::cost::Cost;
use weir_api::keyed_hash::BuildHashOfHash;

/// The heaviest keys of a stream.
#[derive(Debug)]
pub struct Summary<K> {
    keys_max: usize,
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
        Self::new(KEYS_MAX)
    }
}

impl<K> Summary<K> {
    /// Returns a summary of at most `keys_max` keys.
    pub fn new(keys_max: usize) -> Self {
        let (counters, places) = (Vec::new(), HashMap::default());
        Self { keys_max, counters, places, total: 0.0, replaced: 0 }
    }

    /// Adds the cost of a key. `hash` stands for the key, which is only made if it is new: the hash
    /// must be keyed, so that no client can make two keys with the same one. Returns the key.
    pub fn add(&mut self, hash: u64, cost: &Cost, key: impl FnOnce() -> K) -> Option<&mut K> {
        let weight = cost.weight();
        self.total += weight;
        if let Some(place) = self.places.get(&hash).copied() {
            let counter = self.counters.get_mut(place)?;
            counter.weight += weight;
            counter.cost.add(cost);
            return Some(&mut counter.key);
        }
        let lightest = if self.counters.len() >= self.keys_max { self.lightest() } else { None };
        let error = lightest.map_or(0.0, |(_, weight)| weight);
        let counter = Counter { hash, key: key(), weight: weight + error, error, cost: *cost };
        let place = lightest.map_or(self.counters.len(), |(place, _)| place);
        match self.counters.get_mut(place) {
            Some(lightest) => {
                let replaced = std::mem::replace(lightest, counter);
                self.places.remove(&replaced.hash);
                self.replaced += 1;
            }
            None => self.counters.push(counter),
        }
        self.places.insert(hash, place);
        self.counters.get_mut(place).map(|counter| &mut counter.key)
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

/// The keys of most summaries.
pub const KEYS_MAX: usize = 200;

#[cfg(test)]
mod tests;
