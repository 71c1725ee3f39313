//! The estimate against a table made by hand from kube-apiserver's code.

use http::Method;

use super::*;

/// 1,000 objects of 10 kB.
const LARGE: Option<CollectionSize> = Some(CollectionSize { objects: 1_000, bytes: 10_000_000 });

fn work(path: &str, size: Option<CollectionSize>) -> Work {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    Work::from_request(&RequestInfo::parse(&Method::GET, path, query), size)
}

#[test]
fn the_seats_of_a_request_are_those_of_kube_apiserver() {
    for (path, expected) in [
        ("/api/v1/namespaces/a/pods/b", 1),
        ("/version", 1),
        // A list from the watch cache has at most a megabyte in memory at once.
        ("/api/v1/pods", 10),
        ("/api/v1/pods?resourceVersion=0", 10),
        ("/api/v1/namespaces/a/pods?resourceVersion=0", 10),
        ("/api/v1/pods?resourceVersion=0&limit=10", 1),
        ("/api/v1/pods?resourceVersion=0&limit=50", 5),
        ("/api/v1/pods?resourceVersion=5&resourceVersionMatch=NotOlderThan&limit=5000", 10),
        // A list from etcd has all of it in memory.
        ("/api/v1/pods?resourceVersion=5&limit=500", 50),
        ("/api/v1/pods?resourceVersion=5&resourceVersionMatch=Exact", 60),
        ("/api/v1/pods?limit=500&continue=abc", 50),
        // A list with a selector reads at least half of the objects.
        ("/api/v1/pods?limit=100&continue=abc&labelSelector=a%3Db", 50),
        ("/api/v1/pods?limit=100&continue=abc&fieldSelector=spec.nodeName%3Db", 50),
        ("/api/v1/pods?fieldSelector=metadata.name%3Db", 1),
        ("/api/v1/pods?watch=1&resourceVersion=5", 1),
        ("/api/v1/pods?watch=1", 10),
        ("/api/v1/pods?watch=1&resourceVersion=0", 10),
        ("/api/v1/pods?watch=1&resourceVersion=5&sendInitialEvents=true", 10),
        // The API server refuses it and assumes the most.
        ("/api/v1/pods?limit=x", 60),
    ] {
        assert_eq!(work(path, LARGE).seats(7, 60), expected, "{path}");
    }
}

#[test]
fn the_bytes_of_the_response_count_where_the_size_is_unknown() {
    let list = work("/api/v1/pods", None);
    assert_eq!(
        [0, 1, 100_000, 100_001, 5_000_000].map(|bytes| list.seats(bytes, 60)),
        [1, 1, 1, 2, 10]
    );
    let exact = work("/api/v1/pods?resourceVersion=5&resourceVersionMatch=Exact", None);
    assert_eq!(exact.seats(5_000_000, 60), 50);
    assert_eq!(exact.seats(50_000_000, 60), 60);
    let none = Some(CollectionSize::default());
    assert_eq!(work("/api/v1/pods", none).seats(0, 60), 1);
}

/// With the default limits: 600 seats, which the levels divide by 245 shares.
#[test]
fn the_widest_list_of_each_level_is_that_of_kube_apiserver() {
    let plan = Plan::built_in();
    let widest = |name: &str| {
        let schema = plan.schemas().iter().find(|schema| &*schema.name == name).unwrap();
        seats_max(&plan, &schema.level)
    };
    for (schema, seats) in [
        ("system-nodes", 12),
        ("system-node-high", 15),
        ("system-leader-election", 4),
        ("kube-scheduler", 15),
        ("service-accounts", 37),
        ("global-default", 8),
        ("catch-all", 100),
        ("exempt", 100),
    ] {
        assert_eq!(widest(schema), seats, "{schema}");
    }
}
