//! The commands that ask a running Weir: exit codes, what they print, and what they survive. The
//! Weir is a listener with fixed answers.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use flate2::read::GzDecoder;

use crate::{command, stderr, weir, write};

/// Serves answers by their paths without queries. It ends each connection after `per_connection`
/// responses, as an admin listener does that has few connections left.
fn admin(per_connection: usize, answers: &[(&str, &str, &str)]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let answers: HashMap<_, _> = answers
        .iter()
        .map(|(path, status, body)| {
            ((*path).to_owned(), ((*status).to_owned(), (*body).to_owned()))
        })
        .collect();
    let answers = Arc::new(answers);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            for count in 1..=per_connection {
                let mut head = Vec::new();
                loop {
                    let mut line = String::new();
                    if reader.read_line(&mut line).unwrap_or(0) == 0 || line == "\r\n" {
                        break;
                    }
                    head.push(line);
                }
                let Some(target) = head.first().and_then(|line| line.split(' ').nth(1)) else {
                    break;
                };
                let path = target.split('?').next().unwrap();
                let missing = ("404 Not Found".to_owned(), "off\n".to_owned());
                let (status, body) = answers.get(path).unwrap_or(&missing);
                let close = if count == per_connection { "Connection: close\r\n" } else { "" };
                let length = body.len();
                let response =
                    format!("HTTP/1.1 {status}\r\n{close}Content-Length: {length}\r\n\r\n{body}");
                if stream.write_all(response.as_bytes()).is_err() {
                    break;
                }
            }
        }
    });
    url
}

fn findings(instance: &str, items: &[(&str, &str, f64)]) -> String {
    let items: Vec<_> = items
        .iter()
        .map(|(rule, weight, cores)| {
            serde_json::json!({"rule": rule, "weight": weight, "user": "jane", "userAgent": "x/1",
                "client": "jane, x/1", "resource": "pods", "upstreamCores": cores,
                "cpuCores": 0.0, "bytesPerSecond": 0.0, "cost": "?"})
        })
        .collect();
    serde_json::json!({"kind": "FindingList", "instance": instance, "items": items}).to_string()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_doctor_ends_with_3_for_a_warning_and_with_0_for_hints() {
    let answer = findings("a", &[("poll-list", "warning", 0.1), ("json", "info", 0.2)]);
    let url = admin(1, &[("/api/findings", "200 OK", &answer)]);
    let findings = weir(&["doctor", "--admin", &url]);
    assert_eq!(findings.status.code(), Some(3), "{}", stderr(&findings));
    assert_eq!(weir(&["doctor", "--rule", "json", "--admin", &url]).status.code(), Some(0));
    assert_eq!(weir(&["doctor", "--rule", "poll-lists", "--admin", &url]).status.code(), Some(2));
    // The code is about all, also those that are not printed.
    let cut = weir(&["doctor", "--limit", "0", "--admin", &url]);
    assert_eq!(cut.status.code(), Some(3));
    assert!(stdout(&cut).contains("... and 2 more; see --limit"), "{}", stdout(&cut));
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    for command in ["doctor", "top"] {
        let output = weir(&[command, "--admin", &nobody]);
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains("nothing listens at"), "{}", stderr(&output));
    }
}

#[test]
fn a_weir_that_counts_no_clients_says_what_to_set() {
    let url = admin(1, &[("/api/overview", "200 OK", "{}")]);
    let output = weir(&["doctor", "--admin", &url]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("set flowControl.mode: observe"), "{}", stderr(&output));
    let hidden = admin(1, &[]);
    let output = weir(&["doctor", "--admin", &hidden]);
    assert!(stderr(&output).contains("set admin.detail: local"), "{}", stderr(&output));
}

#[test]
fn each_replica_is_shown_and_those_that_do_not_answer_are_named() {
    let one = findings("weir-0", &[("poll-list", "info", 0.01)]);
    let two = findings("weir-1", &[("poll-list", "warning", 0.03)]);
    let one = admin(9, &[("/api/findings", "200 OK", &one)]);
    let two = admin(9, &[("/api/findings", "200 OK", &two)]);
    let both = weir(&["doctor", "--admin", &one, "--admin", &two]);
    assert_eq!(both.status.code(), Some(3), "{}", stderr(&both));
    let text = stdout(&both);
    let headings = text.lines().filter(|line| line.starts_with("== "));
    let expected = [format!("== weir-0 ({one})"), format!("== weir-1 ({two})")];
    assert_eq!(headings.collect::<Vec<_>>(), expected);
    // Whether a replica that does not answer has a finding is unknown.
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let part = weir(&["doctor", "--admin", &gone, "--admin", &one]);
    assert_eq!(part.status.code(), Some(1), "{}", stdout(&part));
    assert!(stdout(&part).contains("[poll-list]"), "{}", stdout(&part));
    let errors = stderr(&part);
    assert!(errors.contains("nothing listens at"), "{errors}");
    assert!(errors.contains("1 of 2 replicas did not answer"), "{errors}");
    let json = stdout(&weir(&["doctor", "-o", "json", "--admin", &one, "--admin", &two]));
    let documents = serde_json::Deserializer::from_str(&json).into_iter::<serde_json::Value>();
    let instances: Vec<_> =
        documents.map(|document| document.unwrap()["instance"].clone()).collect();
    assert_eq!(instances, ["weir-0", "weir-1"]);
}

#[test]
fn top_shows_what_it_gets_over_connections_that_end() {
    let items = r#"{"instance": "a", "items": [{"name": "watches", "used": 5}]}"#;
    let pages = [("/api/overview", "{}"), ("/api/caches", items), ("/api/reasons", items)];
    let url = admin(1, &pages.map(|(path, body)| (path, "200 OK", body)));
    let top = weir(&["top", "--admin", &url]);
    assert_eq!(top.status.code(), Some(0), "{}", stderr(&top));
    assert!(stdout(&top).contains("flowControl.mode: observe"), "{}", stdout(&top));
    let hidden = weir(&["top", "--admin", &admin(1, &[])]);
    assert_eq!(hidden.status.code(), Some(1), "{}", stdout(&hidden));
    assert!(stderr(&hidden).contains("set admin.detail: local"), "{}", stderr(&hidden));
}

#[test]
fn a_bundle_has_what_it_gets_and_names_nobody() {
    let findings = findings("weir-abc12", &[("poll-list", "warning", 0.1)]);
    let lines = "{\"level\":\"WARN\",\"message\":\"jane may not read /api/v1/namespaces/blue/secrets/db-password\"}\n";
    let metrics = "weir_caches{namespace=\"blue\"} 1\n";
    let url = admin(
        2,
        &[
            ("/api/findings", "200 OK", &findings),
            ("/debug/log/lines", "200 OK", lines),
            ("/metrics", "200 OK", metrics),
            ("/readyz", "500 Internal Server Error", "[-]upstream failed: 10.1.2.3:6443\n"),
            ("/configz", "200 OK", "{\"listen\": \"http://10.9.9.9:80\", \"unknownField\": 1}"),
        ],
    );
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bundle.tar.gz");
    let output = path.to_str().unwrap();
    let args = ["support", "--interval=0", "--key=k", "--admin", &url, "--output", output];
    let bundle = weir(&args);
    assert_eq!(bundle.status.code(), Some(0), "{}", stderr(&bundle));
    let listing = stdout(&bundle);
    for file in ["metrics.txt", "metrics-later.txt", "readyz.txt", "caches.json.missing"] {
        assert!(listing.contains(&format!("weir/{file}\n")), "{listing}");
    }
    let mut archive = Vec::new();
    let file = std::fs::File::open(&path).unwrap();
    std::io::copy(&mut GzDecoder::new(file), &mut archive).unwrap();
    let text = String::from_utf8_lossy(&archive).into_owned();
    for name in ["jane", "x/1", "blue", "db-password", "10.1.2.3", "10.9.9.9", "weir-abc12"] {
        assert!(!text.contains(name), "{name}:\n{text}");
    }
    assert!(text.contains("{\"level\":\"WARN\",\"message\":\"word-"), "{text}");
    assert!(text.contains("upstream failed\n"), "{text}");
    assert!(text.contains("\"leftOut\": [\n    \"configz.json: unknownField\"\n  ]"), "{text}");
    // It replaces no file.
    let again = weir(&args);
    assert_eq!(again.status.code(), Some(1));
    assert!(stderr(&again).contains("exists already"), "{}", stderr(&again));
}

#[test]
fn a_live_check_ends_with_1_if_something_is_wrong() {
    let good = "weir_upstream_info{version=\"v1.36.0\"} 1\nweir_upstream_clock_skew_seconds 0\nweir_config_last_reload_successful 1\n";
    let ready = "[+]ping ok\nreadyz check passed\n";
    let url = admin(1, &[("/readyz", "200 OK", ready), ("/metrics", "200 OK", good)]);
    let checked = weir(&["check", "--live", "--admin", &url]);
    assert_eq!(checked.status.code(), Some(0), "{}{}", stdout(&checked), stderr(&checked));
    // A configuration has the address, too.
    let dir = tempfile::tempdir().unwrap();
    let listen = url.trim_start_matches("http://");
    let text = format!(
        "apiVersion: weir.dev/v1alpha1\nkind: WeirConfiguration\nadmin: {{ listen: \"{listen}\" }}\n"
    );
    let file = write(&dir, "weir.yaml", &text);
    assert_eq!(weir(&["check", "--live", &file]).status.code(), Some(0));
    assert_eq!(weir(&["check", "--probe=readyz", &file]).status.code(), Some(0));
    assert_eq!(weir(&["check", "--live", "--probe=livez", &file]).status.code(), Some(1));
    let failing = "[-]upstream failed: no route\nreadyz check failed\n";
    let url = admin(
        1,
        &[("/readyz", "500 Internal Server Error", failing), ("/metrics", "200 OK", good)],
    );
    let checked = weir(&["check", "--live", "--admin", &url]);
    assert_eq!(checked.status.code(), Some(1));
    assert!(stdout(&checked).contains("WRONG  health: upstream: no route"), "{}", stdout(&checked));
    assert!(stdout(&checked).contains("docs/runbooks/WeirUpstreamUnreachable.md"));
    let probed = weir(&["check", "--probe", "readyz", "--admin", &url]);
    assert_eq!(probed.status.code(), Some(1));
    assert!(stderr(&probed).contains("/readyz: upstream: no route"), "{}", stderr(&probed));
}

#[test]
fn help_fits_100_columns() {
    let commands = [
        "",
        "serve",
        "shadow",
        "demo",
        "top",
        "doctor",
        "support-bundle",
        "check",
        "completions",
        "man",
        "schema",
        "version",
    ];
    for name in commands {
        for flag in ["-h", "--help"] {
            let words: Vec<_> = [name, flag].into_iter().filter(|word| !word.is_empty()).collect();
            // A terminal that is wider changes nothing.
            let output = command(&words).env("COLUMNS", "300").output().unwrap();
            assert_eq!(output.status.code(), Some(0), "{words:?}");
            let text = stdout(&output);
            let long = text.lines().filter(|line| line.chars().count() > 100);
            assert_eq!(long.collect::<Vec<_>>(), Vec::<&str>::new(), "{words:?}");
        }
    }
}

#[test]
fn it_is_a_plugin_of_kubectl() {
    let dir = tempfile::tempdir().unwrap();
    let plugin = dir.path().join("kubectl-weir");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_weir"), &plugin).unwrap();
    let direct = Command::new(&plugin).arg("doctor").arg("-h").output();
    let help = stdout(&direct.unwrap());
    assert!(help.contains("Usage: kubectl weir doctor [OPTIONS]"), "{help}");

    let assets = std::env::var("KUBEBUILDER_ASSETS");
    let assets = assets.unwrap_or_else(|_| "/usr/local/kubebuilder/bin".to_owned());
    let kubectl = Path::new(&assets).join("kubectl");
    if !kubectl.exists() {
        eprintln!("skipped: weir by the real kubectl ({} is missing)", kubectl.display());
        return;
    }
    let path = format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap());
    let run =
        |args: &[&str]| Command::new(&kubectl).args(args).env("PATH", &path).output().unwrap();
    assert!(stdout(&run(&["weir", "version"])).starts_with("weir "));
    let help = stdout(&run(&["weir", "top", "-h"]));
    assert!(help.contains("Usage: kubectl weir top [OPTIONS]"), "{help}");
}
