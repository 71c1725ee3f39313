//! The random steps of a history, and the filters that the model can read.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::cache::core::tests::{Pod, Seen, by_app, in_namespace, on_node};
use crate::cache::core::watcher::WatchFilter;

const NAMESPACES: [&str; 4] = ["ns1", "ns1-a", "ns10", "a"];
const NAMES: [&str; 3] = ["a", "b", "b-c"];

/// A change before it has a resourceVersion: `step` above the last one, not newer if zero.
#[derive(Clone, Debug)]
pub(super) enum Draft {
    Upsert(Pod, u64),
    Delete(Pod, u64),
    Progress(u64),
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    Apply(Vec<Draft>),
    /// A new list, with some pods lost and some new.
    Replace(Vec<Pod>, u64),
    /// The same, but watches live on; each new pod is so much newer than the one before, and so is the list.
    Relist(Vec<(Pod, u64)>, u64),
    Invalidate,
    /// Time passes, in seconds.
    Pass(u64),
    Watch(Simple, Start),
    /// The watcher (modulo their number) takes once, up to so many bytes, or everything.
    Take(usize, Option<usize>),
    Drop(usize),
}

/// A start relative to the present resourceVersion.
#[derive(Clone, Copy, Debug)]
pub(super) enum Start {
    Initial,
    Now,
    After(i64),
}

/// A filter that the model can read.
#[derive(Clone, Debug, Default)]
pub(super) struct Simple {
    pub(super) namespace: Option<&'static str>,
    pub(super) name: Option<&'static str>,
    pub(super) node: Option<&'static str>,
    pub(super) app: Option<&'static str>,
}

impl Simple {
    pub(super) fn matches(&self, pod: &Pod) -> bool {
        self.namespace.is_none_or(|namespace| namespace == pod.namespace)
            && self.name.is_none_or(|name| name == pod.name)
            && self.node.is_none_or(|node| node == pod.node)
            && self.app.is_none_or(|app| app == pod.app)
    }

    /// Whether an event may wake its watcher: by the narrowest thing that it demands.
    pub(super) fn may_concern(&self, event: &LogEvent) -> bool {
        let name = |pod: &Pod| self.name.is_none_or(|name| name == pod.name);
        let namespace =
            |pod: &Pod| self.namespace.is_none_or(|namespace| namespace == pod.namespace);
        event.old.iter().chain(&event.new).any(|pod| match (self.name, self.namespace, self.node) {
            (Some(_), Some(_), _) => name(pod) && namespace(pod),
            (_, _, Some(node)) => node == pod.node,
            _ => name(pod) && namespace(pod),
        })
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
        filter
    }
}

/// Which watchers an event is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Whole,
    Leaving,
    Staying,
}

/// What happened to one pod.
#[derive(Clone, Debug)]
pub(super) struct LogEvent {
    pub(super) resource_version: u64,
    /// The resourceVersion after which a client is beyond it.
    pub(super) place: u64,
    pub(super) part: Part,
    pub(super) old: Option<Pod>,
    pub(super) new: Option<Pod>,
    /// The pod of a DELETED event.
    pub(super) last: Option<Pod>,
}

impl LogEvent {
    pub(super) fn seen(&self, filter: &Simple) -> Option<Seen> {
        let old = self.old.as_ref().filter(|pod| filter.matches(pod));
        let new = self.new.as_ref().filter(|pod| filter.matches(pod));
        let (event, pod) = match (old, new) {
            (None, None) => return None,
            (_, Some(_)) if self.part == Part::Leaving => return None,
            (_, None) if self.part == Part::Staying => return None,
            (None, Some(new)) => ("ADDED", new.clone()),
            (Some(_), Some(new)) => ("MODIFIED", new.clone()),
            (Some(old), None) => {
                ("DELETED", self.last.clone().unwrap_or_else(|| old.at(self.resource_version)))
            }
        };
        Some(Seen::Event(event.to_owned(), pod))
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

fn any_draft() -> impl Strategy<Value = Draft> {
    prop_oneof![
        6 => (any_pod(), 0..3_u64).prop_map(|(pod, up)| Draft::Upsert(pod, up)),
        3 => (any_pod(), 0..3_u64).prop_map(|(pod, up)| Draft::Delete(pod, up)),
        1 => (0..3_u64).prop_map(Draft::Progress),
    ]
}

fn any_filter() -> impl Strategy<Value = Simple> {
    let namespace = proptest::option::of(select(&NAMESPACES[..]));
    let name = proptest::option::weighted(0.3, select(&NAMES[..]));
    let node = proptest::option::weighted(0.3, select(&["n1", "n2", ""][..]));
    let app = proptest::option::weighted(0.3, select(&["a", "b"][..]));
    (namespace, name, node, app).prop_map(|(namespace, name, node, app)| Simple {
        namespace,
        name,
        node,
        app,
    })
}

fn any_start() -> impl Strategy<Value = Start> {
    prop_oneof![Just(Start::Initial), Just(Start::Now), (-8..4_i64).prop_map(Start::After)]
}

pub(super) fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => vec(any_draft(), 1..5).prop_map(Step::Apply),
        8 => (any::<usize>(), proptest::option::of(1..600_usize))
            .prop_map(|(which, max_bytes)| Step::Take(which, max_bytes)),
        4 => (any_filter(), any_start()).prop_map(|(filter, start)| Step::Watch(filter, start)),
        1 => (vec(any_pod(), 0..6), 0..4_u64).prop_map(|(pods, up)| Step::Replace(pods, up)),
        2 => (vec((any_pod(), 1..3_u64), 0..6), 0..4_u64)
            .prop_map(|(pods, up)| Step::Relist(pods, up)),
        1 => (0..100_u64).prop_map(Step::Pass),
        1 => any::<usize>().prop_map(Step::Drop),
        1 => Just(Step::Invalidate),
    ]
}
