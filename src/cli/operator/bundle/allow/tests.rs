//! No text that a test plants in a file is left afterwards; the listed fields stay.

use proptest::prelude::*;

use super::*;

/// Returns a file of a bundle, and the manifest.
fn taken(file: &str, content: &str) -> (String, String) {
    let mut allowed = Allowed::new(Some(b"key"));
    (allowed.take(file, content), allowed.manifest())
}

fn document(value: &Value) -> Value {
    serde_json::from_str(&taken("a.json", &value.to_string()).0).unwrap()
}

/// A name of a field: on a list, on none, or a secret itself.
fn field() -> impl Strategy<Value = String> {
    let listed = [FIELDS, REPLACED, MAPS, SETTINGS, SENTENCES, "server cache unknown items"];
    let listed: Vec<_> = listed.iter().flat_map(|list| list.split_whitespace()).collect();
    prop_oneof![
        8 => prop::sample::select(listed).prop_map(str::to_owned),
        1 => "unknown[A-Z][a-z]{3}",
        1 => secret(),
    ]
}

/// A text that no list lets pass: an address of a user, a part of an object, or a token.
fn secret() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{3}~secret@[a-z.]{1,9}",
        r#"\{"data": "~secret[a-z]{0,90}"\}"#,
        "ey[a-zA-Z0-9_.-]{30}-secret-[a-zA-Z0-9_.-]{30}",
    ]
}

fn any_document() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        4 => secret().prop_map(Value::from),
        1 => any::<u32>().prop_map(Value::from),
        1 => any::<bool>().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 60, 6, |inner| {
        prop_oneof![
            1 => prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            4 => prop::collection::vec((field(), inner), 0..6)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn no_secret_is_left_wherever_it_stands(
        document in any_document(),
        (name, label, value) in (field(), field(), secret()),
    ) {
        let json = document.to_string();
        let escaped = value.replace('"', "\\\"");
        let texts = format!(
            "weir_a{{{label}=\"{escaped}\",user=\"{escaped}\"}} 1\n{value} 2\n# HELP {value}\n{name}={value}\n[+]{name} ok: {value}\n[-]ping failed: {value}\n[-]ping {value}\n{value}\n"
        );
        for (file, content) in
            [("a.json", &json), ("a.json", &value), ("a.jsonl", &json), ("a.jsonl", &value), ("a.txt", &texts)]
        {
            let (taken, manifest) = taken(file, content);
            prop_assert!(!taken.contains("secret"), "{file}: {taken}");
            prop_assert!(!manifest.contains("secret"), "{file}: {manifest}");
        }
    }

    /// Nothing of an unknown field is left but its name, in any place and with any content.
    #[test]
    fn an_unknown_field_is_left_out_and_named(
        content in any_document(),
        above in prop::sample::select(vec!["", "items", "verdict", "configuration", "parts"]),
    ) {
        let with = |fields: Value| match above {
            "" => fields,
            above => json!({ above: [fields] }),
        };
        let unknown = with(json!({ "unknownField": content }));
        let (taken, manifest) = taken("a.json", &unknown.to_string());
        prop_assert_eq!(serde_json::from_str::<Value>(&taken).unwrap(), with(json!({})));
        prop_assert_eq!(manifest, format!("{:#}\n", json!({ "leftOut": ["a.json: unknownField"] })));
    }
}

/// Names that have the form of words are replaced wherever a field of names has them.
#[test]
fn no_planted_name_is_left_in_any_file() {
    let findings = json!({"instance": "weir-7f9c-planted", "items": [{
        "rule": "poll-list", "user": "planted", "userAgent": "planted/1",
        "client": "planted, planted/1", "resource": "pods",
        "evidence": "planted lists pods in planted", "upstreamCores": 0.5}]});
    let configuration = json!({"configuration": {
        "server": {"listeners": [{"listen": "https://planted:6440",
            "certificate": {"privateKeyFile": "/etc/planted/tls.key"}}],
            "allowedHosts": ["planted"], "shutdownDelay": "5s"},
        "upstream": {"kubeconfig": "/home/planted/.kube/config"},
        "flowControl": {"mode": "observe", "rules": [{"name": "planted", "match": [{"subjects": [
            {"kind": "User", "user": {"name": "planted"}}]}]}]}}});
    let lines = [
        json!({"timestamp": "2026-11-28T19:08:53.626072Z", "level": "WARN",
            "target": "weir::auth", "user": "planted", "reason": "planted is unknown",
            "message": "planted may not read /api/v1/namespaces/planted/secrets/planted"}),
        json!({"level": "ERROR", "error": "GET https://planted:443 failed"}),
    ];
    let lines = lines.map(|line| format!("{line}\n")).concat() + "no JSON by planted\n";
    let metrics = "# HELP weir_x of planted\nweir_caches{namespace=\"planted\",resource=\"pods\"} 1\nplanted_total 1\nweir_b 2.5\n";
    let checks = "[-]upstream failed: planted: no route\n[+]ping ok\nkubeconfig=/root/planted/kc\n";
    let mut allowed = Allowed::new(Some(b"key"));
    let mut all = String::new();
    for (file, content) in [
        ("findings.json", findings.to_string()),
        ("configz.json", configuration.to_string()),
        ("log-lines.jsonl", lines),
        ("metrics.txt", metrics.to_owned()),
        ("readyz.txt", checks.to_owned()),
    ] {
        assert!(content.contains("planted"));
        let taken = allowed.take(file, &content);
        assert!(!taken.contains("planted"), "{file}: {taken}");
        all.push_str(&taken);
    }
    for part in [
        "\"rule\": \"poll-list\"",
        "\"resource\": \"pods\"",
        "\"upstreamCores\": 0.5",
        "\"shutdownDelay\": \"5s\"",
        "\"mode\": \"observe\"",
        "\"kind\": \"User\"",
        "\"target\":\"weir::auth\"",
        "\"timestamp\":\"2026-11-28T19:08:53.626072Z\"",
        "resource=\"pods\"} 1\n",
        "weir_b{} 2.5\n",
        "upstream failed\nping ok\nkubeconfig=word-",
    ] {
        assert!(all.contains(part), "{part}: {all}");
    }
    assert!(!allowed.manifest().contains("planted_total") || !all.contains("planted"));
}

#[test]
fn a_text_has_one_word_in_all_files_and_bundles_of_one_key() {
    let costs = json!({"users": [{"user": "jane", "share": 0.5}, {"user": "joe"}, {"user": ""},
        {"user": "kube-system"}]});
    let (text, line) =
        (document(&costs), taken("a.jsonl", "{\"user\":\"jane\",\"level\":\"jane\"}").0);
    let word = text["users"][0]["user"].as_str().unwrap();
    assert!(word.starts_with("word-") && word.len() == "word-".len() + 8, "{word}");
    assert_ne!(text["users"][1]["user"], word);
    let same = [&text["users"][0]["share"], &text["users"][2]["user"], &text["users"][3]["user"]];
    assert_eq!(same, [&json!(0.5), &json!(""), &json!("kube-system")]);
    assert!(line.contains(&format!("\"user\":\"{word}\"")), "{line}");
    assert!(line.contains("\"level\":\"jane\""), "a word of Weir's stays: {line}");
    assert_eq!(document(&costs), text);
    let other = Allowed::new(Some(b"another key")).take("a.json", &costs.to_string());
    assert!(!other.contains(word), "{other}");
    let mut with_names = Allowed::new(None);
    let kept =
        with_names.take("a.json", &json!({"user": "jane", "title": "a b", "x": 1}).to_string());
    assert_eq!(
        serde_json::from_str::<Value>(&kept).unwrap(),
        json!({"user": "jane", "title": "a b"})
    );
}

#[test]
fn a_name_and_its_cut_form_have_one_word() {
    let long = format!("robot-{}", "é".repeat(100));
    let cut = format!("{}…", long.get(..long.floor_char_boundary(117)).unwrap());
    let names = document(&json!({"items": [{"user": long}, {"user": cut}]}));
    assert_eq!(names["items"][0], names["items"][1]);
}
