//! Pages from alternating servers: the upstream and any number of Weirs, in any order, while
//! objects are created and deleted. All pages of one list together are the list at the revision of
//! their token (docs/semantics.md §3.4, §3.10).

use fastrand::Rng;
use http::Method;
use serde_json::{Value, json};

use super::wire::{Call, Endpoint};

/// Reads many lists in pages over all servers; the first one is the upstream itself.
pub(crate) async fn walks(sides: &[Endpoint], collections: &[&str], seed: u64, count: usize) {
    let mut rng = Rng::with_seed(seed);
    for number in 0..count {
        let collection = *rng.choice(collections).unwrap();
        let limit = rng.u8(1..4);
        let selector = *rng.choice(&["", "&labelSelector=app%3Dx", "&labelSelector=n"]).unwrap();
        let start = *rng.choice(&["", "&resourceVersionMatch=NotOlderThan"]).unwrap();
        walk(sides, collection, limit, selector, start, number, &mut rng).await;
    }
}

async fn walk(
    sides: &[Endpoint],
    collection: &str,
    limit: u8,
    selector: &str,
    start: &str,
    number: usize,
    rng: &mut Rng,
) {
    let mut query = format!("limit={limit}{selector}");
    if !start.is_empty() {
        query = format!("{query}&resourceVersion={}{start}", at_least(&sides[0], collection).await);
    }
    let (mut items, mut at, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        // Every server reads the tokens of all others.
        let side = rng.usize(..sides.len());
        let call = Call::get(format!("{collection}?{query}"));
        let answer = sides[side].send(&call).await;
        assert_eq!(answer.status, 200, "{call}: {}", String::from_utf8_lossy(&answer.body));
        let page = answer.json();
        let revision = page["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
        if pages > 0 {
            assert_eq!(revision, at, "{call}: all pages of a walk are at one revision");
        }
        at = revision;
        pages += 1;
        let here = page["items"].as_array().cloned().unwrap_or_default();
        assert!(here.len() <= usize::from(limit), "{call}");
        items.extend(here);
        // The state changes between pages.
        if rng.bool() {
            disturb(&sides[0], collection, number, pages).await;
        }
        let token = page["metadata"]["continue"].as_str().unwrap_or_default();
        if token.is_empty() {
            break;
        }
        query = format!("limit={limit}{selector}&continue={token}");
    }
    let exact = format!("{collection}?resourceVersion={at}&resourceVersionMatch=Exact{selector}");
    let expected = sides[0].send(&Call::get(&exact)).await;
    let expected = expected.json()["items"].as_array().cloned().unwrap_or_default();
    let names = |items: &[Value]| -> Vec<String> {
        let name = |item: &Value| {
            format!("{} {}", item["metadata"]["name"], item["metadata"]["resourceVersion"])
        };
        items.iter().map(name).collect()
    };
    assert_eq!(names(&items), names(&expected), "{pages} pages of {exact}");
    assert!(items == expected, "{exact}: the objects themselves");
}

async fn at_least(direct: &Endpoint, collection: &str) -> String {
    let list = direct.send(&Call::get(format!("{collection}?limit=1"))).await.json();
    list["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

/// Creates, changes or deletes an object in the collection's namespace, before or after the current
/// page.
async fn disturb(direct: &Endpoint, collection: &str, number: usize, pages: usize) {
    let path = if collection.contains("/namespaces/") {
        collection.to_owned()
    } else {
        let (group_version, resource) = collection.rsplit_once('/').unwrap();
        format!("{group_version}/namespaces/a/{resource}")
    };
    let name = format!("{}{}", ["b", "y"][pages % 2], number % 5);
    let mut object = json!({"metadata": {"name": name, "labels": {"app": "x", "n": "1"}}});
    if path.contains("widgets") {
        object["apiVersion"] = "example.com/v1".into();
        object["kind"] = "Widget".into();
        object["spec"] = json!({"color": "red"});
    }
    let made = direct.send(&Call::json(Method::POST, &path, &object)).await;
    if made.status == 409 {
        let gone = direct.send(&Call::new(Method::DELETE, format!("{path}/{name}"))).await;
        assert!(gone.status == 200 || gone.status == 404, "{}", gone.status);
    }
}
