//! GET and LIST.

use http::Method;
use serde_json::{Value, json};

use super::client::{config_map, create, get, request, revision, start, start_with};
use crate::SimulatorOptions;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test]
async fn objects_and_lists_have_the_upstreams_bytes() {
    let simulator = start().await;
    let rv = create(&simulator, "default", "a");
    let object = get(&simulator, &format!("{MAPS}/a")).await;
    let value = object.json();
    let (uid, time) = (&value["metadata"]["uid"], &value["metadata"]["creationTimestamp"]);
    let rest = format!(
        "\"metadata\":{{\"name\":\"a\",\"namespace\":\"default\",\"uid\":{uid},\"resourceVersion\":\"{rv}\",\"creationTimestamp\":{time},\"labels\":{{\"l\":\"1\"}}}},\"data\":{{\"k\":\"\\u003cv\\u003e\"}}}}"
    );
    assert_eq!(object.text(), format!("{{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",{rest}\n"));
    let list = get(&simulator, MAPS).await;
    let expected = format!(
        "{{\"kind\":\"ConfigMapList\",\"apiVersion\":\"v1\",\"metadata\":{{\"resourceVersion\":\"{rv}\"}},\"items\":[{{{rest}]}}\n"
    );
    assert_eq!(list.text(), expected);
    assert!(list.headers.contains_key("audit-id"));
    let empty = get(&simulator, "/api/v1/namespaces/kube-public/configmaps").await;
    assert!(empty.text().ends_with("\"items\":[]}\n"));
}

#[tokio::test]
async fn namespaces_are_found_and_sorted_by_the_joined_key() {
    let simulator = start().await;
    for name in ["ns1", "ns1-a"] {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        simulator.store().create(namespace).unwrap();
        create(&simulator, name, "x");
    }
    assert_eq!(get(&simulator, "/api/v1/namespaces/ns1").await.code, 200);
    let list = get(&simulator, "/api/v1/configmaps").await.json();
    let order: Vec<&Value> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| &item["metadata"]["namespace"])
        .collect();
    assert_eq!(order, ["ns1-a", "ns1"]);
}

#[tokio::test]
async fn pages_keep_their_revision_until_it_is_compacted() {
    let simulator = start().await;
    for name in ["a", "b", "c"] {
        create(&simulator, "default", name);
    }
    let first = get(&simulator, &format!("{MAPS}?limit=2")).await.json();
    let rv = revision(&first);
    assert_eq!(first["metadata"]["remainingItemCount"], 1);
    let token = first["metadata"]["continue"].as_str().unwrap().to_owned();
    simulator.store().delete("v1", "configmaps", "default", "c").unwrap();
    let second = get(&simulator, &format!("{MAPS}?limit=2&continue={token}")).await.json();
    assert_eq!(revision(&second), rv);
    assert_eq!(second["items"][0]["metadata"]["name"], "c");
    let whole = get(&simulator, &format!("{MAPS}?limit=1&resourceVersion=0")).await.json();
    assert_eq!(whole["items"].as_array().unwrap().len(), 2, "limit is ignored at 0");
    let exact =
        get(&simulator, &format!("{MAPS}?resourceVersion={rv}&resourceVersionMatch=Exact")).await;
    assert_eq!(exact.json()["items"].as_array().unwrap().len(), 3);

    simulator.compact();
    let gone =
        get(&simulator, &format!("{MAPS}?resourceVersion={rv}&resourceVersionMatch=Exact")).await;
    assert_eq!(
        (gone.code.as_u16(), gone.message().as_str()),
        (410, "The resourceVersion for the provided list is too old.")
    );
    let gone = get(&simulator, &format!("{MAPS}?limit=2&continue={token}")).await;
    assert_eq!(gone.code, 410);
    let token = gone.json()["metadata"]["continue"].as_str().unwrap().to_owned();
    let rest = get(&simulator, &format!("{MAPS}?limit=2&continue={token}")).await.json();
    assert!(revision(&rest) > rv);
}

#[tokio::test]
async fn invalid_options_get_the_upstreams_messages() {
    let simulator = start().await;
    let cases = [
        (
            "resourceVersion=abc",
            400,
            "invalid resource version: resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": invalid syntax",
        ),
        ("limit=x", 400, "strconv.ParseInt: parsing \"x\": invalid syntax"),
        (
            "resourceVersionMatch=Exact",
            422,
            "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
        ),
        (
            "fieldSelector=x.y=1",
            400,
            "\"x.y\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
        ),
        ("labelSelector=a,,b", 400, "found ',', expected: identifier after ','"),
        ("labelSelector=a%20in%20b", 400, "unable to parse requirement: found 'b' expected: '('"),
    ];
    for (query, code, message) in cases {
        let answer = get(&simulator, &format!("{MAPS}?{query}")).await;
        assert_eq!((answer.code.as_u16(), answer.message().as_str()), (code, message), "{query}");
    }
    let answer = get(&simulator, &format!("{MAPS}/a?resourceVersion=abc")).await;
    assert_eq!(answer.code, 500);
    let answer = get(&simulator, "/apis/none/v1/things").await;
    assert_eq!((answer.code.as_u16(), answer.text()), (404, "404 page not found\n"));
}

#[tokio::test]
async fn selectors_filter_lists() {
    let simulator = start().await;
    for (name, label) in [("a", "1"), ("b", "2"), ("c", "3")] {
        simulator.store().create(config_map("default", name, label)).unwrap();
    }
    let cases = [
        ("labelSelector=l%20in%20(1,2)", "a b"),
        ("labelSelector=l!=1", "b c"),
        ("labelSelector=l>1", "b c"),
        ("labelSelector=!l", ""),
        ("fieldSelector=metadata.name=b", "b"),
        ("fieldSelector=metadata.name!=b", "a c"),
        ("fieldSelector=metadata.namespace=other", ""),
    ];
    for (query, expected) in cases {
        let list = get(&simulator, &format!("{MAPS}?{}", query.replace('>', "%3E"))).await.json();
        let items = list["items"].as_array().unwrap().iter();
        let names: Vec<&str> =
            items.map(|item| item["metadata"]["name"].as_str().unwrap()).collect();
        assert_eq!(names.join(" "), expected, "{query}");
    }
}

#[tokio::test]
async fn a_future_revision_times_out() {
    let options = SimulatorOptions {
        freshness_timeout: std::time::Duration::from_millis(50),
        ..SimulatorOptions::default()
    };
    let simulator = start_with(options).await;
    let answer = get(&simulator, &format!("{MAPS}?resourceVersion=999999")).await;
    assert_eq!(answer.code, 504);
    assert_eq!(answer.headers["retry-after"], "1");
    assert_eq!(answer.json()["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
}

#[tokio::test]
async fn custom_resources_are_sorted_and_tables_have_their_columns() {
    let simulator = start().await;
    simulator.store().create(super::writes::definition()).unwrap();
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget",
        "metadata": {"name": "w", "namespace": "default"}, "spec": {"color": "red", "a": 1.0}});
    simulator.store().create(widget).unwrap();
    let list = get(&simulator, "/apis/example.com/v1/widgets").await;
    assert!(list.text().starts_with("{\"apiVersion\":\"example.com/v1\",\"items\":[{\"apiVersion\":\"example.com/v1\",\"kind\":\"Widget\",\"metadata\":{\"creationTimestamp\":"));
    assert!(list.text().contains("\"spec\":{\"a\":1,\"color\":\"red\"}}],\"kind\":\"WidgetList\",\"metadata\":{\"continue\":\"\",\"resourceVersion\":"));
    let red =
        get(&simulator, "/apis/example.com/v2/widgets?fieldSelector=spec.color=red").await.json();
    assert_eq!(
        red["items"][0]["apiVersion"], "example.com/v2",
        "another version of the same object"
    );
    let accept = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json")];
    let table =
        request(&simulator, Method::GET, "/apis/example.com/v1/widgets", &accept, Value::Null)
            .await;
    let table = table.unwrap().json();
    assert_eq!(table["rows"][0]["cells"], json!(["w", "red"]));
    assert_eq!(table["columnDefinitions"][1]["name"], "Color");
}

#[tokio::test]
async fn continue_tokens_have_the_upstreams_form_and_both_forms_are_accepted() {
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
    let simulator = start().await;
    for name in ["a", "b", "c"] {
        create(&simulator, "default", name);
    }
    let page = get(&simulator, "/api/v1/configmaps?limit=1").await.json();
    let token = page["metadata"]["continue"].as_str().unwrap();
    let text = String::from_utf8(BASE64.decode(token).unwrap()).unwrap();
    let rv = revision(&page);
    assert_eq!(
        text,
        format!("{{\"v\":\"meta.k8s.io/v1\",\"rv\":{rv},\"start\":\"/default/a\\u0000\"}}")
    );
    let names = async |path: &str, text: &str| {
        let token = BASE64.encode(text);
        let list = get(&simulator, &format!("{path}continue={token}")).await;
        let items = list.json()["items"].as_array().cloned();
        let Some(items) = items else { return list.message() };
        let names = items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned());
        names.collect::<Vec<_>>().join(" ")
    };
    let cluster = "/api/v1/configmaps?";
    let etcd = text.replace("\"/default", "\"default");
    assert_eq!(names(cluster, &etcd).await, "b c");
    // At resourceVersion 0 the limit is ignored.
    assert_eq!(names("/api/v1/configmaps?resourceVersion=0&limit=1&", &text).await, "b c");
    assert_eq!(names("/api/v1/configmaps?limit=1&", &text).await, "b");
    let narrowed = "/api/v1/configmaps?fieldSelector=metadata.namespace%3Ddefault&";
    assert_eq!(names(narrowed, &text.replace("/default/", "/")).await, "b c");
    let bad = |why: &str| format!("invalid continue token: continue key is not valid: {why}");
    assert_eq!(names(cluster, &text.replace("/default/a", "/../x")).await, bad("/../x\0"));
    assert_eq!(
        names(cluster, &text.replace("meta.k8s.io", "m")).await,
        bad("server does not recognize this encoded version m/v1")
    );
    assert_eq!(
        names("/api/v1/configmaps?resourceVersion=5&", &text).await,
        "specifying resource version is not allowed when using continue"
    );
    let events = "/api/v1/events?limit=1&resourceVersion=0";
    for name in ["x", "y"] {
        let event = json!({"apiVersion": "v1", "kind": "Event", "reason": "R",
            "metadata": {"name": name, "namespace": "default"}, "involvedObject": {}});
        simulator.store().create(event).unwrap();
    }
    let page = get(&simulator, events).await.json();
    let token = BASE64.decode(page["metadata"]["continue"].as_str().unwrap()).unwrap();
    assert!(String::from_utf8(token).unwrap().ends_with("\"start\":\"default/x\\u0000\"}"));
}

#[tokio::test]
async fn a_list_of_one_object_by_name_is_not_exact() {
    let simulator = start().await;
    let rv = create(&simulator, "default", "a");
    simulator.store().delete("v1", "configmaps", "default", "a").unwrap();
    let by_name = format!("{MAPS}?fieldSelector=metadata.name%3Da&resourceVersion={rv}");
    let count = async |query: &str| {
        let list = get(&simulator, &format!("{by_name}{query}")).await.json();
        (list["items"].as_array().unwrap().len(), revision(&list))
    };
    assert_eq!(count("&limit=1").await, (0, rv + 1));
    assert_eq!(count("&resourceVersionMatch=Exact").await, (1, rv));
    let future = format!("{MAPS}?fieldSelector=metadata.name%3Da&resourceVersion=99999&limit=1");
    let future = get(&simulator, &future).await;
    assert_eq!((future.code.as_u16(), future.headers.get("retry-after")), (504, None));
    let many = get(&simulator, &format!("{MAPS}?resourceVersion={rv}&limit=1")).await.json();
    assert_eq!((many["items"].as_array().unwrap().len(), revision(&many)), (1, rv));
}

#[tokio::test]
async fn errors_of_options_accumulate_in_order() {
    let simulator = start().await;
    let cases = [
        (
            "resourceVersionMatch=Foo&continue=x",
            "[resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided, resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided, resourceVersionMatch: Unsupported value: \"Foo\": supported values: \"Exact\", \"NotOlderThan\", \"\"]",
        ),
        (
            "watch=1&sendInitialEvents=false",
            "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ),
        (
            "watch=1&resourceVersion=1&resourceVersionMatch=Exact&continue=x",
            "[resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided, resourceVersionMatch: Unsupported value: \"Exact\": supported values: \"NotOlderThan\", resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided]",
        ),
    ];
    for (query, body) in cases {
        let answer = get(&simulator, &format!("{MAPS}?{query}")).await;
        let message = format!("ListOptions.meta.k8s.io \"\" is invalid: {body}");
        assert_eq!((answer.code.as_u16(), answer.message()), (422, message), "{query}");
    }
}
