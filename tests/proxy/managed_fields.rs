//! Objects without `metadata.managedFields`, for clients that ask and for those of rules.

use http::Method;
use serde_json::{Value, json};
use weir::flow::rules::AgentPattern;
use weir::simulator::{Simulator, SimulatorOptions};

use crate::client::{Answer, Call, Watch};
use crate::harness::{Proxy, configmap, seed, widget};

const CONFIGMAPS: &str = "/api/v1/namespaces/managed/configmaps";
const DROP: &str = ";drop=metadata.managedFields";
const JSON: &str = "application/json";
const MEMBER: &str = r#","managedFields":["#;
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Adds what an API server writes of managers, of about 2 KB.
fn managed(mut object: Value) -> Value {
    let entry = |manager: &str| {
        json!({"manager": manager, "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
            "time": "2026-01-01T00:00:00Z",
            "fieldsV1": {"f:data": {".": {}, "f:text": {}, "f:padding": {"x".repeat(900): {}}}}})
    };
    object["metadata"]["managedFields"] = json!([entry("one"), entry("two")]);
    object
}

async fn proxy(adjust: impl FnOnce(&mut weir::config::Config)) -> Proxy {
    let upstream = Simulator::start(SimulatorOptions::default()).await.unwrap();
    seed(&upstream);
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "managed"}});
    upstream.store().create(namespace).unwrap();
    for number in 0..3 {
        let name = format!("cm-{number}");
        upstream.store().create(managed(configmap("managed", &name, number))).unwrap();
        let name = format!("w-{number}");
        upstream.store().create(managed(widget("managed", &name, "red"))).unwrap();
    }
    Proxy::before(upstream, "", adjust).await
}

/// Cuts each member `managedFields` out of JSON. Its strings have no brackets here.
fn without(text: &str) -> String {
    let (mut rest, mut kept) = (text, String::new());
    while let Some((before, after)) = rest.split_once(MEMBER) {
        kept.push_str(before);
        let mut depth = 1;
        let end = after.find(|character| {
            depth += match character {
                '[' => 1,
                ']' => -1,
                _ => 0,
            };
            depth == 0
        });
        rest = after.split_at(end.unwrap() + 1).1;
    }
    assert!(!kept.is_empty(), "nothing to cut: {text}");
    kept + rest
}

fn dropped(answer: &Answer) -> &str {
    answer.headers.get("x-weir-dropped").map_or("", |value| value.to_str().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_asks_gets_no_managed_fields_from_a_cache() {
    let proxy = proxy(|_| {}).await;
    for path in [CONFIGMAPS, "/apis/example.com/v1/namespaces/managed/widgets"] {
        proxy.warm(&format!("{path}?resourceVersion=0")).await;
        let object = if path == CONFIGMAPS { "cm-1" } else { "w-1" };
        for read in [
            format!("{path}?resourceVersion=0"),
            format!("{path}/{object}?resourceVersion=0"),
            format!("{path}?resourceVersion=0&pretty=true"),
            format!("{path}/{object}?resourceVersion=0&pretty=1"),
        ] {
            let whole = proxy.call(&Call::get(&read).header("accept", JSON)).await;
            let asked = Call::get(&read).header("accept", &format!("{JSON}{DROP}"));
            let less = proxy.call(&asked).await;
            assert_eq!((less.cache(), dropped(&less)), ("hit", "metadata.managedFields"), "{read}");
            assert_eq!((whole.cache(), dropped(&whole)), ("hit", ""), "{read}");
            match read.contains("pretty") {
                true => {
                    let expected = without(&whole.json().to_string());
                    assert_eq!(less.json().to_string(), expected, "{read}");
                    assert_eq!(whole.text().ends_with('\n'), less.text().ends_with('\n'));
                }
                false => assert_eq!(less.text(), without(&whole.text()), "{read}"),
            }
            assert_eq!(less.headers["content-type"], whole.headers["content-type"]);
            assert!(less.body.len() + 1_900 < whole.body.len());
        }
    }
    let saved =
        proxy.metric("weir_managed_fields_dropped_bytes_total", &["resource=\"configmaps\""]).await;
    assert!((16_000.0..20_000.0).contains(&saved), "{saved}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn protobuf_and_metadata_lose_them_too() {
    let proxy = proxy(|_| {}).await;
    let cached_read = |accept: String, path: &str| {
        Call::get(&format!("{path}?resourceVersion=0")).header("accept", &accept)
    };
    let one = format!("{CONFIGMAPS}/cm-1");
    for (encoding, list, path) in [
        (PROTOBUF, "", CONFIGMAPS),
        (PROTOBUF, "", &*one),
        (JSON, ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", CONFIGMAPS),
        (JSON, ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1", &*one),
        (PROTOBUF, ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", CONFIGMAPS),
    ] {
        proxy.warm(&format!("{CONFIGMAPS}?resourceVersion=0")).await;
        let accept = format!("{encoding}{list}");
        let call = cached_read(accept.clone(), path);
        crate::wait::eventually("the cache answers", async || {
            proxy.call(&call).await.cache() == "hit"
        })
        .await;
        let whole = proxy.call(&call).await;
        let less = proxy.call(&cached_read(format!("{accept}{DROP}"), path)).await;
        assert_eq!((less.cache(), dropped(&less)), ("hit", "metadata.managedFields"), "{accept}");
        let has = |answer: &Answer| answer.text().contains("FieldsV1");
        assert!(has(&whole) && !has(&less), "{accept}");
        if encoding == JSON {
            assert_eq!(less.text(), without(&whole.text()), "{accept}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_compressed_list_loses_them_too() {
    let proxy = proxy(|_| {}).await;
    for number in 10..600 {
        let name = format!("cm-{number}");
        proxy.upstream.store().create(managed(configmap("managed", &name, number))).unwrap();
    }
    let path = format!("{CONFIGMAPS}?resourceVersion=0");
    proxy.warm(&path).await;
    proxy.catch_up(CONFIGMAPS).await;
    let call =
        |accept: &str| Call::get(&path).header("accept", accept).header("accept-encoding", "gzip");
    let unpack = |answer: &Answer| {
        assert_eq!(answer.headers["content-encoding"], "gzip");
        let mut plain = String::new();
        std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&*answer.body), &mut plain)
            .unwrap();
        plain
    };
    // Twice, so that the segments of both kinds are cached beside each other.
    for _ in 0..2 {
        let whole = unpack(&proxy.call(&call(JSON)).await);
        let less = unpack(&proxy.call(&call(&format!("{JSON}{DROP}"))).await);
        assert_eq!(less, without(&whole));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_shows_events_without_them_and_resumes() {
    let proxy = proxy(|_| {}).await;
    proxy.warm(&format!("{CONFIGMAPS}?resourceVersion=0")).await;
    let path = format!("{CONFIGMAPS}?watch=1&resourceVersion=0&labelSelector=app%3Deven");
    let asked = |path: &str| Call::get(path).header("accept", &format!("{JSON}{DROP}"));
    let mut whole = proxy.watch(&path).await;
    let mut less = Watch::open(proxy.plain(), &asked(&path)).await;
    assert_eq!(less.headers["x-weir-dropped"], "metadata.managedFields");
    assert_eq!(less.cache(), "hit");
    let api = proxy.upstream.store();
    let mut last = String::new();
    for (number, name, label) in
        [(4, "new", "ADDED"), (6, "cm-2", "MODIFIED"), (7, "cm-2", "DELETED")]
    {
        let object = managed(configmap("managed", name, number));
        match label {
            "ADDED" => drop(api.create(object).unwrap()),
            _ => {
                let path = format!("{CONFIGMAPS}/{name}");
                let put = Call::new(Method::PUT, &path).json(&object);
                assert_eq!(proxy.direct(&put).await.status, 200);
            }
        }
        let needle = format!(
            "\"type\":\"{label}\",\"object\":{{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{{\"name\":\"{name}\""
        );
        let (whole_events, short_events) = (whole.until(&needle).await, less.until(&needle).await);
        assert_eq!(whole_events.len(), short_events.len());
        for (whole_event, short_event) in whole_events.iter().zip(&short_events) {
            assert_eq!(*short_event, without(whole_event));
            let event: Value = serde_json::from_str(short_event).unwrap();
            let at = &event["object"]["metadata"]["resourceVersion"];
            last = at.as_str().unwrap().to_owned();
        }
    }
    // A watch of either kind resumes where the other was.
    let path = format!("{CONFIGMAPS}?watch=1&resourceVersion={last}");
    let mut resumed = Watch::open(proxy.plain(), &asked(&path)).await;
    let mut other = proxy.watch(&path).await;
    assert_eq!((resumed.cache(), other.cache()), ("hit", "hit"));
    api.create(managed(configmap("managed", "later", 1))).unwrap();
    let (whole_events, short_events) = (other.until("later").await, resumed.until("later").await);
    assert_eq!(short_events, whole_events.iter().map(|frame| without(frame)).collect::<Vec<_>>());
}

/// The upstream's answer is relayed as it is, and no header claims otherwise.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forwarded_read_is_unchanged() {
    let proxy = proxy(|_| {}).await;
    let path = format!("{CONFIGMAPS}/cm-1");
    let accept = format!("{JSON}{DROP}");
    let answer = proxy.call(&Call::get(&path).header("accept", &accept)).await;
    assert_eq!((answer.cache(), dropped(&answer)), ("forward; reason=consistent", ""));
    assert!(answer.text().contains("managedFields"));
    let recent = proxy.upstream.requests().recent();
    let seen = recent.iter().find(|seen| seen.path == path).unwrap();
    assert_eq!(seen.headers["accept"], accept.as_str());
    // Fields that Weir cannot drop are the API server's to decide about.
    proxy.warm(&format!("{CONFIGMAPS}?resourceVersion=0")).await;
    for (drop, cache) in [
        ("metadata.annotations", "forward; reason=form"),
        ("metadata.managedFields+metadata.managedFields", "forward; reason=form"),
        // A parameter without a value counts for none.
        ("", "hit"),
    ] {
        let call = Call::get(&format!("{path}?resourceVersion=0"));
        let answer = proxy.call(&call.header("accept", &format!("{JSON};drop={drop}"))).await;
        assert_eq!((answer.cache(), dropped(&answer)), (cache, ""), "{drop}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rule_is_for_clients_that_only_read() {
    let proxy = proxy(|config| {
        config.cache.drop_managed_fields = vec![AgentPattern::parse("exporter/*").unwrap()];
    })
    .await;
    let list = format!("{CONFIGMAPS}?resourceVersion=0");
    let object = format!("{CONFIGMAPS}/cm-1");
    proxy.warm(&list).await;
    let by = |call: Call, agent: &str| call.header("user-agent", agent);
    let drops = async |path: &str, agent: &str| {
        let answer = proxy.call(&by(Call::get(path), agent)).await;
        assert_eq!(answer.cache(), "hit");
        let has_none = !answer.text().contains("managedFields");
        assert_eq!(dropped(&answer) == "metadata.managedFields", has_none);
        has_none
    };
    assert!(drops(&list, "exporter/v2 (linux)").await);
    assert!(!drops(&list, "kubectl/v1.36.0").await);
    assert!(!drops(&format!("{object}?resourceVersion=0"), "exporter/v2").await);
    let watch = by(Call::get(&format!("{CONFIGMAPS}?watch=1&resourceVersion=0")), "exporter/v2");
    let mut watch = Watch::open(proxy.plain(), &watch).await;
    assert_eq!(watch.event().await["object"]["metadata"].get("managedFields"), None);

    // Another exporter changes an object, and is treated as a writer from then on.
    let put = Call::new(Method::PUT, &object).json(&managed(configmap("managed", "cm-1", 9)));
    assert_eq!(proxy.call(&by(put, "exporter/v3")).await.status, 200);
    assert!(!drops(&list, "exporter/v3").await);
    assert!(drops(&list, "exporter/v2").await);
}
