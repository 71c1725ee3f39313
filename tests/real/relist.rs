//! A relist without a herd: the history moves past Weir and is compacted while its connection to
//! the upstream is cut. A hundred watches through Weir stay open and reach the present state, for
//! one list upstream.

use std::collections::BTreeMap;
use std::sync::Arc;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::control_plane::{ADMIN, ControlPlane};
use crate::cuts::relay::Relay;
use crate::h2c::H2c;
use crate::suite::objects::create;
use crate::suite::wire::{Call, Endpoint};
use crate::support::{Weir, sum_metric};
use crate::wait::eventually;

pub(crate) fn no_herd() {
    let mut plane = ControlPlane::start();
    let runtime = Runtime::new().unwrap();
    let (relay, weir) = runtime.block_on(async {
        let relay = Relay::start(&plane.kubeconfig(ADMIN)).await;
        let weir = Weir::start(&relay.kubeconfig, "");
        (relay, weir)
    });
    let direct = plane.endpoint(ADMIN);
    let watches = runtime.block_on(async {
        write(&direct, 0..20).await;
        let watches = open(&weir).await;
        watches.converge(&direct).await;
        watches
    });

    relay.close();
    runtime.block_on(async {
        write(&direct, 20..60).await;
        for number in (0..40).step_by(3) {
            let path = format!("{OBJECTS}/o{number}");
            assert_eq!(direct.send(&Call::new(http::Method::DELETE, path)).await.status, 200);
        }
    });
    plane.compact();
    // This also drops the API server's own window of the history.
    plane.kill_apiserver();
    plane.start_apiserver();
    relay.open();

    runtime.block_on(async {
        watches.converge(&direct).await;
        write(&direct, 60..70).await;
        watches.converge(&direct).await;
    });
    let relists = weir.metric("weir_reflector_relists_total", &[r#"cause="expired""#, CONFIGMAPS]);
    assert_eq!(relists, 1.0, "lists for what was lost");
    assert_eq!(weir.metric("weir_watchers", &[CONFIGMAPS]), WATCHES as f64, "open watches");
    assert_eq!(watches.ended(), 0);
    // The API server's own informers watch config maps of kube-system; only Weir reads all of them.
    // Since its restart there were the watch that expired, the list or watch-list with its proof
    // and bookmark, and the open watch.
    let metrics = plane.get("/metrics").unwrap();
    let sum = |name: &str, verb: &str| {
        sum_metric(&metrics, name, &[r#"resource="configmaps""#, r#"scope="cluster""#, verb])
    };
    assert_eq!(sum("apiserver_longrunning_requests", r#"verb="WATCH""#), 1.0);
    let reads = sum("apiserver_request_total", r#"verb="LIST""#)
        + sum("apiserver_request_total", r#"verb="WATCH""#);
    eprintln!("{reads} lists and watches upstream since the way is open");
    assert!(reads <= READS_MAX, "{reads} lists and watches for {WATCHES} watches");
}

/// The objects that each watch has seen, name to resourceVersion, and whether it has ended.
struct Watches {
    seen: Vec<Arc<Mutex<Seen>>>,
    _tasks: JoinSet<()>,
}

#[derive(Default)]
struct Seen {
    objects: BTreeMap<String, String>,
    ended: bool,
}

async fn open(weir: &Weir) -> Watches {
    let connection = H2c::connect(weir.plain_port()).await;
    let (mut seen, mut tasks) = (Vec::new(), JoinSet::new());
    for _ in 0..WATCHES {
        let response = connection.get(WATCH).await;
        assert_eq!(response.headers()["x-weir-cache"], "hit");
        let one = Arc::new(Mutex::new(Seen::default()));
        tasks.spawn(follow(response.into_body(), Arc::clone(&one)));
        seen.push(one);
    }
    Watches { seen, _tasks: tasks }
}

/// Applies events like an informer.
async fn follow(mut body: Incoming, seen: Arc<Mutex<Seen>>) {
    let mut buffer = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        buffer.extend_from_slice(frame.data_ref().unwrap());
        while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = buffer.drain(..=end).collect();
            let event: Value = serde_json::from_slice(&line).unwrap();
            let metadata = &event["object"]["metadata"];
            let text = |name: &str| metadata[name].as_str().unwrap_or_default().to_owned();
            let mut seen = seen.lock();
            match event["type"].as_str().unwrap() {
                "ADDED" => {
                    let before = seen.objects.insert(text("name"), text("resourceVersion"));
                    assert_eq!(before, None, "{event}");
                }
                "MODIFIED" => {
                    let before = seen.objects.insert(text("name"), text("resourceVersion"));
                    assert!(before.is_some(), "{event}");
                }
                "DELETED" => assert!(seen.objects.remove(&text("name")).is_some(), "{event}"),
                "BOOKMARK" => {}
                _ => panic!("{event}"),
            }
        }
    }
    seen.lock().ended = true;
}

impl Watches {
    /// Waits until every watch has the upstream's objects.
    async fn converge(&self, direct: &Endpoint) {
        let list = direct.send(&Call::get(OBJECTS)).await.json();
        let text = |item: &Value, name: &str| item["metadata"][name].as_str().unwrap().to_owned();
        let items = list["items"].as_array().unwrap().iter();
        let expected: BTreeMap<_, _> =
            items.map(|item| (text(item, "name"), text(item, "resourceVersion"))).collect();
        // Config maps of other namespaces are the API server's own.
        eventually("all watches have the state", async || {
            self.seen.iter().all(|seen| {
                let seen = seen.lock();
                assert!(!seen.ended, "a watch has ended");
                let ours = seen.objects.iter().filter(|(name, _)| name.starts_with('o'));
                ours.eq(expected.iter().filter(|(name, _)| name.starts_with('o')))
            })
        })
        .await;
    }

    fn ended(&self) -> usize {
        self.seen.iter().filter(|seen| seen.lock().ended).count()
    }
}

async fn write(direct: &Endpoint, numbers: std::ops::Range<usize>) {
    let mut connection = direct.connection();
    for number in numbers {
        let object = json!({"metadata": {"name": format!("o{number}")}});
        create(&mut connection, OBJECTS, &object).await;
        if number % 2 == 0 {
            let patch = json!({"data": {"k": "v"}});
            let call = Call::json(http::Method::PATCH, &format!("{OBJECTS}/o{number}"), &patch);
            assert_eq!(connection.send(&call).await.status, 200);
        }
    }
}

/// The most that one connection may have.
const WATCHES: usize = 100;
const READS_MAX: f64 = 8.0;
const OBJECTS: &str = "/api/v1/namespaces/default/configmaps";
const CONFIGMAPS: &str = r#"resource="configmaps""#;
const WATCH: &str =
    "/api/v1/configmaps?watch=1&resourceVersion=0&allowWatchBookmarks=true&timeoutSeconds=600";
