//! The part of a level in the sums over all levels, which say what may be borrowed.

/// The seats of a level in the sums over all levels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Standing {
    /// Those that others cannot have.
    pub(super) claimed: u64,
    /// Those in use beyond the nominal ones.
    pub(super) borrowed: u64,
    /// The part of the borrowed ones that stays borrowed when all but long requests have ended.
    pub(super) borrowed_long: u64,
}

impl Standing {
    pub(super) fn add(&mut self, other: Self) {
        self.replace(Self::default(), other);
    }

    /// Replaces the part of a level in the sums.
    pub(super) fn replace(&mut self, before: Self, after: Self) {
        self.claimed = self.claimed - before.claimed + after.claimed;
        self.borrowed = self.borrowed - before.borrowed + after.borrowed;
        self.borrowed_long = self.borrowed_long - before.borrowed_long + after.borrowed_long;
    }
}
