//! The rules: their measurements, and how much their findings matter.

use crate::cost::Cost;
use crate::costs::HabitKey;
use crate::doctor::rule::{Rule, Weight};
use crate::doctor::sums::Sums;
use crate::habit::{AskedForm, Start};

/// The size of a habit, divided by the bound of its rule; a sentence; and the costs of the requests
/// that have the habit.
pub(super) type Measured = (f64, String, Cost);

impl Rule {
    /// Returns what was seen of it. `None` if nothing was.
    pub(super) fn measure(self, sums: &Sums, agent: &str) -> Option<Measured> {
        match self {
            Self::PollList | Self::UnsetList | Self::UnpagedList | Self::RelistLoop => {
                self.measure_lists(sums)
            }
            Self::WatchChurn | Self::DeadWatch | Self::TwinWatches | Self::NodeAgent => {
                self.measure_watches(sums)
            }
            Self::NoGzip | Self::Json | Self::WholeObjects => self.measure_forms(sums, agent),
            Self::PollGet | Self::Retries | Self::Deprecated | Self::NoAgent => {
                self.measure_requests(sums, agent)
            }
        }
    }

    fn measure_lists(self, sums: &Sums) -> Option<Measured> {
        let every = |cost: &Cost| interval(sums.every(cost));
        match self {
            Self::PollList if !sums.has_watch() => {
                let lists = sums.lists_of(is_new);
                let text = format!("a list {}, and no watch", every(&lists));
                sums.still_lists(&lists).then(|| (lists.requests / LISTS_MIN, text, lists))
            }
            Self::UnsetList => {
                let lists = sums.lists_of(|key| key.habit.start == Start::Unset);
                let text = format!("a list without a resourceVersion {}", every(&lists));
                // Those that caches answer cost the API server nothing. After a 410, an informer
                // has to list.
                let counted = lists.forwarded - sums.watches.expired_watches;
                Some((counted / LISTS_MIN, text, lists))
            }
            Self::UnpagedList => {
                let lists = sums.lists_of(|key| key.habit.is_unpaged());
                let is_habit = lists.forwarded >= FEW;
                let often = if is_habit { mean(&lists) / UNPAGED_BYTES } else { 0.0 };
                let huge = lists.huge_lists / HUGE_LISTS_MIN;
                let text = if often >= huge {
                    format!("lists without a limit, of {} each", bytes(mean(&lists)))
                } else {
                    let count = lists.huge_lists.ceil();
                    format!("lists without a limit, of 5 MB or 5,000 objects: {count:.0}")
                };
                Some((often.max(huge), text, lists))
            }
            Self::RelistLoop if sums.has_watch() => Some(measure_relists(sums)),
            _ => None,
        }
    }

    fn measure_watches(self, sums: &Sums) -> Option<Measured> {
        let watches = sums.watches;
        match self {
            Self::WatchChurn if watches.requests >= LISTS_MIN => {
                let share = watches.short_watches / watches.requests;
                let (percent, starts) = (100.0 * share, interval(sums.seconds / watches.requests));
                let text = format!(
                    "{percent:.0} % of the watches end within a minute; one starts {starts}"
                );
                Some((share / SHORT_SHARE_MIN, text, watches))
            }
            Self::DeadWatch => {
                let lists = sums.lists_of(is_new);
                // A client that lists after each 410 does what it should.
                let dead = watches.expired_watches - lists.requests - sums.initial_watches.requests;
                let text = format!(
                    "{:.0} watches from a resourceVersion that is too old, and {:.0} lists",
                    watches.expired_watches, lists.requests
                );
                Some((dead / DEAD_WATCHES_MIN, text, watches))
            }
            Self::TwinWatches => {
                let text = format!(
                    "{:.0} watches began while the same process had two of the same open",
                    watches.twin_watches.ceil()
                );
                Some((watches.twin_watches / TWIN_WATCHES_MIN, text, watches))
            }
            Self::NodeAgent => {
                let addresses = sums.addresses;
                let text = format!(
                    "{addresses} addresses or more watch all pods, without the field spec.nodeName"
                );
                let mut cost = sums.lists_of(|_| true);
                cost.add(&watches);
                Some((addresses as f64 / NODES_MIN, text, cost))
            }
            _ => None,
        }
    }

    fn measure_forms(self, sums: &Sums, agent: &str) -> Option<Measured> {
        match self {
            Self::NoGzip => {
                let lists = sums.lists_of(|key| !key.habit.takes_gzip);
                let text = format!("lists of {} each, not compressed", bytes(mean(&lists)));
                (lists.requests >= FEW).then(|| (mean(&lists) / PLAIN_BYTES, text, lists))
            }
            Self::Json if is_go(agent) && sums.is_built_in => {
                let mut cost = sums.lists_of(|key| key.habit.form == AskedForm::Json);
                cost.add(&sums.json_watches);
                let text = format!("{} in JSON in the last hour", bytes(cost.bytes));
                Some((cost.bytes / JSON_BYTES, text, cost))
            }
            Self::WholeObjects => {
                let is_whole = |key: &HabitKey| {
                    use AskedForm::{Json, OnlyJson, Protobuf};
                    matches!(key.habit.form, Json | OnlyJson | Protobuf)
                };
                let lists = sums.lists_of(is_whole);
                if sums.asks_metadata {
                    let text = format!(
                        "lists of {} each, beside reads of the metadata alone",
                        bytes(mean(&lists))
                    );
                    return Some((mean(&lists) / WHOLE_LIST_BYTES, text, lists));
                }
                // The first lists of many informers are no habit.
                let has_watches = sums.has_watch();
                let lists =
                    sums.lists_of(|key| is_whole(key) && (key.habit.is_repeated || !has_watches));
                let text =
                    format!("{} of whole objects in lists in the last hour", bytes(lists.bytes));
                (lists.requests >= FEW).then(|| (lists.bytes / WHOLE_BYTES, text, lists))
            }
            _ => None,
        }
    }

    fn measure_requests(self, sums: &Sums, agent: &str) -> Option<Measured> {
        match self {
            Self::PollGet if !sums.has_watch() => {
                let gets = sums.gets;
                let every = interval(sums.every(&gets));
                let text =
                    format!("a GET of an object that it has just read {every}, and no watch");
                sums.still_gets().then(|| (gets.requests / POLLED_GETS_MIN, text, gets))
            }
            Self::Retries => {
                let count = sums.requests.early_retries;
                let text = format!(
                    "{count:.0} requests came before the Retry-After of a 429 or 503 was over"
                );
                Some((count / EARLY_RETRIES_MIN, text, sums.early))
            }
            Self::Deprecated if !is_controller_manager(agent) => {
                let count = sums.requests.deprecated;
                let warning = sums.warning.as_deref().unwrap_or("the API is deprecated");
                let text = format!("{count:.0} responses with the warning: {warning}");
                Some((count / FEW, text, sums.deprecated))
            }
            Self::NoAgent if !says_who(agent) => {
                let total = sums.requests;
                let named =
                    if agent.is_empty() { "no user agent" } else { "a library's user agent" };
                let every = interval(sums.every(&total));
                let text = format!("{named}, with a list or watch {every}");
                // The requests cost the same with a name.
                Some((total.requests / LISTS_MIN, text, Cost::default()))
            }
            _ => None,
        }
    }

    /// Returns how much it matters, with these costs.
    pub(super) fn weight(self, upstream_cores: f64, bytes_per_second: f64) -> Weight {
        match self {
            Self::WholeObjects | Self::NoAgent => Weight::Info,
            _ if upstream_cores >= CRITICAL_CORES => Weight::Critical,
            Self::Json => Weight::Info,
            Self::NoGzip if bytes_per_second < WARNING_BYTES => Weight::Info,
            Self::PollList | Self::UnsetList | Self::UnpagedList
                if upstream_cores < WARNING_CORES && bytes_per_second < WARNING_BYTES =>
            {
                Weight::Info
            }
            _ => Weight::Warning,
        }
    }
}

/// Measures informers that list again and again: over one connection, or one after another over new
/// ones, as when their program crashes.
fn measure_relists(sums: &Sums) -> Measured {
    let again = sums.lists_of(|key| is_new(key) && key.habit.is_repeated);
    let begun = sums.lists_of(|key| is_new(key) && !key.habit.is_repeated);
    let again_size = again.requests / RELISTS_MIN;
    // A roll-out begins many informers within a few parts of the hour. And where programs run on,
    // their watches begin again and again without a list.
    let parts = f64::from(sums.parts_with_begins()) / CRASH_PARTS_MIN;
    let watches = sums.watches.requests / begun.requests.max(1e-9);
    let is_paired = (CRASH_WATCHES_MAX / watches.max(1e-9)).min(CRASH_WATCHES_MAX * watches);
    let crash_size = parts.min(is_paired);
    if crash_size > again_size {
        let every = interval(sums.every(&begun));
        let text = format!(
            "a new list and a new watch {every} over new connections: the program may crash, or is a job that runs often"
        );
        (crash_size, text, begun)
    } else {
        let every = interval(sums.every(&again));
        let text = format!("a new list {every} on the same connection, beside watches");
        (again_size, text, again)
    }
}

/// Whether a list is no further page of another one.
fn is_new(key: &HabitKey) -> bool {
    key.habit.is_new_list()
}

fn mean(cost: &Cost) -> f64 {
    cost.bytes / cost.requests.max(1e-9)
}

/// Its controllers write deprecated APIs, such as Endpoints, for those who still read them.
fn is_controller_manager(agent: &str) -> bool {
    agent.starts_with("kube-controller-manager/")
}

/// Whether the agent is that of client-go, or of Go's own client.
fn is_go(agent: &str) -> bool {
    agent.contains(" kubernetes/") || agent.starts_with("Go-http-client")
}

/// Whether the agent names the program, and not only its library.
pub fn says_who(agent: &str) -> bool {
    !agent.is_empty() && !LIBRARY_AGENTS.iter().any(|library| agent.starts_with(library))
}

fn interval(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 1.5 => format!("{:.1} times a second", 1.0 / seconds.max(1e-9)),
        seconds if seconds < 120.0 => format!("every {seconds:.0} s"),
        seconds => format!("every {:.0} min", seconds / 60.0),
    }
}

fn bytes(bytes: f64) -> String {
    match bytes {
        bytes if bytes < 1e6 => format!("{:.0} KB", bytes / 1e3),
        bytes if bytes < 1e9 => format!("{:.1} MB", bytes / 1e6),
        bytes => format!("{:.1} GB", bytes / 1e9),
    }
}

/// The user agents of libraries whose program has set none.
const LIBRARY_AGENTS: [&str; 12] = [
    "OpenAPI-Generator/",
    "Swagger-Codegen/",
    "Go-http-client/",
    "python-requests/",
    "Python-urllib/",
    "Python/",
    "okhttp/",
    "Kubernetes Java Client/",
    "node-fetch",
    "axios/",
    "fabric8-kubernetes-client/",
    // kubebuilder's scaffold.
    "manager/v0.0.0",
];

/// Lists, or watches, in about an hour that are a habit.
const LISTS_MIN: f64 = 10.0;
/// An informer that works lists once.
const RELISTS_MIN: f64 = 5.0;
/// Parts of five minutes of an hour in which an informer began. Kubernetes starts a container that
/// crashes again each five minutes.
const CRASH_PARTS_MIN: f64 = 6.0;
/// Watches for each list of a program that crashes, or lists for each watch.
const CRASH_WATCHES_MAX: f64 = 2.0;
/// Fewer say nothing about a habit.
const FEW: f64 = 3.0;
const SHORT_SHARE_MIN: f64 = 0.5;
/// Some hundred pods.
const UNPAGED_BYTES: f64 = 1e6;
/// A single such list, which counts for a quarter of an hour.
const HUGE_LISTS_MIN: f64 = 0.8;
/// The API server compresses from here on.
const PLAIN_BYTES: f64 = 131_072.0;
/// Less JSON in an hour is not worth a change.
const JSON_BYTES: f64 = 10e6;
/// GETs of an object that the same connection has read within the last seconds: some minutes of a
/// loop.
const POLLED_GETS_MIN: f64 = 100.0;
/// Watches that end with 410 and are not followed by a list.
const DEAD_WATCHES_MIN: f64 = 5.0;
/// One, counted until it is an hour old.
const TWIN_WATCHES_MIN: f64 = 0.8;
/// Replicas of one program are fewer.
const NODES_MIN: f64 = 10.0;
const EARLY_RETRIES_MIN: f64 = 10.0;
/// The objects of one kind in lists in an hour.
const WHOLE_BYTES: f64 = 20e6;
/// A list of whole objects beside lists of metadata.
const WHOLE_LIST_BYTES: f64 = 1e6;
const WARNING_CORES: f64 = 0.005;
const CRITICAL_CORES: f64 = 0.5;
const WARNING_BYTES: f64 = 1e6;
