//! The sums of what one client does with one resource, and with all of them.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::cost::Cost;
use crate::costs::{Costs, HabitKey, SeenHabit};
use crate::habit::{AskedForm, Start};
use weir_api::built_in_groups::is_built_in_group;

/// A client and a resource: user, agent, resource.
pub(super) type Who = [Box<str>; 3];

/// The requests of one client for one resource in the last hour.
#[derive(Debug, Default)]
pub(super) struct Sums {
    lists: Vec<(HabitKey, Cost)>,
    pub(super) watches: Cost,
    pub(super) json_watches: Cost,
    /// Watches that begin with the state, as a list does.
    pub(super) initial_watches: Cost,
    /// GETs of objects that were read just before.
    pub(super) gets: Cost,
    /// All requests that were counted here.
    pub(super) requests: Cost,
    /// Those that came before the `Retry-After` of their refusal was over.
    pub(super) early: Cost,
    /// Those of a deprecated API.
    pub(super) deprecated: Cost,
    pub(super) list_age: Option<Duration>,
    /// The time since the last of [`Self::gets`].
    get_age: Option<Duration>,
    /// The time since a watch began, or brought something.
    watch_age: Option<Duration>,
    /// The parts of the last hour in which lists came that no connection has repeated, as bits.
    begins: u16,
    pub(super) asks_metadata: bool,
    pub(super) is_built_in: bool,
    /// The addresses from which it reads the pods of all nodes.
    pub(super) addresses: usize,
    /// The API server's warning that the API is deprecated.
    pub(super) warning: Option<Box<str>>,
    /// The seconds for which it has been counted.
    pub(super) seconds: f64,
}

impl Sums {
    /// Returns the costs of the lists that are `wanted`.
    pub(super) fn lists_of(&self, wanted: impl Fn(&HabitKey) -> bool) -> Cost {
        let mut sum = Cost::default();
        let lists = self.lists.iter().filter(|(key, _)| wanted(key));
        lists.for_each(|(_, cost)| sum.add(cost));
        sum
    }

    /// Whether it watches: the API server ends each watch within an hour, so that another one
    /// begins.
    pub(super) fn has_watch(&self) -> bool {
        self.watch_age.is_some_and(|age| age < WATCHED_WITHIN)
    }

    /// Whether requests that come `every` seconds still come. `age` is that of the last one.
    fn goes_on(age: Option<Duration>, every: f64) -> bool {
        age.is_some_and(|age| age.as_secs_f64() <= (2.0 * every).max(60.0))
    }

    pub(super) fn still_lists(&self, lists: &Cost) -> bool {
        Self::goes_on(self.list_age, self.every(lists))
    }

    pub(super) fn still_gets(&self) -> bool {
        Self::goes_on(self.get_age, self.every(&self.gets))
    }

    /// Returns the mean number of seconds between two requests.
    pub(super) fn every(&self, cost: &Cost) -> f64 {
        self.seconds / cost.requests.max(1e-9)
    }

    /// Returns the number of the parts of five minutes of the last hour in which informers began.
    pub(super) fn parts_with_begins(&self) -> u32 {
        self.begins.count_ones()
    }

    fn add(&mut self, now: Duration, habit: &SeenHabit, cost: &Cost) {
        let SeenHabit { key, seen } = habit;
        let age = |last: Option<Duration>| {
            let age = seen.age(now);
            Some(last.map_or(age, |last| last.min(age)))
        };
        self.requests.add(cost);
        self.early.add(&part(cost, cost.early_retries));
        self.deprecated.add(&part(cost, cost.deprecated));
        self.asks_metadata |= key.habit.form == AskedForm::Metadata;
        match key.verb {
            "watch" => {
                self.watches.add(cost);
                self.watch_age = age(self.watch_age);
                if key.habit.form == AskedForm::Json {
                    self.json_watches.add(cost);
                }
                if key.habit.start != Start::Version {
                    self.initial_watches.add(cost);
                }
            }
            "list" => {
                self.lists.push((key.clone(), *cost));
                self.list_age = age(self.list_age);
                if !key.habit.is_repeated && key.habit.is_new_list() {
                    self.begins |= seen.parts(now);
                }
            }
            "get" if key.habit.is_repeated => {
                self.gets.add(cost);
                self.get_age = age(self.get_age);
            }
            _ => {}
        }
    }
}

/// Adds up the habits by client and resource, and by client with the resource [`ALL_RESOURCES`].
pub(super) fn collect(now: Duration, costs: &Costs) -> BTreeMap<Who, Sums> {
    let [_, hour] = costs.windows();
    let mut by_client = BTreeMap::<Who, Sums>::new();
    let seconds = hour.seconds(now);
    for counter in costs.habits().heaviest() {
        let key = &counter.key.key;
        let sums = by_client.entry(who(key)).or_default();
        sums.seconds = seconds;
        sums.is_built_in = is_built_in(&key.resource);
        sums.add(now, &counter.key, &counter.cost);
        if matches!(key.verb, "list" | "watch") {
            let sums = by_client
                .entry([key.user.clone(), key.agent.clone(), ALL_RESOURCES.into()])
                .or_default();
            sums.seconds = seconds;
            sums.requests.add(&counter.cost);
        }
    }
    for ([user, agent, resource], sums) in &mut by_client {
        if &**resource == PODS {
            sums.addresses = costs.spread().addresses([user, agent]);
        }
        sums.warning = costs.warning(resource).map(Into::into);
    }
    by_client
}

/// Returns the part of a cost that `requests` of its requests have.
fn part(cost: &Cost, requests: f64) -> Cost {
    let mut part = *cost;
    part.scale((requests / cost.requests.max(1e-9)).min(1.0));
    part
}

/// Whether the resource is one of Kubernetes' own, which can be read in protobuf. Custom resources
/// cannot, also in groups below `k8s.io`.
fn is_built_in(resource: &str) -> bool {
    match resource.split_once('.') {
        None => true,
        Some((_, group)) => is_built_in_group(group),
    }
}

fn who(key: &HabitKey) -> Who {
    [key.user.clone(), key.agent.clone(), key.resource.clone()]
}

/// A watch lasts an hour at most, unless its client asks for more.
const WATCHED_WITHIN: Duration = Duration::from_secs(2 * 3600);
pub(super) const ALL_RESOURCES: &str = "(all)";
const PODS: &str = "pods";
