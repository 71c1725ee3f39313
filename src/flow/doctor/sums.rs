//! The sums of what one client does with one resource, and with all of them.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::api::built_in_groups::is_built_in_group;
use crate::flow::cost::Cost;
use crate::flow::costs::{Costs, HabitKey};
use crate::flow::habit::{AskedForm, Start};

/// A client and a resource: user, agent, resource.
pub(super) type Who = [Box<str>; 3];

/// The requests of one client for one resource in the last hour.
#[derive(Debug, Default)]
pub(super) struct Sums {
    lists: Vec<(HabitKey, Cost)>,
    pub(super) watches: Cost,
    /// Watches in JSON.
    pub(super) json_watches: Cost,
    /// Watches that begin with the state, as a list does.
    pub(super) initial_watches: Cost,
    /// GETs of objects that were read just before.
    pub(super) gets: Cost,
    /// All requests that were counted here.
    pub(super) all: Cost,
    /// Those that came before the `Retry-After` of their refusal was over.
    pub(super) early: Cost,
    /// Those of a deprecated API.
    pub(super) deprecated: Cost,
    /// Lists in the last minute.
    pub(super) lists_of_minute: f64,
    /// GETs in the last minute.
    pub(super) gets_of_minute: f64,
    /// Whether the client asks for metadata alone, too.
    pub(super) asks_metadata: bool,
    /// Whether the resource is one of Kubernetes' own.
    pub(super) is_built_in: bool,
    /// The addresses from which it reads the pods of all nodes.
    pub(super) addresses: usize,
    /// The API server's warning that the API is deprecated.
    pub(super) warning: Option<Box<str>>,
    /// Since when it is counted.
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

    fn add(&mut self, key: &HabitKey, cost: &Cost) {
        self.all.add(cost);
        self.early.add(&part(cost, cost.early_retries));
        self.deprecated.add(&part(cost, cost.deprecated));
        self.asks_metadata |= key.habit.form == AskedForm::Metadata;
        match key.verb {
            "watch" => {
                self.watches.add(cost);
                if key.habit.form == AskedForm::Json {
                    self.json_watches.add(cost);
                }
                if key.habit.start != Start::Version {
                    self.initial_watches.add(cost);
                }
            }
            "list" => self.lists.push((key.clone(), *cost)),
            "get" if key.habit.is_repeated => self.gets.add(cost),
            _ => {}
        }
    }
}

/// Adds up the habits by client and resource, and by client with the resource [`ALL_RESOURCES`].
pub(super) fn collect(now: Duration, costs: &Costs) -> BTreeMap<Who, Sums> {
    let [minute, hour] = costs.windows();
    let mut all = BTreeMap::<Who, Sums>::new();
    let seconds = hour.seconds(now);
    for counter in hour.habits().heaviest() {
        let key = &counter.key;
        let sums = all.entry(who(key)).or_default();
        sums.seconds = seconds;
        sums.is_built_in = is_built_in(&key.resource);
        sums.add(key, &counter.cost);
        if matches!(key.verb, "list" | "watch") {
            let sums =
                all.entry([key.user.clone(), key.agent.clone(), ALL_RESOURCES.into()]).or_default();
            sums.seconds = seconds;
            sums.all.add(&counter.cost);
        }
    }
    for counter in minute.habits().heaviest() {
        let Some(sums) = all.get_mut(&who(&counter.key)) else { continue };
        match counter.key.verb {
            "list" => sums.lists_of_minute += counter.cost.requests,
            "get" if counter.key.habit.is_repeated => sums.gets_of_minute += counter.cost.requests,
            _ => {}
        }
    }
    for ([user, agent, resource], sums) in &mut all {
        if &**resource == PODS {
            sums.addresses = costs.spread().addresses([user, agent]);
        }
        sums.warning = costs.warning(resource).map(Into::into);
    }
    all
}

/// Returns the part of a cost that so many of its requests have.
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

/// Stands for all resources of a client.
pub(super) const ALL_RESOURCES: &str = "(all)";
/// The resource that node agents read.
const PODS: &str = "pods";
