//! Users of some of 10,000 namespaces with 100,000 objects, who list and watch all of them: what
//! they may see (`docs/decisions/filtered-lists.md`), beside a user who may see all and selects the
//! same objects by a label. CPU time of a Weir process before a simulator.

use std::time::Duration;

use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use weir::simulator::{Simulator, SimulatorOptions, User};

use crate::client::{Watches, connect, is_hit, send_as, warm_as};
use crate::curve::{Curve, Series};
use crate::testbed::block_on;
use crate::weir_process::Weir;

const NAMESPACES: usize = 10_000;
const OBJECTS: usize = 100_000;
/// The numbers of namespaces that the tenant sees.
const VISIBLE: [usize; 3] = [5, 50, 500];
const LISTS: usize = 20;
const WATCHERS: usize = 1_000;
/// The streams of a connection.
const STREAMS: usize = 200;
const EVENTS: usize = 400;
const EVENT_INTERVAL: Duration = Duration::from_millis(10);
const COLLECTION: &str = "/api/v1/configmaps";
const RBAC: &str = "rbac.authorization.k8s.io";
/// The token of a user for each number of [`VISIBLE`].
const TENANTS: [&str; 3] = ["tenant5", "tenant50", "tenant500"];
/// The token of a user who sees all.
const WHOLE: &str = "whole";

pub(crate) fn grow() -> Curve {
    block_on(async {
        let mut users = vec![User::admin("weirs-own", "weir"), User::admin(WHOLE, WHOLE)];
        users.extend(TENANTS.map(|name| User::with_rules(name, name, Vec::new())));
        let options = SimulatorOptions { users, ..SimulatorOptions::default() };
        let upstream = Simulator::start(options).await.expect("a simulator");
        for number in 0..NAMESPACES {
            let name = namespace(number);
            let object =
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            upstream.store().create(object).expect("the namespace is created");
        }
        for number in 0..OBJECTS {
            upstream.store().create(config_map(number, 0)).expect("the object is created");
        }
        grant(&upstream);
        let settings = json!({
            "authentication": {"mode": "gateway"},
            "authorization": {"rbac": {"enabled": true}, "filteredLists": "namespaces"},
        });
        let weir = Weir::start(&upstream.kubeconfig("weirs-own"), settings).await;
        let mut series = [(); 4].map(|()| Vec::new());
        for (visible, token) in VISIBLE.into_iter().zip(TENANTS) {
            warm_as(token, weir.address, COLLECTION).await;
            warm_as(WHOLE, weir.address, COLLECTION).await;
            let label = format!("&labelSelector=of{visible}%3Dyes");
            let figures = [
                list(&weir, token, "", visible).await,
                list(&weir, WHOLE, &label, visible).await,
                watch(&weir, &upstream, token, "").await,
                watch(&weir, &upstream, WHOLE, "").await,
            ];
            println!("  {visible} namespaces: {figures:?}");
            series.iter_mut().zip(figures).for_each(|(points, y)| points.push((visible as f64, y)));
        }
        let names =
            ["a filtered list", "by a label", "an event, 1,000 filtered watches", "1,000 of all"];
        let series = names.into_iter().zip(series);
        let series = series.map(|(name, points)| Series::new(name, None, points)).collect();
        Curve {
            title: "A user of some of 10,000 namespaces with 100,000 objects",
            x: "namespaces of the user",
            y: "µs of CPU",
            series,
        }
    })
}

/// Gives each tenant a role in its namespaces.
fn grant(upstream: &Simulator) {
    let (api, verbs) = (format!("{RBAC}/v1"), ["get", "list", "watch"]);
    let rules = json!([{"verbs": verbs, "apiGroups": [""], "resources": ["configmaps"]}]);
    let role = json!({"apiVersion": api, "kind": "ClusterRole", "metadata": {"name": "reader"}, "rules": rules});
    upstream.store().create(role).expect("the role is created");
    for (visible, token) in VISIBLE.into_iter().zip(TENANTS) {
        for number in (0..NAMESPACES).step_by(NAMESPACES / visible) {
            let binding = json!({"apiVersion": api, "kind": "RoleBinding",
                "metadata": {"namespace": namespace(number), "name": token},
                "subjects": [{"kind": "User", "apiGroup": RBAC, "name": token}],
                "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "reader"}});
            upstream.store().create(binding).expect("the binding is created");
        }
    }
}

/// Lists what a user sees, again and again. Returns the cost of one list.
async fn list(weir: &Weir, token: &str, selector: &str, visible: usize) -> f64 {
    let connection = connect(weir.address).await;
    let before = weir.cpu();
    for _ in 0..LISTS {
        let path = format!("{COLLECTION}?resourceVersion=0{selector}");
        let response = send_as(token, &connection, weir.address, &path).await;
        assert!(is_hit(&response), "{:?}", response.headers());
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        let items = memchr::memmem::find_iter(&body, r#""metadata":{"name":"#).count();
        assert_eq!(items, OBJECTS / NAMESPACES * visible, "objects");
    }
    (weir.cpu() - before).as_secs_f64() * 1e6 / LISTS as f64
}

/// 1,000 watches of a user, and changes of objects of all namespaces. Returns the cost of a change.
async fn watch(weir: &Weir, upstream: &Simulator, token: &'static str, selector: &str) -> f64 {
    let mut watches = Watches::with_token(token);
    let from = upstream.store().revision();
    for _ in 0..WATCHERS / STREAMS {
        let connection = connect(weir.address).await;
        let path =
            format!("{COLLECTION}?watch=1&resourceVersion={from}&timeoutSeconds=3600{selector}");
        for _ in 0..STREAMS {
            watches.add(&connection, weir.address, &path, None).await;
        }
    }
    let before = weir.cpu();
    for event in 0..EVENTS {
        let change = config_map(event * OBJECTS / EVENTS, from as usize);
        upstream.store().update(change).expect("the object is updated");
        sleep(EVENT_INTERVAL).await;
    }
    settle(&watches).await;
    (weir.cpu() - before).as_secs_f64() * 1e6 / EVENTS as f64
}

/// Waits until no more events arrive.
async fn settle(watches: &Watches) {
    let mut last = (watches.observations.events(), Instant::now());
    while last.1.elapsed() < Duration::from_secs(1) {
        sleep(EVENT_INTERVAL).await;
        let events = watches.observations.events();
        if events != last.0 {
            last = (events, Instant::now());
        }
    }
}

fn namespace(number: usize) -> String {
    format!("ns-{number:05}")
}

fn config_map(number: usize, version: usize) -> Value {
    let place = number % NAMESPACES;
    let label = |visible: &usize| {
        (
            format!("of{visible}"),
            if place.is_multiple_of(NAMESPACES / visible) { "yes" } else { "no" },
        )
    };
    let labels: std::collections::BTreeMap<_, _> = VISIBLE.iter().map(label).collect();
    json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": format!("cm-{number:06}"), "namespace": namespace(place), "labels": labels},
        "data": {"text": "x".repeat(600), "version": version.to_string()}})
}
