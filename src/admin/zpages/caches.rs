//! One cache: what `/api/caches` leaves out, and a new list of it on demand.

use http::Uri;
use serde_json::Value;

use crate::admin::api::caches::{describe_failure, difference};
use crate::admin::api::json::{object, time};
use crate::api::query::Query;
use crate::api::resource::GroupVersionResource;
use crate::cache::registry::{CacheContents, CacheDetail, Registry};
use crate::telemetry::events::{EventKind, Events};

/// The caches of a resource in one scope.
pub(super) struct CacheNames {
    gvr: GroupVersionResource,
    /// Empty for the cache of the whole cluster.
    namespace: String,
}

impl CacheNames {
    /// Parses `/debug/caches/v1/pods?namespace=a`, or the same below another path.
    pub(super) fn parse(uri: &Uri, below: &str) -> Option<Self> {
        let names: Vec<_> = uri.path().strip_prefix(below)?.split('/').collect();
        let (group, version, resource) = match *names.as_slice() {
            [version, resource] => ("", version, resource),
            [group, version, resource] => (group, version, resource),
            _ => return None,
        };
        let gvr = GroupVersionResource::new(group, version, resource);
        let query = Query::parse(uri.query().unwrap_or_default());
        let namespace = query.first("namespace").unwrap_or_default().to_owned();
        Some(Self { gvr, namespace })
    }

    /// Returns the running caches in all detail; `None` if there is none.
    pub(super) fn show(&self, caches: &Registry) -> Option<Value> {
        let caches = caches.details(&self.gvr, &self.namespace);
        if caches.is_empty() {
            return None;
        }
        Some(object([
            ("resource", self.gvr.to_string().into()),
            ("namespace", self.namespace.as_str().into()),
            ("caches", caches.iter().map(describe).collect()),
        ]))
    }

    /// Requests a new list of the running caches, unless one was requested within ten seconds;
    /// `None` if there is none.
    pub(super) fn relist(&self, caches: &Registry, events: &Events) -> Option<Value> {
        let (count, requested) = caches.relist(&self.gvr, &self.namespace)?;
        let answer = object([("requested", requested.into()), ("caches", count.into())]);
        if requested == 0 {
            return Some(answer);
        }
        let Self { gvr, namespace } = self;
        let subject = match namespace.as_str() {
            "" => gvr.to_string(),
            namespace => format!("{gvr}, namespace {namespace}"),
        };
        let text = "An operator asked for a new list.";
        events.notable(EventKind::Operator, subject, text, |left_out| {
            tracing::warn!(resource = %gvr, namespace, left_out, "an operator asked for a new list");
        });
        Some(answer)
    }
}

fn describe(cache: &CacheDetail) -> Value {
    let CacheDetail { description, contents, transitions } = cache;
    let transition =
        |(name, at): &(&str, _)| object([("state", (*name).into()), ("time", time(*at))]);
    object([
        ("representation", description.representation.into()),
        ("state", description.state.into()),
        ("stateSince", time(description.since)),
        ("warm", description.is_warm.into()),
        ("quarantined", description.is_quarantined.into()),
        ("contents", contents.as_ref().map_or(Value::Null, describe_contents)),
        ("transitions", transitions.iter().map(transition).collect()),
        ("lastFailure", description.failure.as_ref().map_or(Value::Null, describe_failure)),
        ("lastCheck", description.checks.checked.map_or(Value::Null, time)),
        ("lastDifference", description.checks.difference.as_ref().map_or(Value::Null, difference)),
    ])
}

fn describe_contents(contents: &CacheContents) -> Value {
    object([
        ("resourceVersion", contents.resource_version.to_string().into()),
        ("objects", contents.objects.into()),
        ("bytes", contents.bytes.into()),
        ("watchesFrom", contents.history_from.to_string().into()),
        ("exactListsFrom", contents.exact_from.to_string().into()),
        ("historyEvents", contents.history_events.into()),
        ("historyEventsMax", contents.history_events_max.into()),
        ("historyBytes", contents.history_bytes.into()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_has_two_or_three_names() {
        let parse = |uri: &str| {
            let asked = CacheNames::parse(&uri.parse().unwrap(), "/debug/caches/")?;
            Some((asked.gvr.to_string(), asked.namespace))
        };
        let some = |gvr: &str, namespace: &str| Some((gvr.to_owned(), namespace.to_owned()));
        assert_eq!(parse("/debug/caches/v1/pods"), some("v1/pods", ""));
        let deployments = "/debug/caches/apps/v1/deployments?namespace=kube%2Dsystem";
        assert_eq!(parse(deployments), some("apps/v1/deployments", "kube-system"));
        assert_eq!(parse("/debug/caches/pods"), None);
        assert_eq!(parse("/debug/caches/a/v1/pods/x"), None);
    }
}
