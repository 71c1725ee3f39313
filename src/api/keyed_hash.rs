//! The hash of what clients choose: users, agents, paths. It is seeded at random, so that a client,
//! which does not know the seed, cannot compute two that have the same hash.
//!
//! It is that of `ahash`. The standard library's took half of the instructions that flow control
//! adds to a GET from the cache, and a third of those that it adds to a forwarded one
//! (benches/overload-figures.md). Such a hash is its own hash as a key ([`BuildHashOfHash`]).

use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};

/// Builds hashers of one random seed.
#[derive(Clone, Debug)]
pub struct BuildKeyedHash(ahash::RandomState);

impl Default for BuildKeyedHash {
    fn default() -> Self {
        // The standard library has random keys at hand. A simulation decides them.
        let random = RandomState::new();
        let [one, two, three, four] = [1_u8, 2, 3, 4].map(|number| random.hash_one(number));
        Self(ahash::RandomState::with_seeds(one, two, three, four))
    }
}

impl BuildHasher for BuildKeyedHash {
    type Hasher = ahash::AHasher;

    fn build_hasher(&self) -> Self::Hasher {
        self.0.build_hasher()
    }
}

/// Hashes keys that are hashes already, of a hasher that is seeded at random: each is its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct HashOfHash(u64);

/// Builds hashers for keys that are hashes already.
pub type BuildHashOfHash = BuildHasherDefault<HashOfHash>;

impl Hasher for HashOfHash {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_seed_has_other_hashes() {
        let hashes: HashSet<_> =
            (0..100).map(|_| BuildKeyedHash::default().hash_one("system:admin")).collect();
        assert_eq!(hashes.len(), 100);
    }

    #[test]
    fn equal_values_have_equal_hashes_and_others_do_not() {
        let hash = BuildKeyedHash::default();
        let same = hash.clone();
        let hashes: HashSet<_> =
            (0..10_000).map(|number| hash.hash_one(("user", number))).collect();
        assert_eq!(hashes.len(), 10_000);
        assert_eq!(hash.hash_one(("user", 7)), same.hash_one(("user", 7)));
    }
}
