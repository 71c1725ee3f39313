//! `weir demo` as a newcomer runs it: the printed steps work, and no file is left afterwards.

#![expect(clippy::unwrap_used, reason = "a test that fails says so by a panic")]
#![expect(clippy::disallowed_methods, reason = "waits for processes, whose clock is the system's")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

use parking_lot::Mutex;

/// A demo takes the usual port of the admin listener if that is free, so that one runs at a time.
static ONE_DEMO: Mutex<()> = Mutex::new(());

#[test]
fn the_addresses_and_files_that_the_demo_prints_work() {
    let _alone = ONE_DEMO.lock();
    let size = ["--nodes=2", "--pods=10", "--churn=20"];
    let listeners = ["--listen=https://127.0.0.1:0", "--listen=http://127.0.0.1:0"];
    // The figures follow the tour as soon as Weir serves.
    let (mut demo, mut screen, tour) = start(&[&size[..], &listeners].concat(), "clients: ");
    let word = |start: &str| {
        let words = tour.split_whitespace().map(|word| word.trim_matches('\''));
        words.filter(|word| word.starts_with(start)).map(str::to_owned).collect::<Vec<_>>()
    };
    let kubeconfig = word("/").into_iter().find(|path| path.ends_with("/kubeconfig")).unwrap();
    assert!(std::fs::read_to_string(&kubeconfig).unwrap().contains("server: https://127.0.0.1:"));
    let urls = word("http://127.0.0.1:");
    let url = |part: &str| {
        urls.iter().find(|url| url.contains(part)).unwrap_or_else(|| panic!("{part}: {tour}"))
    };

    let nodes = get(url("/api/v1/nodes"));
    assert!(nodes.contains("x-weir-cache: hit"), "{nodes}");
    assert_eq!(nodes.matches("\"resourceVersion\"").count(), 3, "a list of two nodes: {nodes}");
    let mut watch = open(url("watch=1"));
    let mut line = String::new();
    while !line.contains("\"MODIFIED\"") {
        line.clear();
        assert!(watch.read_line(&mut line).unwrap() > 0, "the watch ended");
    }
    assert!(get(url("/readyz")).contains("readyz check passed"));
    // The metrics behind the figures.
    let metrics = get(url("/metrics"));
    for part in
        ["weir_watchers{", "weir_watch_events_total{", "weir_requests_total{cache_status=\"hit\""]
    {
        assert!(metrics.contains(part), "{part}: {metrics}");
    }

    // The page, and what its data say of the demo's own clients.
    assert!(tour.starts_with("Open http://127.0.0.1:"), "{tour}");
    let page = tour.split_whitespace().nth(1).unwrap().trim_end_matches('/').to_owned();
    assert!(get(&format!("{page}/page.js")).contains("text/javascript"));
    let weir = |args: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(args)
            .args(["--admin", &page])
            .output()
            .unwrap()
    };
    check_top(&weir);
    let doctor = habit_of_the_script(&weir, &mut screen);
    assert!(!doctor.contains("demo-"), "{doctor}");

    check_support_bundle(&weir);

    // A kubelet reads its node from the cache each ten seconds.
    let hit = |metrics: &str| {
        let gets = metrics.lines().filter(|line| {
            line.starts_with("weir_requests_total{cache_status=\"hit\"")
                && line.contains("verb=\"get\"")
        });
        gets.count() > 0
    };
    let metrics_url = url("/metrics").clone();
    while !hit(&get(&metrics_url)) {
        let mut line = String::new();
        assert!(screen.read_line(&mut line).unwrap() > 0, "it ended");
    }

    interrupt(&demo);
    let mut rest = String::new();
    screen.read_to_string(&mut rest).unwrap();
    assert!(rest.ends_with("\nstopping\n"), "{rest}");
    assert_eq!(demo.wait().unwrap().code(), Some(0));
    assert!(!Path::new(&kubeconfig).parent().unwrap().exists());
}

#[test]
fn a_demo_with_tls_alone_says_why_it_starts_no_clients() {
    let _alone = ONE_DEMO.lock();
    let args = ["--nodes=1", "--pods=1", "--listen=https://127.0.0.1:0"];
    // The screen stays open, since the demo writes to it until it ends.
    let (mut demo, _screen, tour) = start(&args, "Ctrl-C ends");
    assert!(
        tour.contains("starts no clients of its own: they need a listener without TLS"),
        "{tour}"
    );
    interrupt(&demo);
    assert_eq!(demo.wait().unwrap().code(), Some(0));
}

/// Starts a demo, and reads its screen until a line has the text `until`. Returns the rest of the
/// screen, and what was read.
fn start(args: &[&str], until: &str) -> (Child, BufReader<ChildStdout>, String) {
    let mut demo = Command::new(env!("CARGO_BIN_EXE_weir"))
        .arg("demo")
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut screen = BufReader::new(demo.stdout.take().unwrap());
    let mut tour = String::new();
    while !tour.contains(until) {
        assert!(screen.read_line(&mut tour).unwrap() > 0, "it ended: {tour}");
    }
    (demo, screen, tour)
}

/// Presses Ctrl-C.
fn interrupt(demo: &Child) {
    let pid = demo.id().to_string();
    assert!(Command::new("kill").args(["-s", "INT", &pid]).status().unwrap().success());
}

/// Waits until `weir top` shows the demo's kubelets.
fn check_top(weir: &dyn Fn(&[&str]) -> Output) {
    let mut text = String::new();
    let shows_kubelets = |text: &str| text.contains("leases") && text.contains("demo-kubelet/1.0");
    for _ in 0..60 {
        let top = weir(&["top"]);
        text = String::from_utf8_lossy(&top.stdout).into_owned();
        assert_eq!(top.status.code(), Some(0), "{text}");
        if shows_kubelets(&text) {
            break;
        }
        std::thread::sleep(Duration::from_millis(250));
    }
    assert!(shows_kubelets(&text), "{text}");
    let json = weir(&["top", "caches", "-o", "json"]).stdout;
    assert!(String::from_utf8_lossy(&json).contains("\"kind\": \"CacheList\""));
}

/// Returns what `weir doctor` says once it has found the script that polls.
fn habit_of_the_script(weir: &dyn Fn(&[&str]) -> Output, screen: &mut dyn BufRead) -> String {
    // The script lists each second, and its tenth list makes a habit. The next figures come after
    // ten seconds.
    let mut doctor = String::new();
    for _ in 0..12 {
        let mut line = String::new();
        assert!(screen.read_line(&mut line).unwrap() > 0, "it ended");
        let output = weir(&["doctor", "--rule", "poll-list"]);
        doctor = String::from_utf8_lossy(&output.stdout).into_owned();
        if doctor.contains("SharedInformer") {
            break;
        }
    }
    assert!(doctor.contains("SharedInformer"), "{doctor}");
    doctor
}

/// Checks what `weir support-bundle` writes. `weir` runs a command against the demo.
fn check_support_bundle(weir: &dyn Fn(&[&str]) -> Output) {
    let directory = tempfile::tempdir().unwrap();
    let archive = directory.path().join("bundle.tar.gz");
    let output = archive.to_str().unwrap();
    let bundle = weir(&["support-bundle", "--interval", "0", "--output", output]);
    let listing = String::from_utf8_lossy(&bundle.stdout).into_owned();
    assert_eq!(bundle.status.code(), Some(0), "{}", String::from_utf8_lossy(&bundle.stderr));
    for file in [
        "configz.json",
        "metrics.txt",
        "metrics-later.txt",
        "findings.json",
        "flagz.txt",
        "log-lines.jsonl",
    ] {
        assert!(listing.contains(&format!("weir/{file}\n")), "{listing}");
    }
    assert!(std::fs::metadata(&archive).unwrap().len() > 1000);
    // The lists of a bundle have all fields of Weir.
    let manifest = Command::new("tar").args(["-xzOf", output, "weir/manifest.json"]).output();
    let manifest = String::from_utf8(manifest.unwrap().stdout).unwrap();
    assert!(manifest.contains("\"leftOut\": []"), "{manifest}");
}

fn get(url: &str) -> String {
    let mut answer = String::new();
    open(url).read_to_string(&mut answer).unwrap();
    answer
}

fn open(url: &str) -> BufReader<TcpStream> {
    let (host, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    let request = format!("GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    BufReader::new(stream)
}
