//! The query parameters of a read that the cache may answer. Any other one is forwarded: the next
//! version of Kubernetes may give it a meaning, as it did to `sendInitialEvents`, and an answer
//! without it would be a wrong one.

use crate::api::query::Query;

/// Whether Weir knows all parameters of a query. Names are case-sensitive, as in Go.
pub(super) fn are_known(query: &Query) -> bool {
    query.names().all(|name| KNOWN.contains(&name))
}

/// The options that Weir implements, and parameters without an effect on a read.
const KNOWN: [&str; 23] = [
    "labelSelector",
    "fieldSelector",
    "resourceVersion",
    "resourceVersionMatch",
    "limit",
    "continue",
    "watch",
    "allowWatchBookmarks",
    "sendInitialEvents",
    "shardSelector",
    "timeoutSeconds",
    // Not options of a list, but read by handlers of every version: client-go's own time-out, and
    // indented JSON.
    "timeout",
    "pretty",
    // Removed in Kubernetes 1.16; older clients send it.
    "includeUninitialized",
    // JavaScript libraries put a number here, so that no cache on the way answers.
    "_",
    // Options of writes, which some clients send with every request.
    "dryRun",
    "fieldManager",
    "fieldValidation",
    "force",
    "gracePeriodSeconds",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "orphanDependents",
    "propagationPolicy",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_client_sends_today_is_unknown() {
        for raw in [
            "shardselector=x",
            "drop=metadata.managedFields",
            "includeObject=Metadata",
            "export=1",
            "resourceVersion=0&Watch=1",
            "resourceVersion=0&nextOption",
            "=x",
            "%6cimits=1",
        ] {
            assert!(!are_known(&Query::parse(raw)), "{raw}");
        }
        // Go drops these.
        for raw in ["", "&&", "x;y=1", "unknown=%zz", "%6cimit=5"] {
            assert!(are_known(&Query::parse(raw)), "{raw}");
        }
    }

    /// The queries of clients, as their sources and their logs have them.
    #[test]
    fn the_parameters_of_clients_are_known() {
        for (client, raw) in [
            ("client-go, reflector", "limit=500&resourceVersion=0"),
            (
                "client-go, reflector",
                "allowWatchBookmarks=true&resourceVersion=7&timeout=7m12s&timeoutSeconds=432&watch=true",
            ),
            (
                "client-go, watch-list",
                "allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&timeout=9m3s&timeoutSeconds=543&watch=true",
            ),
            ("client-go, leader election", "timeout=5s"),
            ("client-go, sharded", "limit=500&resourceVersion=0&shardSelector=x"),
            ("kubectl get", "limit=500&labelSelector=app%3Dx&fieldSelector=metadata.name%3Dy"),
            ("kubectl get -w", "resourceVersion=7&watch=true"),
            ("kubectl wait", "fieldSelector=metadata.name%3Dx&limit=1"),
            (
                "fabric8, informer",
                "allowWatchBookmarks=true&resourceVersion=7&timeoutSeconds=600&watch=true",
            ),
            ("fabric8, list", "limit=500&continue=abc&resourceVersion=0&labelSelector=a"),
            ("Java client", "pretty=&allowWatchBookmarks=false&timeoutSeconds=300&watch=true"),
            ("Python client", "pretty=true&limit=100&watch=True&timeoutSeconds=60"),
            ("Python client, older", "includeUninitialized=true"),
            ("JavaScript client", "watch=true&resourceVersion=7&allowWatchBookmarks=true&pretty=x"),
            ("kube-rs", "&limit=500&resourceVersion=0&resourceVersionMatch=NotOlderThan"),
            ("kube-rs", "watch=true&timeoutSeconds=290&allowWatchBookmarks=true&resourceVersion=7"),
            ("Prometheus", "limit=500&resourceVersion=0&fieldSelector=spec.nodeName%3Dn"),
            ("Argo CD", "allowWatchBookmarks=true&resourceVersion=7&watch=true"),
            ("a browser's library", "resourceVersion=0&_=1700000000000"),
            ("Ruby, kubeclient", "labelSelector=a&resourceVersion=7&watch=true"),
        ] {
            assert!(are_known(&Query::parse(raw)), "{client}: {raw}");
        }
    }
}
