//! The latencies of reads, by class: what is usual, and how much longer they take now.
//!
//! A class is a verb, a resource and a size; its usual latency is the least of the medians of the
//! last ten minutes. Each window has its median, for which 256 of its reads are kept.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use crate::keyed_hash::BuildKeyedHash;

#[derive(Debug)]
pub(super) struct Classes {
    classes: HashMap<u64, Class, BuildKeyedHash>,
    minute_began: Duration,
    /// Reads of this window in classes that vote.
    votes: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Latencies {
    /// The median, over all reads, of their class's latency in parts of the usual one.
    pub(super) ratio: f64,
    /// The mean, over all reads, of the seconds beyond their class's usual latency.
    pub(super) excess: f64,
    /// The mean of their seconds.
    pub(super) latency: f64,
}

#[derive(Debug, Default)]
struct Class {
    /// Latencies in seconds of this window, of which at most [`SAMPLES_MAX`] are kept.
    samples: Vec<f32>,
    /// All reads of this window.
    count: u32,
    /// The median of the last window with reads.
    last: Option<f32>,
    /// The medians of the windows of this minute, and all its reads.
    windows: Vec<f32>,
    minute_count: u32,
    minutes: VecDeque<Minute>,
    /// The least median of them, if the class votes.
    usual: Option<f32>,
}

/// The latency of the reads of one class.
#[derive(Clone, Copy, Debug)]
struct Vote {
    ratio: f32,
    excess: f32,
    latency: f32,
    count: u32,
}

#[derive(Clone, Copy, Debug)]
struct Minute {
    median: Option<f32>,
    count: u32,
}

impl Classes {
    pub(super) fn new(now: Duration) -> Self {
        Self { classes: HashMap::default(), minute_began: now, votes: 0 }
    }

    /// Adds a read. Classes beyond [`CLASSES_MAX`] do not count.
    pub(super) fn add(&mut self, key: u64, latency: Duration) {
        if self.classes.len() >= CLASSES_MAX && !self.classes.contains_key(&key) {
            return;
        }
        let class = self.classes.entry(key).or_default();
        class.add(latency.as_secs_f32());
        if class.usual.is_some() {
            self.votes = self.votes.saturating_add(1);
        }
    }

    pub(super) fn votes(&self) -> u32 {
        self.votes
    }

    /// Ends a window. `None` if too few reads voted. One that `is_bound` does not change what is
    /// usual.
    pub(super) fn end_window(&mut self, now: Duration, is_bound: bool) -> Option<Latencies> {
        let classes = self.classes.values_mut();
        let mut votes: Vec<Vote> = classes.filter_map(|class| class.end_window(is_bound)).collect();
        let vote_count: u32 = votes.iter().map(|vote| vote.count).sum();
        self.votes = 0;
        if now.saturating_sub(self.minute_began) >= MINUTE {
            self.minute_began = now;
            self.classes.values_mut().for_each(Class::end_minute);
            self.classes.retain(|_, class| !class.is_unused());
        }
        votes.sort_unstable_by(|one, two| one.ratio.total_cmp(&two.ratio));
        let mut before = 0;
        let median = votes.iter().find(|vote| {
            before += vote.count;
            before * 2 >= vote_count
        });
        let ratio = f64::from(median.filter(|_| vote_count >= VOTES_MIN)?.ratio);
        let mean = |value: fn(&Vote) -> f32| {
            let products = votes.iter().map(|vote| f64::from(value(vote)) * f64::from(vote.count));
            products.sum::<f64>() / f64::from(vote_count)
        };
        let (excess, latency) = (mean(|vote| vote.excess), mean(|vote| vote.latency));
        Some(Latencies { ratio, excess, latency })
    }

    /// Takes the latencies of the last window as the usual ones.
    pub(super) fn rebase(&mut self) {
        self.classes.values_mut().for_each(Class::rebase);
    }
}

impl Class {
    fn add(&mut self, seconds: f32) {
        if self.samples.len() < SAMPLES_MAX {
            self.samples.push(seconds);
        } else {
            // Each read is kept with the same probability (reservoir sampling).
            let spread = u64::from(self.count).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
            let place = spread % (u64::from(self.count) + 1);
            let place = usize::try_from(place).ok().and_then(|at| self.samples.get_mut(at));
            place.into_iter().for_each(|sample| *sample = seconds);
        }
        self.count = self.count.saturating_add(1);
    }

    /// Returns how much longer reads took than usual; `None` if the class does not vote.
    fn end_window(&mut self, is_bound: bool) -> Option<Vote> {
        let median = median(&mut self.samples)?;
        let count = std::mem::take(&mut self.count);
        self.samples.clear();
        self.last = Some(median);
        if !is_bound || self.usual.is_none() {
            self.windows.push(median);
        }
        self.minute_count = self.minute_count.saturating_add(count);
        let usual = self.usual?.max(LATENCY_MIN);
        if median < FAST {
            return Some(Vote { ratio: 1.0, excess: 0.0, latency: median, count });
        }
        let excess = (median - usual).max(0.0);
        Some(Vote { ratio: median / usual, excess, latency: median, count })
    }

    fn end_minute(&mut self) {
        let minute = Minute { median: median(&mut self.windows), count: self.minute_count };
        self.windows.clear();
        self.minute_count = 0;
        // All its windows were bound.
        if minute.median.is_none() && minute.count > 0 {
            return;
        }
        self.minutes.push_back(minute);
        if self.minutes.len() > MINUTES {
            self.minutes.pop_front();
        }
        self.set_usual();
    }

    fn rebase(&mut self) {
        let Some(median) = self.last else { return };
        let count = self.minute_count.max(READS_MIN);
        self.windows.clear();
        self.minutes = VecDeque::from([Minute { median: Some(median), count }]);
        self.set_usual();
    }

    fn set_usual(&mut self) {
        let count: u32 =
            self.minutes.iter().fold(0, |sum, minute| sum.saturating_add(minute.count));
        let medians = self.minutes.iter().filter_map(|minute| minute.median);
        self.usual = medians.min_by(f32::total_cmp).filter(|_| count >= READS_MIN);
    }

    fn is_unused(&self) -> bool {
        self.minutes.len() >= MINUTES && self.minutes.iter().all(|minute| minute.count == 0)
    }
}

fn median(values: &mut [f32]) -> Option<f32> {
    let middle = values.len() / 2;
    if values.is_empty() {
        return None;
    }
    let (_, median, _) = values.select_nth_unstable_by(middle, f32::total_cmp);
    Some(*median)
}

/// Classes of one API server. A window and ten minutes of each are less than 2 KiB.
const CLASSES_MAX: usize = 256;
const SAMPLES_MAX: usize = 256;
const MINUTE: Duration = Duration::from_secs(60);
const MINUTES: usize = 10;
/// A class with fewer reads in these minutes does not vote.
const READS_MIN: u32 = 20;
/// Fewer votes say nothing.
const VOTES_MIN: u32 = 10;
/// A class whose median is below is never slow: a pause of a few milliseconds doubles it.
const FAST: f32 = 0.020;
/// Latencies below this are the same.
const LATENCY_MIN: f32 = 0.001;
