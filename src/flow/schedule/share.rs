//! How levels share the seats, by the rules of kube-apiserver (`apf_controller.go`, KEP-1040).

/// The part of all seats that a level is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LevelShare {
    /// A part in proportion to shares, as that of a PriorityLevelConfiguration.
    Shares {
        /// `nominalConcurrencyShares`.
        shares: u32,
        /// `lendablePercent`.
        lendable_percent: u32,
        /// `borrowingLimitPercent`; `None` for no limit.
        borrowing_percent: Option<u32>,
    },
    /// A part of all seats that others may not borrow, and that borrows nothing.
    Fixed {
        /// Percent of all seats.
        percent: u32,
        /// The most seats.
        seats_max: u64,
    },
}

/// The seats of a level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// The seats that are the level's by its share.
    pub nominal: u64,
    /// The seats that others cannot borrow.
    pub least: u64,
    /// The most seats that it may have, with those that it borrows.
    pub most: u64,
}

impl Limits {
    /// Returns the seats of a level that may have this percentage of its nominal seats at most. The
    /// nominal seats stay: they are its part beside others.
    pub(super) fn capped(self, percent: u64) -> Self {
        let most = (self.nominal.saturating_mul(percent) / 100).clamp(1, self.most.max(1));
        Self { most, least: self.least.min(most), ..self }
    }
}

/// The seats of a level in the sums over all levels, which say what may be borrowed; or the sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SeatSums {
    /// The seats that others cannot have.
    pub(super) claimed: u64,
    /// The seats in use beyond the nominal ones.
    pub(super) borrowed: u64,
    /// The part of the borrowed ones that stays borrowed when all but long requests have ended.
    pub(super) borrowed_long: u64,
}

impl SeatSums {
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

/// Divides seats. The sum of the least seats is at most all.
pub fn divide(seats: u64, shares: &[LevelShare]) -> Vec<Limits> {
    let fixed = |share: &LevelShare| match *share {
        LevelShare::Fixed { percent, seats_max } => {
            (seats * u64::from(percent)).div_ceil(100).clamp(1, seats_max)
        }
        LevelShare::Shares { .. } => 0,
    };
    let rest = seats.saturating_sub(shares.iter().map(fixed).sum());
    let sum: u64 = shares.iter().map(|share| u64::from(share.shares())).sum();
    let limits = shares.iter().map(|share| match *share {
        LevelShare::Fixed { .. } => {
            let nominal = fixed(share);
            Limits { nominal, least: nominal, most: nominal }
        }
        LevelShare::Shares { shares, lendable_percent, borrowing_percent } => {
            let nominal = (rest * u64::from(shares)).div_ceil(sum.max(1));
            let least = nominal - percent(nominal, lendable_percent).min(nominal);
            let most = borrowing_percent
                .map_or(seats, |limit| (nominal + percent(nominal, limit)).min(seats));
            Limits { nominal, least, most: most.max(1) }
        }
    });
    let mut limits: Vec<Limits> = limits.collect();
    scale(seats, &mut limits);
    limits
}

/// Scales the least seats down where they are more than all: what is lost by rounding goes to those
/// with the largest remainders.
fn scale(seats: u64, limits: &mut [Limits]) {
    let sum: u64 = limits.iter().map(|limit| limit.least).sum();
    if sum <= seats {
        return;
    }
    let mut remainders: Vec<(u64, usize)> = Vec::with_capacity(limits.len());
    let mut given = 0;
    for (place, limit) in limits.iter_mut().enumerate() {
        let product = u128::from(limit.least) * u128::from(seats);
        let remainder = product % u128::from(sum);
        remainders.push((u64::try_from(remainder).unwrap_or(0), place));
        limit.least = u64::try_from(product / u128::from(sum)).unwrap_or(0);
        given += limit.least;
    }
    remainders.sort_unstable_by(|one, two| two.cmp(one));
    for (_, place) in remainders.into_iter().take(usize::try_from(seats - given).unwrap_or(0)) {
        if let Some(limit) = limits.get_mut(place) {
            limit.least += 1;
        }
    }
}

impl LevelShare {
    fn shares(&self) -> u32 {
        match self {
            Self::Shares { shares, .. } => *shares,
            Self::Fixed { .. } => 0,
        }
    }
}

/// Returns a part in percent, rounded as kube-apiserver rounds.
fn percent(amount: u64, percent: u32) -> u64 {
    (amount * u64::from(percent) + 50) / 100
}
