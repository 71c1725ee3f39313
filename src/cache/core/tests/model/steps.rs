//! Random steps of a history, and the filters of the model.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use crate::cache::core::tests::{Delivery, Pod, by_app, in_namespace, on_node};
use crate::cache::core::visible::VisibleObjects;
use crate::cache::core::watcher::WatchFilter;

const NAMESPACES: [&str; 4] = ["ns1", "ns1-a", "ns10", "a"];
const NAMES: [&str; 3] = ["a", "b", "b-c"];

/// A change without a resourceVersion. The number is added to the last resourceVersion; with zero
/// the change is not newer.
#[derive(Clone, Debug)]
pub(super) enum PodChange {
    Upsert(Pod, u64),
    Delete(Pod, u64),
    Progress(u64),
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    Apply(Vec<PodChange>),
    /// Replaces the state with a list that lacks some pods and has some new ones.
    Replace(Vec<Pod>, u64),
    /// Relists with some pods lost and some new. Each number is added to the previous
    /// resourceVersion: one for each new pod, and one for the list.
    Relist(Vec<(Pod, u64)>, u64),
    Invalidate,
    /// Advances the clock by seconds.
    AdvanceClock(u64),
    Watch(ModelFilter, Start),
    /// Lets a watcher (by number, modulo their count) read one batch of at most this many bytes, or
    /// everything.
    Read(usize, Option<usize>),
    Drop(usize),
}

/// A start relative to the current resourceVersion.
#[derive(Clone, Copy, Debug)]
pub(super) enum Start {
    Initial,
    Now,
    After(i64),
}

/// A filter that the model can evaluate.
#[derive(Clone, Debug, Default)]
pub(super) struct ModelFilter {
    pub(super) namespace: Option<&'static str>,
    pub(super) name: Option<&'static str>,
    pub(super) node: Option<&'static str>,
    pub(super) app: Option<&'static str>,
    /// The namespaces that the user may see.
    pub(super) visible: Option<Vec<&'static str>>,
}

impl ModelFilter {
    pub(super) fn matches(&self, pod: &Pod) -> bool {
        self.namespace.is_none_or(|namespace| namespace == pod.namespace)
            && self.name.is_none_or(|name| name == pod.name)
            && self.node.is_none_or(|node| node == pod.node)
            && self.app.is_none_or(|app| app == pod.app)
            && self.is_visible(pod)
    }

    fn is_visible(&self, pod: &Pod) -> bool {
        self.visible.as_ref().is_none_or(|visible| visible.contains(&&*pod.namespace))
    }

    pub(super) fn filter(&self) -> WatchFilter {
        let mut filter = self.namespace.map(in_namespace).unwrap_or_default();
        filter.name = self.name.map(Into::into);
        if let Some(app) = self.app {
            filter.labels = by_app(app).labels;
        }
        if let Some(node) = self.node {
            filter.fields = on_node(node).fields;
        }
        let in_namespaces =
            |visible: &Vec<_>| VisibleObjects::in_namespaces(visible.iter().copied());
        filter.visible = self.visible.as_ref().map(in_namespaces).map(Arc::new);
        filter
    }
}

/// Which watchers an event is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Audience {
    All,
    Leaving,
    Remaining,
}

/// A change of one pod.
#[derive(Clone, Debug)]
pub(super) struct LogEvent {
    pub(super) resource_version: u64,
    /// The resourceVersion of a client that has received the event.
    pub(super) resume_version: u64,
    pub(super) audience: Audience,
    pub(super) old: Option<Pod>,
    pub(super) new: Option<Pod>,
    /// The pod in the DELETED event.
    pub(super) last: Option<Pod>,
}

impl LogEvent {
    pub(super) fn delivery(&self, filter: &ModelFilter) -> Option<Delivery> {
        let old = self.old.as_ref().filter(|pod| filter.matches(pod));
        let new = self.new.as_ref().filter(|pod| filter.matches(pod));
        let (event, pod) = match (old, new) {
            (None, None) => return None,
            (_, Some(_)) if self.audience == Audience::Leaving => return None,
            (_, None) if self.audience == Audience::Remaining => return None,
            (None, Some(new)) => ("ADDED", new.clone()),
            (Some(_), Some(new)) => ("MODIFIED", new.clone()),
            (Some(old), None) => {
                ("DELETED", self.last.clone().unwrap_or_else(|| old.at(self.resource_version)))
            }
        };
        Some(Delivery::Event(event.to_owned(), pod))
    }
}

pub(super) fn any_pod() -> impl Strategy<Value = Pod> {
    (
        select(&NAMESPACES[..]),
        select(&NAMES[..]),
        select(&["n1", "n2", ""][..]),
        select(&["a", "b"][..]),
        prop_oneof![4 => Just("u"), 1 => Just("v")],
    )
        .prop_map(|(namespace, name, node, app, uid)| {
            Pod::new(namespace, name, 0).node(node).app(app).uid(uid)
        })
}

fn any_change() -> impl Strategy<Value = PodChange> {
    prop_oneof![
        6 => (any_pod(), 0..3_u64).prop_map(|(pod, increase)| PodChange::Upsert(pod, increase)),
        3 => (any_pod(), 0..3_u64).prop_map(|(pod, increase)| PodChange::Delete(pod, increase)),
        1 => (0..3_u64).prop_map(PodChange::Progress),
    ]
}

fn any_filter() -> impl Strategy<Value = ModelFilter> {
    let namespace = proptest::option::of(select(&NAMESPACES[..]));
    let name = proptest::option::weighted(0.3, select(&NAMES[..]));
    let node = proptest::option::weighted(0.3, select(&["n1", "n2", ""][..]));
    let app = proptest::option::weighted(0.3, select(&["a", "b"][..]));
    let visible = proptest::option::weighted(0.3, subsequence(&NAMESPACES[..], 0..=4));
    let filter = (namespace, name, node, app, visible);
    filter.prop_map(|(namespace, name, node, app, visible)| ModelFilter {
        namespace,
        name,
        node,
        app,
        visible,
    })
}

fn any_start() -> impl Strategy<Value = Start> {
    prop_oneof![Just(Start::Initial), Just(Start::Now), (-8..4_i64).prop_map(Start::After)]
}

pub(super) fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => vec(any_change(), 1..5).prop_map(Step::Apply),
        8 => (any::<usize>(), proptest::option::of(1..600_usize))
            .prop_map(|(which, max_bytes)| Step::Read(which, max_bytes)),
        4 => (any_filter(), any_start()).prop_map(|(filter, start)| Step::Watch(filter, start)),
        1 => (vec(any_pod(), 0..6), 0..4_u64)
            .prop_map(|(pods, increase)| Step::Replace(pods, increase)),
        2 => (vec((any_pod(), 1..3_u64), 0..6), 0..4_u64)
            .prop_map(|(pods, increase)| Step::Relist(pods, increase)),
        1 => (0..100_u64).prop_map(Step::AdvanceClock),
        1 => any::<usize>().prop_map(Step::Drop),
        1 => Just(Step::Invalidate),
    ]
}
