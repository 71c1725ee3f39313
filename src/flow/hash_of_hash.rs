//! The hash of a key that is a hash already, of a hasher that is seeded at random: itself.

use std::hash::{BuildHasherDefault, Hasher};

/// Hashes keys that are hashes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HashOfHash(u64);

/// Builds it.
pub(super) type BuildHashOfHash = BuildHasherDefault<HashOfHash>;

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
