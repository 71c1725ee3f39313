//! `cache`: which resources are cached, and limits of memory.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::api::resource::GroupVersionResource;
use crate::config::kinds::{Derived, List};
use crate::config::reader::Reader;
use crate::config::scalars::{COUNT, Parsed, Size, Text, TimeOrNever, WEEK, Word, words};
use crate::config::section::section;
use crate::flow::rules::{AgentPattern, product};

section! {
    /// Which resources are cached, and limits of memory.
    pub struct CacheConfig {
        /// RESOURCE (of the core group), GROUP/RESOURCE, and * for any of either: pods,
        /// apps/deployments, apps/*, */leases. If include is not empty, only those are cached;
        /// exclude overrides include. Requests for other resources are forwarded.
        live include: Vec<ResourcePattern> = Vec::new(), List(Text);

        /// Resources that are not cached; it overrides cache.include.
        // As in kube-apiserver: events change all the time, and clients rarely read them twice.
        live exclude: Vec<ResourcePattern> = events(), List(Text);

        /// VERSION/RESOURCE or GROUP/VERSION/RESOURCE, such as v1/pods. These caches are filled at
        /// start and never stopped for being idle; /readyz waits for them.
        live warm: Vec<GroupVersionResource> = Vec::new(), List(Parsed(warm_resource));

        /// Limit of one cache, in bytes (Ki, Mi, Gi). Reads of a resource that does not fit are
        /// forwarded. Where the memory of the process has a limit, the default is 3/16 of it, if
        /// that is less.
        // Half of the total, so that one resource cannot displace all others.
        live resource_bytes_max: usize = 1 << 30, Size;

        /// Limit of all caches, in bytes. A sixteenth of it is the limit of one cache's history.
        /// What comes on top: docs/how-to/capacity.md. Where the memory of the process has a limit,
        /// the default is 6/16 of it, if that is less.
        // About 200,000 pods of 10 KiB in JSON; fits on a small machine.
        live total_bytes_max: usize = 2 << 30, Size;

        /// When the API server no longer has the events after a cache's resourceVersion, the cache
        /// lists again. keepStreams: open watches continue and get the differences as events.
        /// endStreams: watches end, as the API server's own would, and their clients list again,
        /// from the cache. Set this where another Weir reads from this one.
        // A cache has to prevent that a thousand informers list at once.
        live on_relist: OnRelist = OnRelist::KeepStreams, Word;

        /// Lists and watches of one resource that may be forwarded at once because its cache cannot
        /// answer.
        // Enough for the controllers of one cluster, too few for a herd.
        restart forward_budget: usize = 64, COUNT;

        /// While no API server is usable, caches go on answering what they may (docs/operating.md).
        /// Beyond this age (1s or more) the answer is 503 with Retry-After; never for no limit.
        /// Open watches stay open.
        // The upstream counts as away only after a second.
        live max_staleness: Option<Duration> = None, TimeOrNever(Duration::from_secs(1), WEEK);

        /// Lists without a resourceVersion, which must show every earlier write. forward: the API
        /// server answers. auto: the cache answers where a proof that it is fresh costs the API
        /// server less (docs/how-to/consistent-lists.md).
        // A proof of freshness saves the API server's load, not the client's time.
        live consistent_lists: ConsistentLists = ConsistentLists::Forward, Word;

        /// Compares caches with the API server, page by page, at one resourceVersion, each object
        /// once in ten minutes (docs/decisions/verified-caches.md). observe: a difference is
        /// reported. enforce: a cache that etcd proves wrong is replaced as well, and its resource
        /// is forwarded until the new one is checked. off: nothing is compared.
        // An operator who trusts the reports lets Weir act on them.
        live verify: VerifyMode = VerifyMode::Observe, Word;

        /// User agents, such as kubectl/v1.36.0 or kubectl/*, whose lists and watches come without
        /// metadata.managedFields from a cache, although they do not ask for that
        /// (docs/how-to/smaller-objects.md). Name only clients that never change an object.
        live drop_managed_fields: Vec<AgentPattern> = Vec::new(), List(Parsed(reading_agent));

        /// Limit of the history of one cache: the upstream keeps at least 75 s of events
        /// (docs/semantics.md §5.9), which fit 128 MiB at 150 events of 10 KiB a second.
        live history_bytes_max: usize = (2 << 30) / HISTORY_PARTS, Derived;

        /// Limit of the compressed list segments that are kept, in addition to the other limits: 64
        /// MiB are enough for lists of about 600 MB. A segment that does not fit is compressed
        /// again for each list.
        restart gzip_bytes_max: usize = (2 << 30) / GZIP_PARTS, Derived;
    }
}

impl CacheConfig {
    /// Whether a resource may have a cache.
    pub fn admits(&self, gvr: &GroupVersionResource) -> bool {
        let matches = |pattern: &ResourcePattern| pattern.matches(gvr);
        let is_included = self.include.is_empty() || self.include.iter().any(matches);
        is_included && !self.exclude.iter().any(matches)
    }

    /// Whether a client with this User-Agent gets lists and watches without managed fields.
    pub fn drops_managed_fields(&self, agent: &str) -> bool {
        let product = product(agent);
        self.drop_managed_fields.iter().any(|pattern| pattern.matches(product))
    }

    /// Fits one limit of bytes to the other, if only one is set, and those that follow from both.
    pub(super) fn fit_budgets(&mut self, reader: &mut Reader<'_>) {
        match ["cache.totalBytesMax", "cache.resourceBytesMax"].map(|path| reader.has(path)) {
            [true, true] if self.resource_bytes_max > self.total_bytes_max => {
                let message = "must not be more than cache.totalBytesMax";
                reader.refuse("cache.resourceBytesMax", message);
            }
            [false, true] => {
                self.total_bytes_max = self.total_bytes_max.max(self.resource_bytes_max)
            }
            _ => self.resource_bytes_max = self.resource_bytes_max.min(self.total_bytes_max),
        }
        self.history_bytes_max = self.total_bytes_max / HISTORY_PARTS;
        self.history_bytes_max = self.history_bytes_max.clamp(1, self.resource_bytes_max.max(1));
        self.gzip_bytes_max = (self.total_bytes_max / GZIP_PARTS).max(1);
    }

    /// Refuses resources to fill at start that have no cache.
    pub(super) fn check_warm(&self, reader: &mut Reader<'_>) {
        for (index, gvr) in self.warm.iter().enumerate().filter(|(_, gvr)| !self.admits(gvr)) {
            let message = if self.exclude.iter().any(|pattern| pattern.matches(gvr)) {
                format!("{gvr} is excluded by cache.exclude")
            } else {
                format!("{gvr} is not among cache.include")
            };
            reader.refuse(format!("cache.warm[{index}]"), message);
        }
    }
}

/// The mode of the comparison of caches with the upstream (`docs/decisions/verified-caches.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerifyMode {
    /// Nothing is compared.
    Off,
    /// Differences are reported.
    Observe,
    /// A cache that is proved wrong is replaced as well.
    Enforce,
}

words!(VerifyMode { Off: "off", Observe: "observe", Enforce: "enforce" });

/// The answering server of consistent lists, whose resourceVersion is unset
/// (`docs/decisions/proofs-of-freshness.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsistentLists {
    /// The API server.
    Forward,
    /// The cache, if a proof of freshness costs less than the list and arrives soon.
    Auto,
    /// The cache, if a proof of freshness arrives within `freshness_timeout`. For tests: a single
    /// list waits longer than it would if it were forwarded.
    Always,
}

words!(ConsistentLists { Forward: "forward", Auto: "auto"; hidden Always: "always" });

/// The behaviour of a cache's watches when the upstream no longer has the events after the
/// cache's resourceVersion, so that the cache lists again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnRelist {
    /// They continue, and get the differences between both states as events.
    KeepStreams,
    /// They end, as the upstream's own watches would; their clients list again.
    EndStreams,
}

words!(OnRelist { KeepStreams: "keepStreams", EndStreams: "endStreams" });

/// Names resources in the configuration: `group/resource`, `resource` for the core group, `*` for
/// any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourcePattern {
    /// The group; `None` for any.
    pub group: Option<String>,
    /// The plural name; `None` for any.
    pub resource: Option<String>,
}

impl ResourcePattern {
    /// Whether the pattern matches this resource, in any version.
    pub fn matches(&self, gvr: &GroupVersionResource) -> bool {
        self.group.as_deref().is_none_or(|group| group == &*gvr.group)
            && self.resource.as_deref().is_none_or(|resource| resource == &*gvr.resource)
    }
}

/// `pods`, `*` for all, `apps/deployments`, `apps/*`, `*/leases`; `/*` is every resource of the
/// core group.
impl FromStr for ResourcePattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || {
            format!(
                "expected RESOURCE, GROUP/RESOURCE or * (such as pods or apps/deployments), not {text:?}"
            )
        };
        let part = |word: &str| match word {
            "*" => Some(None),
            word if is_name(word) => Some(Some(word.to_owned())),
            _ => None,
        };
        let (group, resource) = match text.split_once('/') {
            None if text == "*" => (None, "*"),
            None => (Some(String::new()), text),
            Some(("", resource)) => (Some(String::new()), resource),
            Some((group, resource)) => (part(group).ok_or_else(expected)?, resource),
        };
        Ok(Self { group, resource: part(resource).ok_or_else(expected)? })
    }
}

/// The value in the configuration file.
impl fmt::Display for ResourcePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.group.as_deref(), self.resource.as_deref()) {
            (None, None) => f.write_str("*"),
            (None, Some(resource)) => write!(f, "*/{resource}"),
            (Some(""), Some(resource)) => f.write_str(resource),
            (Some(group), resource) => write!(f, "{group}/{}", resource.unwrap_or("*")),
        }
    }
}

/// Parses `v1/pods` or `apps/v1/deployments`.
fn warm_resource(text: &str) -> Result<GroupVersionResource, String> {
    let words: Vec<&str> = text.split('/').collect();
    match *words.as_slice() {
        [version, resource] if is_name(version) && is_name(resource) => {
            Ok(GroupVersionResource::new("", version, resource))
        }
        [group, version, resource] if is_name(group) && is_name(version) && is_name(resource) => {
            Ok(GroupVersionResource::new(group, version, resource))
        }
        _ => Err(format!(
            "expected VERSION/RESOURCE or GROUP/VERSION/RESOURCE (such as v1/pods or apps/v1/deployments), not {text:?}"
        )),
    }
}

/// Parses a user agent. It names some clients: the operator knows what they do with objects.
fn reading_agent(text: &str) -> Result<AgentPattern, String> {
    match AgentPattern::parse(text) {
        Ok(pattern) if pattern.matches_any() => Err("may not name all clients".to_owned()),
        parsed => parsed.map_err(|message| format!("{text:?} {message}")),
    }
}

/// Whether a word has only the characters of groups, versions and resources: RFC 1123, lower-case.
fn is_name(word: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.';
    !word.is_empty() && word.bytes().all(allowed)
}

fn events() -> Vec<ResourcePattern> {
    let events = |group: &str| ResourcePattern {
        group: Some(group.to_owned()),
        resource: Some("events".to_owned()),
    };
    ["", "events.k8s.io"].map(events).into()
}

/// The parts of all caches' bytes of which one is for each history, and for compressed segments.
const HISTORY_PARTS: usize = 16;
const GZIP_PARTS: usize = 16;
