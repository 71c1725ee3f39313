//! When clients that find no place are to come again (`docs/decisions/herds.md`).
//!
//! A `Retry-After` that is the same for all brings all of them back at once. So each gets an
//! appointment of its own: the time at which those before it have been served, by twice the rate at
//! which others were served in the last two seconds, and up to a quarter more at random. Twice,
//! because appointments at the measured rate leave places empty, since the header can only say
//! whole seconds; then fewer are served, the next appointments are later, and so on. While nobody
//! is served, nothing is known about that rate; then the time grows with the time for which clients
//! have been refused, as kube-apiserver's does while its cache initializes (`docs/semantics.md`
//! §2.5). Nor is it known just after a count has begun. A crowd is refused within milliseconds, and
//! one client served meanwhile would pass for the rate of two seconds. The rate of the first
//! seconds is too low in most cases, since a crowd's handshakes take the processors. An appointment
//! cannot be made earlier later on, so that none is further away than twice the time for which a
//! rate was counted, or eight seconds, before the part at random.
//!
//! A client whose appointment would be after the latest one gets a random time in the later half,
//! so that these clients do not all come back at once.
//!
//! Pure: the present time, counted from any begin, and the randomness are arguments.

use std::time::Duration;

/// The appointments for one kind of place.
#[derive(Debug)]
pub struct Appointments {
    /// The clients that were served in the present slice of time, and in those before it.
    served: [u32; SLICES],
    /// Since when they are counted.
    counted_since: Duration,
    /// When the present slice began.
    slice: Duration,
    /// When the last appointment is.
    booked_until: Duration,
    /// Since when clients are refused and nobody is served.
    stalled_since: Option<Duration>,
    /// When a client was refused last; `None` if none was.
    refused_at: Option<Duration>,
}

impl Appointments {
    /// Starts without appointments.
    pub fn new(now: Duration) -> Self {
        Self {
            served: [0; SLICES],
            counted_since: now,
            slice: now,
            booked_until: now,
            stalled_since: None,
            refused_at: None,
        }
    }

    /// Whether nobody was refused for so long that all who obey would have come again.
    pub fn is_over(&self, now: Duration) -> bool {
        self.refused_at.is_none_or(|at| now.saturating_sub(at) > OVER_AFTER)
    }

    /// Forgets who was served. It says nothing of the rate, since all who came found a place.
    pub fn forget_served(&mut self, now: Duration) {
        (self.served, self.slice, self.counted_since) = ([0; SLICES], now, now);
    }

    /// Notes that a client was served.
    pub fn served(&mut self, now: Duration) {
        self.advance(now);
        let [present, ..] = &mut self.served;
        *present = present.saturating_add(1);
        self.stalled_since = None;
    }

    /// Makes an appointment behind `waiting` clients. Returns the time until then, in whole seconds
    /// from [`SECONDS_MIN`] to [`SECONDS_MAX`]. `random` is between 0 and 1.
    pub fn book(&mut self, waiting: usize, random: f64, now: Duration) -> u32 {
        self.advance(now);
        if self.is_over(now) {
            self.stalled_since = None;
        }
        self.refused_at = Some(now);
        let served: u32 = self.served.iter().sum();
        let counted = now.saturating_sub(self.counted_since).min(WINDOW);
        if served == 0 || counted < WINDOW / SLICES as u32 {
            let since = *self.stalled_since.get_or_insert(now);
            let seconds = (GROWTH * now.saturating_sub(since).as_secs_f64()).exp().floor();
            return whole_seconds((seconds * (1.0 + JITTER * random)).round());
        }
        let each = counted.as_secs_f64() / (OVERBOOKING * f64::from(served));
        let longest = self.longest(now);
        let ahead = Duration::try_from_secs_f64(each * waiting as f64).unwrap_or(longest);
        let earliest = now + ahead.min(longest);
        let at = self.booked_until.max(earliest) + Duration::from_secs_f64(each);
        self.booked_until = at.min(now + longest);
        if at > now + longest {
            return whole_seconds(longest.as_secs_f64() * (0.5 + 0.5 * random));
        }
        let seconds = self.booked_until.saturating_sub(now).as_secs_f64();
        whole_seconds(seconds * (1.0 + JITTER * random))
    }

    /// Returns the time until the latest appointment: twice the time for which a rate was counted.
    fn longest(&self, now: Duration) -> Duration {
        let counted = now.saturating_sub(self.counted_since);
        counted.saturating_mul(2).clamp(LONGEST_AT_FIRST, LONGEST)
    }

    /// Begins the slice of the present time.
    fn advance(&mut self, now: Duration) {
        let slice = WINDOW / SLICES as u32;
        let passed = now.saturating_sub(self.slice).as_nanos() / slice.as_nanos();
        let passed = usize::try_from(passed).unwrap_or(usize::MAX);
        if passed == 0 {
            return;
        }
        let kept = passed.min(SLICES);
        self.served.rotate_right(kept % SLICES);
        self.served.iter_mut().take(kept).for_each(|count| *count = 0);
        self.slice = match u32::try_from(passed) {
            Ok(passed) if passed < FAR => self.slice + slice * passed,
            _ => now,
        };
    }
}

fn whole_seconds(seconds: f64) -> u32 {
    let least = f64::from(SECONDS_MIN);
    let seconds = seconds.ceil().clamp(least, f64::from(SECONDS_MAX));
    seconds as u32
}

/// The shortest `Retry-After` that has a meaning.
pub const SECONDS_MIN: u32 = 1;
/// The longest one: kube-apiserver's longest is 30 s.
pub const SECONDS_MAX: u32 = 32;
const LONGEST: Duration = Duration::from_secs(SECONDS_MAX as u64);
/// The longest one just after a count has begun.
const LONGEST_AT_FIRST: Duration = Duration::from_secs(8);
/// After this time without a refusal, those of before do not count.
const OVER_AFTER: Duration = Duration::from_secs(60);
/// The rate is that of this time.
const WINDOW: Duration = Duration::from_secs(2);
const SLICES: usize = 8;
/// Appointments for each client that is served.
const OVERBOOKING: f64 = 2.0;
/// Up to this part of an appointment is added at random.
const JITTER: f64 = 0.25;
/// The exponent of kube-apiserver's rule, per second.
const GROWTH: f64 = 0.06;
/// After this number of slices nothing is left of the old ones.
const FAR: u32 = 1 << 20;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn while_nobody_is_served_the_time_grows_with_the_time_that_this_lasts() {
        let start = Duration::from_secs(100);
        let mut book = Appointments::new(start);
        let at = |book: &mut Appointments, seconds: u64| {
            book.book(5_000, 0.0, start + ms(seconds * 1000))
        };
        assert_eq!(
            [0, 10, 20, 40, 60, 100].map(|second| at(&mut book, second)),
            [1, 1, 3, 11, 32, 32]
        );
        // Nobody comes for a while.
        assert_eq!(at(&mut book, 600), 1);
        book.served(start + ms(601_000));
        // Two a second, seven wait.
        for millis in [601_100, 601_200, 601_300] {
            book.served(start + ms(millis));
        }
        assert_eq!(book.book(7, 0.0, start + ms(601_400)), 2);
        // Nobody again.
        assert_eq!(at(&mut book, 700), 1);
    }

    #[test]
    fn appointments_follow_each_other_at_twice_the_rate_of_service() {
        let start = Duration::from_secs(100);
        let mut book = Appointments::new(start);
        for millis in 0..200 {
            book.served(start + ms(millis * 10));
        }
        // A hundred a second: 200 wait, and 1,000 come.
        let now = start + ms(1_999);
        let mut by_second = BTreeMap::<u32, usize>::new();
        for _ in 0..1_000 {
            *by_second.entry(book.book(200, 0.0, now)).or_default() += 1;
        }
        assert_eq!(by_second.keys().copied().collect::<Vec<_>>(), (2..=6).collect::<Vec<_>>());
        assert!(by_second.values().all(|count| (195..=205).contains(count)), "{by_second:?}");
    }

    #[test]
    fn a_rate_is_known_once_it_was_counted_for_a_while() {
        let start = Duration::from_secs(100);
        let mut book = Appointments::new(start);
        // The first refusal starts the count, and 300 more follow at once: one served client says
        // nothing of a rate yet.
        assert_eq!(book.book(300, 0.0, start), 1);
        book.served(start + ms(1));
        for _ in 0..300 {
            assert_eq!(book.book(300, 0.0, start + ms(2)), 1);
        }
        // A thousand a second for 0.4 s: 300 wait for 0.15 s, and as many were refused.
        for millis in 0..400 {
            book.served(start + ms(millis));
        }
        assert_eq!(book.book(300, 0.0, start + ms(400)), 1);
        assert_eq!(book.book(3_000, 0.0, start + ms(400)), 2);
    }

    #[test]
    fn the_first_appointments_are_at_most_ten_seconds_away() {
        let start = Duration::from_secs(100);
        let mut book = Appointments::new(start);
        for millis in 0..500 {
            book.served(start + ms(millis));
        }
        // A thousand a second, and 50,000 come.
        let mut by_second = BTreeMap::<u32, usize>::new();
        for number in 0..50_000 {
            let random = f64::from(number % 100) / 100.0;
            *by_second.entry(book.book(4_000, random, start + ms(500))).or_default() += 1;
        }
        assert_eq!(by_second.keys().next_back(), Some(&10));
        // The others come at a random time of the later half.
        assert!((5..=8).all(|second| by_second[&second] > 8_000), "{by_second:?}");
    }

    /// The clients of a herd, of whom each obeys.
    struct Crowd {
        clients: usize,
        /// The number of clients that may wait at once.
        places: usize,
    }

    impl Crowd {
        /// Returns the seconds until all are served, by so many a second of the present second.
        fn served_after(&self, rate: impl Fn(f64) -> f64) -> f64 {
            let start = Duration::from_secs(100);
            let mut book = Appointments::new(start);
            let mut coming: BTreeMap<u64, usize> = BTreeMap::from([(0, self.clients)]);
            let (mut waiting, mut left, mut refused, mut credit) =
                (0_usize, self.clients, 0_usize, 0.0);
            let mut tick = 0_u64;
            while left > 0 {
                let now = start + ms(tick * 100);
                credit = f64::min(credit + rate(tick as f64 / 10.0) / 10.0, waiting as f64);
                while credit >= 1.0 && waiting > 0 {
                    (credit, waiting, left) = (credit - 1.0, waiting - 1, left - 1);
                    book.served(now);
                }
                for _ in 0..coming.remove(&tick).unwrap_or(0) {
                    if waiting < self.places {
                        waiting += 1;
                        continue;
                    }
                    refused += 1;
                    let random = (refused % 10) as f64 / 10.0;
                    let seconds = book.book(waiting, random, now);
                    assert!((SECONDS_MIN..=SECONDS_MAX).contains(&seconds));
                    *coming.entry(tick + u64::from(seconds) * 10).or_default() += 1;
                }
                tick += 1;
                assert!(tick < 10 * 3_600, "somebody is never served");
            }
            tick as f64 / 10.0
        }
    }

    #[test]
    fn a_rate_that_rises_after_the_first_seconds_is_used() {
        // Handshakes take the processors for two seconds. Then 2,000 a second are served.
        let rate = |seconds| if seconds < 2.0 { 300.0 } else { 2_000.0 };
        let took = Crowd { clients: 50_000, places: 4_096 }.served_after(rate);
        assert!(took < 35.0, "{took} s, ideal 27");
    }

    proptest! {
        /// A crowd that obeys is served by a server of any rate, with few refusals for each.
        #[test]
        fn a_crowd_that_obeys_is_served(
            (clients, rate, places) in (1_usize..3_000, 20_usize..2_000, 32_usize..300)
        ) {
            let took = Crowd { clients, places }.served_after(|_| rate as f64);
            // Only whole seconds can be said, so places stay empty within one.
            let ideal = clients as f64 / (rate.min(places) as f64);
            prop_assert!(took <= 2.0 * ideal + 60.0, "{took} s, ideal {ideal}");
        }
    }
}
