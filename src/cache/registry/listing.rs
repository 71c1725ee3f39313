//! The list of all caches for operators.

use std::time::SystemTime;

use crate::api::resource_version::ResourceVersion;
use crate::cache::cached_resource::CachedResource;
pub use crate::cache::cached_resource::status::LastFailure;
use crate::cache::key::CacheKey;
use crate::cache::metrics::CacheFigures;
use crate::cache::registry::inner::Inner;
pub use crate::cache::verification::findings::{CacheDifference, CheckReport};

/// A running cache. Its first fields are the labels of its metrics.
#[derive(Clone, Debug)]
pub struct CacheDescription {
    /// The API group; empty for the core group.
    pub group: Box<str>,
    /// The version in the group.
    pub version: Box<str>,
    /// The name of the resource, in plural.
    pub resource: Box<str>,
    /// The namespace; empty for a cache of the whole cluster.
    pub namespace: Box<str>,
    /// The form of its objects: `json` or `protobuf`.
    pub representation: &'static str,
    /// The state of its reflector, one of [`STATES`](crate::cache::metrics::STATES), or `starting`.
    pub state: &'static str,
    /// The time since which the reflector is in this state.
    pub since: SystemTime,
    /// The last failure of the reflector.
    pub failure: Option<LastFailure>,
    /// Whether the configuration keeps it running without users.
    pub is_warm: bool,
    /// The results of the comparisons with the upstream.
    pub checks: CheckReport,
    /// Whether it answers nothing, because an earlier cache of its key was proved wrong and it is
    /// not checked yet.
    pub is_quarantined: bool,
    /// Whether it exceeds a byte budget, so that its requests are forwarded.
    pub is_over_budget: bool,
    /// Its figures.
    pub figures: CacheFigures,
}

/// The caches that answer nothing, whether they run or not, by resource and namespace.
#[derive(Clone, Debug, Default)]
pub struct Suspended {
    /// Those that etcd proved wrong.
    pub quarantined: Vec<(Box<str>, Box<str>)>,
    /// Those that exceed a byte budget.
    pub over_budget: Vec<(Box<str>, Box<str>)>,
}

impl Suspended {
    pub(super) fn new(inner: &Inner) -> Self {
        let names = |keys: Vec<CacheKey>| {
            let name = |key: CacheKey| (Box::from(&*key.gvr.resource), key.namespace().into());
            let mut names: Vec<_> = keys.into_iter().map(name).collect();
            names.sort_unstable();
            names.dedup();
            names
        };
        Self {
            quarantined: names(inner.quarantines.keys()),
            over_budget: names(inner.over_budget.keys()),
        }
    }
}

/// A running cache in all detail.
#[derive(Clone, Debug)]
pub struct CacheDetail {
    /// Its entry in the list of caches.
    pub description: CacheDescription,
    /// Its state; `None` before the first list.
    pub contents: Option<CacheContents>,
    /// The last states of its reflector, with the times when they were entered; the present one is
    /// last.
    pub transitions: Vec<(&'static str, SystemTime)>,
}

/// The content of a cache.
#[derive(Clone, Copy, Debug)]
pub struct CacheContents {
    /// The resourceVersion up to which it is complete.
    pub resource_version: ResourceVersion,
    /// The number of its objects.
    pub objects: usize,
    /// The bytes of objects and history.
    pub bytes: usize,
    /// The oldest resourceVersion from which a watch may start.
    pub history_from: ResourceVersion,
    /// The oldest resourceVersion at which an exact list is possible.
    pub exact_from: ResourceVersion,
    /// The events of the history.
    pub history_events: usize,
    /// The bytes of the history.
    pub history_bytes: usize,
    /// The most events that the history has at present.
    pub history_events_max: usize,
}

pub(super) fn detail(cached: &CachedResource, inner: &Inner) -> CacheDetail {
    let contents = cached.watch_cache.state().map(|state| CacheContents {
        resource_version: state.resource_version(),
        objects: state.len(),
        bytes: state.weight(),
        history_from: state.history().oldest(),
        exact_from: state.history().exact_from(),
        history_events: state.history().len(),
        history_bytes: state.history().weight(),
        history_events_max: state.history().window(),
    });
    let description = describe(cached, inner);
    CacheDetail { description, contents, transitions: cached.status.transitions() }
}

/// Returns the descriptions of caches, in the order of their names.
pub(super) fn describe_all(inner: &Inner) -> Vec<CacheDescription> {
    let caches = inner.caches.to_vec();
    let mut caches: Vec<_> = caches.iter().map(|cached| describe(cached, inner)).collect();
    let key = |cache: &CacheDescription| {
        let CacheDescription { resource, group, version, namespace, representation, .. } =
            cache.clone();
        (resource, group, version, namespace, representation)
    };
    caches.sort_by_cached_key(key);
    caches
}

fn describe(cached: &CachedResource, inner: &Inner) -> CacheDescription {
    let key = &cached.key;
    let (state, since) = cached.status.state();
    CacheDescription {
        group: (*key.gvr.group).into(),
        version: (*key.gvr.version).into(),
        resource: (*key.gvr.resource).into(),
        namespace: key.namespace().into(),
        representation: key.representation.as_str(),
        state,
        since,
        failure: cached.status.failure(),
        is_warm: cached.is_warm(),
        checks: cached.findings.report(),
        is_quarantined: inner.quarantines.is_closed(key),
        is_over_budget: inner.over_budget.contains(key),
        figures: cached.series.figures(),
    }
}
