//! Names that are planted in each kind of file are in none afterwards; all else stays.

use serde_json::{Value, json};

use super::*;

/// Redacts files as a bundle does: all are collected first.
fn redacted(files: &[(Format, String)]) -> Vec<String> {
    let mut redactor = Redactor::new(b"key");
    for (format, text) in files {
        redactor.collect(*format, text);
    }
    let replacer = redactor.replacer();
    files.iter().map(|(format, text)| redactor.redact(&replacer, *format, text)).collect()
}

fn document(value: Value) -> (Format, String) {
    (Format::Json, value.to_string())
}

const PLANTED: [&str; 31] = [
    "jane",
    "ops@corp",
    "corp.example",
    "billing",
    "weir-7f9c",
    "10.20.30.40",
    "acme-keys",
    "acme.internal",
    "jdoe",
    "acme-prod",
    "mallory",
    "joe",
    "payroll",
    "db-password",
    "10.9.8.7",
    "blue",
    "web-frontend",
    "green",
    "app-token",
    "nnnn",
    "robot-account",
    "fd00::8",
    "lonely-config",
    "tenant-a",
    "10.1.1.1",
    "acme-schema",
    "secret-place",
    "acme-dev",
    "tls.corp.test",
    "audience-x",
    "vault-seal",
];

/// Each of [`PLANTED`] stands somewhere in a file, and in none afterwards.
#[test]
fn no_planted_name_is_left_in_any_file() {
    let long = format!("system:serviceaccount:{}:robot-account", "n".repeat(130));
    let cut = format!("{}…", long.get(..117).unwrap());
    let findings = json!({"instance": "weir-7f9c-x2v", "items": [{
        "rule": "deprecated", "user": "jane@example.com", "userAgent": "tool/1 (ops@corp.example)",
        "client": "jane@example.com, tool/1 (ops@corp.example)", "resource": "pods",
        "evidence": "jane@example.com lists pods in billing"}, {"user": cut, "userAgent": ""}]});
    let configuration = json!({"origins": {"server.listeners": "file"}, "configuration": {
        "server": {"listeners": [{"listen": "https://10.20.30.40:6440",
            "certificate": {"privateKeyFile": "/etc/acme-keys/tls.key"}}],
            "allowedHosts": ["weir.acme.internal"]},
        "certificates": {"generatedNames": ["tls.corp.test"], "audiences": ["https://audience-x"]},
        "audit": {"resources": [{"resourceNames": ["vault-seal"]}]},
        "upstream": {"kubeconfig": "/home/jdoe/.kube/config", "context": "acme-prod",
            "endpoints": {"static": ["https://master-1.acme.internal:6443"]}},
        "tracing": {"endpoint": "http://collector.acme.internal:4317"},
        "flowControl": {"rules": [{"name": "r", "match": [{"subjects": [
            {"kind": "User", "user": {"name": "mallory"}}]}]}]}}});
    let lines = [
        json!({"timestamp": "t", "level": "WARN", "target": "weir::auth", "user": "joe \"x\"",
            "message": "joe \"x\" may not read /api/v1/namespaces/payroll/secrets/db-password"}),
        json!({"level": "ERROR", "error": "GET https://10.9.8.7:443/apis/apps/v1/namespaces/blue/deployments/web-frontend?x=1 failed",
            "keys": "[\"green/app-token: held 5, upstream 7\"]"}),
        json!({"level": "INFO", "message": format!("{long} came from fd00::8.")}),
        json!({"level": "INFO", "message": "fieldSelector=metadata.name%3Dlonely-config"}),
        json!({"level": "INFO", "message": "at app-token in green and lonely-config"}),
    ];
    let lines = lines.map(|line| format!("{line}\n")).concat() + "no JSON by mallory\n";
    let metrics = "# HELP weir_x of mallory\nweir_caches{namespace=\"tenant-a\",resource=\"pods\"} 1\nweir_upstream_server_state{server=\"https://10.1.1.1:6443\",state=\"up\"} 1\nweir_flow{flow_schema=\"acme-schema\"} 2\n";
    let files = [
        document(findings),
        document(configuration),
        (Format::JsonLines, lines),
        (Format::Metrics, metrics.to_owned()),
        (
            Format::Text,
            "\nweir flags\nkubeconfig=/root/secret-place/kc\ncontext=acme-dev\n".to_owned(),
        ),
        (Format::Text, "[-]upstream failed: master-1.acme.internal: no route a=b\n".to_owned()),
        document(json!({"items": [{"resource": "pods", "namespace": "billing"}]})),
        document(json!({"items": [{"subject": "pods in tenant-a", "text": "tenant-a relists"}]})),
    ];
    let text = files.iter().map(|(_, text)| text.as_str()).collect::<String>();
    let redacted = redacted(&files).concat();
    for name in PLANTED {
        assert!(text.contains(name), "{name}");
        // A comment of the metrics is Weir's own text.
        let left = redacted.lines().filter(|line| line.contains(name) && !line.starts_with('#'));
        assert_eq!(left.collect::<Vec<_>>(), Vec::<&str>::new(), "{name}");
    }
}

#[test]
fn a_name_has_one_word_in_all_files_and_bundles_of_one_key() {
    let costs = document(json!({"users": [{"user": "jane", "share": 0.5}],
        "actions": [{"user": "jane", "resource": "pods"}, {"user": "joe"}, {"user": ""}]}));
    let line = (Format::JsonLines, json!({"message": "jane: no", "target": "jane"}).to_string());
    let files = [costs, line];
    let texts = redacted(&files);
    let costs: Value = serde_json::from_str(&texts[0]).unwrap();
    let word = costs["users"][0]["user"].as_str().unwrap();
    assert!(word.starts_with("user-") && word.len() == "user-".len() + 8, "{word}");
    assert_eq!(costs["actions"][0], json!({"user": word, "resource": "pods"}));
    assert_ne!(costs["actions"][1]["user"], word);
    assert_eq!(costs["actions"][2]["user"], "");
    let line = json!({"message": format!("{word}: no"), "target": "jane"});
    assert_eq!(texts[1], format!("{line}\n"), "what Weir itself sets stays");
    assert_eq!(redacted(&files), texts);
    let mut other = Redactor::new(b"another key");
    files.iter().for_each(|(format, text)| other.collect(*format, text));
    assert!(!other.redact(&other.replacer(), files[0].0, &files[0].1).contains(word));
}

#[test]
fn a_name_and_its_cut_form_have_one_word() {
    let long = format!("robot-{}", "é".repeat(100));
    let cut = format!("{}…", long.get(..long.floor_char_boundary(117)).unwrap());
    let files = [
        document(json!({"user": cut})),
        document(json!({"message": format!("{long} and {cut}, too")})),
    ];
    let texts = redacted(&files);
    let user: Value = serde_json::from_str(&texts[0]).unwrap();
    let word = user["user"].as_str().unwrap();
    let message: Value = serde_json::from_str(&texts[1]).unwrap();
    assert_eq!(message["message"], format!("{word} and {word}, too"));
}

#[test]
fn other_words_stay() {
    let files = [
        document(json!({"user": "jane", "userGroups": ["admin"], "namespace": "kube-system"})),
        document(
            json!({"message": "janet and jane_ at 127.0.0.1:6440 and [::]:6441; admin; kube-system",
            "resource": "pods", "count": 5}),
        ),
        (Format::Metrics, "weir_jane{verb=\"list\",user=\"admin\"} 1\n".to_owned()),
    ];
    let texts = redacted(&files);
    let message: Value = serde_json::from_str(&texts[1]).unwrap();
    let text = message["message"].as_str().unwrap();
    assert!(text.starts_with("janet and user-"), "{text}");
    assert!(text.ends_with("_ at 127.0.0.1:6440 and [::]:6441; admin; kube-system"), "{text}");
    assert!(texts[0].contains("\"kube-system\"") && !texts[0].contains("admin"), "{}", texts[0]);
    let metrics = &texts[2];
    assert!(metrics.starts_with("weir_jane{verb=\"list\",user=\"user-"), "{metrics}");
    assert!(metrics.ends_with("\"} 1\n"), "{metrics}");
}

#[test]
fn names_of_digits_are_names() {
    let account = "110169484474386276334";
    let files = [
        document(json!({"items": [
            {"user": account, "namespace": "777123"}, {"user": "1001", "namespace": "8.5"}]})),
        document(json!({"message":
            format!("{account} in 777123 at 127.0.0.1:6440 waits 1001 ms, 8.5 s; 1777123")})),
    ];
    let texts = redacted(&files);
    for name in [account, "\"777123\"", "1001", "8.5"] {
        assert!(!texts[0].contains(name), "{name}: {}", texts[0]);
    }
    let message: Value = serde_json::from_str(&texts[1]).unwrap();
    let text = message["message"].as_str().unwrap();
    assert!(text.starts_with("user-") && text.contains(" in namespace-"), "{text}");
    assert!(text.ends_with(" at 127.0.0.1:6440 waits 1001 ms, 8.5 s; 1777123"), "{text}");
}

#[test]
fn names_in_urls_are_replaced() {
    let files = [
        document(json!({"items": [{"user": "joe@corp.example"}, {"userAgent": "tool/1 (x y)"}]})),
        (Format::Text, "GET /x?labelSelector=owner%3Djoe%40corp.example&limit=5\n".to_owned()),
        (Format::Text, "a=joe%40corp.examples by tool%2f1%20%28x%20y%29z, ".to_owned()),
        (Format::Text, "tool%2F1+%28x+y%29\n".to_owned()),
    ];
    let texts = redacted(&files);
    let rest = texts[1].strip_prefix("GET /x?labelSelector=owner%3Duser-").unwrap();
    assert!(rest.ends_with("&limit=5\n") && !rest.contains("joe"), "{rest}");
    assert!(texts[2].starts_with("a=joe%40corp.examples by agent-"), "a longer name: {}", texts[2]);
    assert!(!texts[2].contains("tool") && !texts[3].contains("tool"), "{}{}", texts[2], texts[3]);
}

#[test]
fn words_of_kubernetes_stay_in_their_fields() {
    let caches = json!({"items": [{"namespace": "batch", "group": "batch", "state": "watching",
        "reason": "batch"}, {"user": "watching", "subjects": [{"group": {"name": "batch"}}]}]});
    let files = [
        document(caches),
        (Format::JsonLines, json!({"group": "batch", "reason": "no batch here"}).to_string()),
        (Format::Metrics, "a{namespace=\"batch\",group=\"batch\",reason=\"batch\"} 1\n".to_owned()),
    ];
    let texts = redacted(&files);
    let caches: Value = serde_json::from_str(&texts[0]).unwrap();
    let [cache, user] = [&caches["items"][0], &caches["items"][1]];
    assert_eq!((&cache["group"], &cache["state"]), (&json!("batch"), &json!("watching")));
    assert_eq!(cache["reason"], "batch");
    assert_ne!(cache["namespace"], "batch");
    assert_ne!(user["user"], "watching");
    assert_ne!(user["subjects"][0]["group"]["name"], "batch", "a group of users is a name");
    let line: Value = serde_json::from_str(&texts[1]).unwrap();
    assert_eq!(line["group"], "batch");
    assert!(!line["reason"].as_str().unwrap().contains("batch"), "{line}");
    let metrics = &texts[2];
    assert!(metrics.ends_with("\",group=\"batch\",reason=\"batch\"} 1\n"), "{metrics}");
    assert!(!metrics.starts_with("a{namespace=\"batch\""), "{metrics}");
}
