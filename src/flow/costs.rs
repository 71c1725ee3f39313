//! The costs of clients: the heaviest by user, by user agent, by flow, and by user, resource and
//! verb, over the last minute and the last hour.
//!
//! A window forgets exponentially: what a client cost one window ago counts 37 %. Requests are
//! first added up in a [`Batch`], so that a client that sends many costs one update of the windows.
//!
//! Habits are kept for the last hour only, and more of them: a client has one for each resource and
//! verb. Those of kubectl and of kubelets are left out ([`is_examined`]), which would fill them.
//!
//! Memory: 2 windows x 4 summaries x [`KEYS_MAX`](crate::hitters::KEYS_MAX) keys, of at most
//! [`KEY_BYTES_MAX`] each, and [`HABITS_MAX`] habits, of one and a half times that: less than
//! 1.5 MiB.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::time::Duration;

use crate::cost::Cost;
use crate::habit::{Habit, Seen, is_examined};
use crate::hitters::Summary;
use crate::spread::Spread;
use weir_api::keyed_hash::{BuildHashOfHash, BuildKeyedHash};

/// The sender and the subject of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The user's name, or its substitute.
    pub user: Text,
    /// The User-Agent.
    pub agent: Text,
    /// The FlowSchema; `None` without a user.
    pub schema: Option<Arc<str>>,
    /// The distinguisher of the flow.
    pub flow: Text,
    /// The resource, with its group and subresource.
    pub resource: Text,
    /// The verb.
    pub verb: &'static str,
    /// The way in which a list or a watch was asked for.
    pub habit: Habit,
}

/// A text that a client chose, cut to a limit, with the hash of the whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    text: Box<str>,
    hash: u64,
}

/// Requests that were not yet added to the windows, by the hash of their origin.
#[derive(Debug, Default)]
pub struct Batch(HashMap<u64, (Origin, Cost), BuildHashOfHash>);

weir_api::labels! {
    /// A dimension by which costs are added up.
    pub enum Dimension {
        /// The user.
        User = "users",
        /// The user agent.
        Agent = "userAgents",
        /// The FlowSchema and the distinguisher of the flow in it.
        Flow = "flows",
        /// The user (in a sidecar the user agent), the resource and the verb.
        Action = "actions",
    }
}

/// The fields of a key, with their names.
pub type Key = Box<[(&'static str, Box<str>)]>;

/// A client that reads a resource in one way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HabitKey {
    /// The user; empty in a sidecar.
    pub user: Box<str>,
    /// The user agent.
    pub agent: Box<str>,
    /// The resource, with its group and subresource.
    pub resource: Box<str>,
    /// The verb: `list` or `watch`; another one where a request showed a habit.
    pub verb: &'static str,
    /// The way in which it is asked for.
    pub habit: Habit,
}

/// A habit of a client, and when it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenHabit {
    /// The habit.
    pub key: HabitKey,
    /// When it was seen.
    pub seen: Seen,
}

/// The costs of one time window.
#[derive(Debug)]
pub struct Window {
    length: Duration,
    started: Duration,
    decayed: Duration,
    total: Cost,
    summaries: [Summary<Key>; 4],
}

/// All windows.
#[derive(Debug)]
pub struct Costs {
    windows: [Window; 2],
    /// How clients list and watch, with the weights of the longest window.
    habits: Summary<SeenHabit>,
    hasher: BuildKeyedHash,
    /// Whether users are known (gateway mode).
    by_user: bool,
    spread: Spread,
    /// The API server's warnings that an API is deprecated, by resource.
    warnings: Vec<(Box<str>, Box<str>)>,
}

impl Text {
    /// Cuts a text at [`TEXT_BYTES_MAX`].
    pub fn new(hasher: &BuildKeyedHash, text: &str) -> Self {
        let hash = hasher.hash_one(text);
        if text.len() <= TEXT_BYTES_MAX {
            return Self { text: text.into(), hash };
        }
        let end = text.floor_char_boundary(TEXT_BYTES_MAX - CUT.len());
        let cut = text.get(..end).unwrap_or_default();
        Self { text: format!("{cut}{CUT}").into(), hash }
    }
}

impl Batch {
    /// Adds a cost. `hash` stands for the origin, which is only made if it is new. Returns whether
    /// the batch is full.
    pub fn add(&mut self, hash: u64, cost: &Cost, origin: impl FnOnce() -> Origin) -> bool {
        match self.0.entry(hash) {
            Entry::Occupied(mut counted) => counted.get_mut().1.add(cost),
            Entry::Vacant(place) => drop(place.insert((origin(), *cost))),
        }
        self.0.len() >= BATCH_ORIGINS_MAX
    }
}

impl Costs {
    /// Begins to count at `now`, which is the time since any moment.
    pub fn new(now: Duration, by_user: bool) -> Self {
        let window = |length| Window {
            length,
            started: now,
            decayed: now,
            total: Cost::default(),
            summaries: Default::default(),
        };
        let (hasher, spread, warnings) = (BuildKeyedHash::default(), Spread::default(), Vec::new());
        let (windows, habits) = (WINDOWS.map(window), Summary::new(HABITS_MAX));
        Self { windows, habits, hasher, by_user, spread, warnings }
    }

    /// Notes that a client began to watch the pods of all nodes from an address, which `address`
    /// stands for.
    pub fn open_reader(&mut self, now: Duration, user: &Text, agent: &Text, address: u64) {
        self.spread.open(now, [&user.text, &agent.text], address);
    }

    /// Notes that such a watch has ended.
    pub fn close_reader(&mut self, user: &Text, agent: &Text, address: u64) {
        self.spread.close([&user.text, &agent.text], address);
    }

    /// Returns from how many addresses clients watch the pods of all nodes.
    pub fn spread(&self) -> &Spread {
        &self.spread
    }

    /// Keeps the API server's warning that the API of a resource is deprecated.
    pub fn note_warning(&mut self, resource: &Text, warning: &str) {
        let warning = cut(warning);
        match self.warnings.iter_mut().find(|(warned, _)| *warned == resource.text) {
            Some((_, kept)) if *kept == warning => {}
            Some((_, kept)) => *kept = warning,
            None => {
                if self.warnings.len() >= WARNINGS_MAX {
                    self.warnings.remove(0);
                }
                self.warnings.push((resource.text.clone(), warning));
            }
        }
    }

    /// Returns the kept warning of a resource.
    pub fn warning(&self, resource: &str) -> Option<&str> {
        let entry = self.warnings.iter().find(|(warned, _)| &**warned == resource);
        entry.map(|(_, warning)| &**warning)
    }

    /// Adds all costs of a batch, and empties it.
    pub fn add(&mut self, now: Duration, batch: &mut Batch) {
        self.decay(now);
        for (_, (origin, cost)) in batch.0.drain() {
            let Origin { user, agent, schema, flow, resource, verb, .. } = &origin;
            let who = if self.by_user { user } else { agent };
            let schema_name = schema.as_deref().unwrap_or_default();
            let action = self.hasher.hash_one((who.hash, resource.hash, verb));
            let flow_hash = self.hasher.hash_one((schema_name, flow.hash));
            self.add_habit(now, &origin, &cost);
            for window in &mut self.windows {
                window.total.add(&cost);
                let [users, agents, flows, actions] = &mut window.summaries;
                if self.by_user {
                    users.add(user.hash, &cost, || [("user", user.text.clone())].into());
                }
                agents.add(agent.hash, &cost, || [("userAgent", agent.text.clone())].into());
                if schema.is_some() {
                    let key =
                        || [("flowSchema", cut(schema_name)), ("flow", flow.text.clone())].into();
                    flows.add(flow_hash, &cost, key);
                }
                let who_field = if self.by_user { "user" } else { "userAgent" };
                actions.add(action, &cost, || {
                    let resource = ("resource", resource.text.clone());
                    [(who_field, who.text.clone()), resource, ("verb", (*verb).into())].into()
                });
            }
        }
    }

    fn add_habit(&mut self, now: Duration, origin: &Origin, cost: &Cost) {
        let Origin { user, agent, resource, verb, habit, .. } = origin;
        let has_habit =
            matches!(*verb, "list" | "watch") || habit.is_repeated || cost.shows_habit();
        if !has_habit || !is_examined(&user.text, &agent.text) {
            return;
        }
        let hash = self.hasher.hash_one((user.hash, agent.hash, resource.hash, verb, habit));
        let seen = self.habits.add(hash, cost, || {
            let texts = [user, agent, resource].map(|text| text.text.clone());
            let [user, agent, resource] = texts;
            let key = HabitKey { user, agent, resource, verb, habit: *habit };
            SeenHabit { key, seen: Seen::new(now) }
        });
        if let Some(habit) = seen {
            habit.seen.note(now, cost.requests > 0.0);
        }
    }

    /// Forgets what is due at `now`.
    pub fn decay(&mut self, now: Duration) {
        let [minute, hour] = &mut self.windows;
        minute.decay(now);
        if let Some(factor) = hour.decay(now) {
            self.habits.decay(factor);
        }
    }

    /// Returns how clients list and watch.
    pub fn habits(&self) -> &Summary<SeenHabit> {
        &self.habits
    }

    /// Returns the windows, the shortest first.
    pub fn windows(&self) -> &[Window; 2] {
        &self.windows
    }

    /// Returns how many keys were replaced by others in all summaries.
    pub fn replaced(&self) -> u64 {
        let summaries = self.windows.iter().flat_map(|window| &window.summaries);
        summaries.map(Summary::replaced).sum::<u64>() + self.habits.replaced()
    }
}

impl Window {
    /// Returns its length.
    pub fn length(&self) -> Duration {
        self.length
    }

    /// Returns the costs of all clients together.
    pub fn total(&self) -> &Cost {
        &self.total
    }

    /// Returns the keys of a dimension.
    pub fn summary(&self, dimension: Dimension) -> &Summary<Key> {
        let [users, agents, flows, actions] = &self.summaries;
        match dimension {
            Dimension::User => users,
            Dimension::Agent => agents,
            Dimension::Flow => flows,
            Dimension::Action => actions,
        }
    }

    /// Returns the seconds that the costs stand for at `now`: what a constant rate of 1 a second
    /// would have added up to. At least one second.
    pub fn seconds(&self, now: Duration) -> f64 {
        let (length, age) = (self.length.as_secs_f64(), now.saturating_sub(self.started));
        (length * (1.0 - (-age.as_secs_f64() / length).exp())).max(1.0)
    }

    /// Returns the factor by which it decayed, if it did.
    fn decay(&mut self, now: Duration) -> Option<f64> {
        let elapsed = now.saturating_sub(self.decayed);
        if elapsed < self.length / DECAYS {
            return None;
        }
        self.decayed = now;
        let factor = (-elapsed.as_secs_f64() / self.length.as_secs_f64()).exp();
        self.total.scale(factor);
        self.summaries.iter_mut().for_each(|summary| summary.decay(factor));
        Some(factor)
    }
}

fn cut(text: &str) -> Box<str> {
    text.get(..text.floor_char_boundary(TEXT_BYTES_MAX)).unwrap_or_default().into()
}

/// The lengths of the windows: what happens now, and what happened lately.
const WINDOWS: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(3600)];
/// How often a window decays within its length: the costs of the last part count whole.
const DECAYS: u32 = 60;
/// The habits that are kept: those of some hundred programs.
pub const HABITS_MAX: usize = 1_000;
/// The bytes of a key, of which none has more than two texts of a client and a verb.
pub const KEY_BYTES_MAX: usize = 2 * TEXT_BYTES_MAX + 16;
/// The bytes of a text that a client chose. A longer one is cut.
const TEXT_BYTES_MAX: usize = 120;
/// The mark at the end of a text that was cut.
const CUT: &str = "…";
/// Deprecated APIs of a cluster are fewer.
const WARNINGS_MAX: usize = 32;
/// A map of 64 buckets holds this many.
const BATCH_ORIGINS_MAX: usize = 56;

#[cfg(test)]
mod tests;
