//! The binary as its users run it: results, messages, exit codes, failed starts and the end.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that fails says so by a panic")]

#[path = "cli/check.rs"]
mod check;
#[path = "support/log_lines.rs"]
mod log_lines;
#[path = "cli/operator.rs"]
mod operator;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use weir::simulator::{Simulator, SimulatorOptions, User};

use crate::log_lines::Log;

#[test]
fn completions_are_scripts_of_their_shells() {
    for shell in ["bash", "zsh", "fish"] {
        let output = weir(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(script.contains("write-kubeconfig"), "{shell}");
        let dir = tempfile::tempdir().unwrap();
        let file = write(&dir, "script", &script);
        match Command::new(shell).args(["-n", &file]).output() {
            Ok(output) => assert!(output.status.success(), "{shell}: {}", stderr(&output)),
            Err(error) => eprintln!("skipped: the completions of {shell} ({error})"),
        }
    }
    assert_eq!(weir(&["completions", "tcsh"]).status.code(), Some(2));
}

#[test]
fn manual_pages_are_written_for_each_command() {
    let dir = tempfile::tempdir().unwrap();
    let pages = dir.path().join("man");
    assert_eq!(weir(&["man", pages.to_str().unwrap()]).status.code(), Some(0));
    for name in ["weir.1", "weir-serve.1", "weir-check.1", "weir-demo.1", "weir.yaml.5"] {
        let page = pages.join(name);
        assert!(std::fs::read_to_string(&page).unwrap().contains(".SH"), "{name}");
        match Command::new("mandoc").arg("-Tlint").arg("-Werror").arg(&page).output() {
            Ok(output) => assert!(output.status.success(), "{name}: {output:?}"),
            Err(error) => eprintln!("skipped: the lint of {name} ({error})"),
        }
    }
    assert_eq!(weir(&["man", "/proc/none"]).status.code(), Some(1));
}

#[test]
fn the_schema_describes_the_configuration() {
    let output = weir(&["schema"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let schema: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(schema["$schema"], "http://json-schema.org/draft-07/schema#");
    let cache = &schema["properties"]["cache"]["properties"];
    assert_eq!(cache["warm"]["items"]["type"], "string");
}

#[test]
fn a_closed_standard_output_is_not_a_failure() {
    let mut child = command(&["check", "config/weir.yaml"]).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_start_without_credentials_fails_and_names_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let garbage = write(&dir, "garbage", "a: [\n");
    let no_context = write(&dir, "empty", "apiVersion: v1\nkind: Config\n");
    for kubeconfig in ["/nonexistent/kubeconfig", &garbage, &no_context] {
        let output = weir(&["serve", "--kubeconfig", kubeconfig, "--listen=https://127.0.0.1:0"]);
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{kubeconfig}: {message}");
        assert!(message.lines().any(|line| line.starts_with("weir: ")), "{kubeconfig}: {message}");
        assert!(message.contains(kubeconfig), "{message}");
    }
}

#[test]
fn a_port_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let upstream = write(&dir, "kubeconfig", &kubeconfig("http://127.0.0.1:1"));
    for flags in [
        [format!("--listen=http://{address}"), "--admin-listen=none".to_owned()],
        ["--listen=http://127.0.0.1:0".to_owned(), format!("--admin-listen={address}")],
    ] {
        let output = weir(&["serve", "--kubeconfig", &upstream, &flags[0], &flags[1]]);
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert!(message.contains(&format!("cannot listen on {address}")), "{message}");
    }
}

#[test]
fn weir_starts_without_its_upstream_and_waits_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let upstream = write(&dir, "upstream", &kubeconfig("http://127.0.0.1:1"));
    let written = dir.path().join("kubeconfig");
    let mut weir = Weir::serve(&[
        "--kubeconfig",
        &upstream,
        "--listen=http://127.0.0.1:0",
        "--write-kubeconfig",
        written.to_str().unwrap(),
    ]);
    assert!(weir.get("/livez").starts_with("HTTP/1.1 200 "));
    let ready = weir.get("/readyz");
    assert!(ready.starts_with("HTTP/1.1 500 "), "{ready}");
    assert!(ready.contains("[-]upstream failed: cannot connect to the upstream"), "{ready}");
    assert!(ready.contains("[+]shutdown ok"), "{ready}");
    // The admin listener is bound before the file is written; the log line about it follows the
    // file.
    weir.wait_for_log("kubeconfig for clients written");
    assert!(std::fs::read_to_string(&written).unwrap().contains("server: http://127.0.0.1:"));
    weir.signal("TERM");
    assert_eq!(weir.wait(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_says_what_is_running() {
    let simulator = Simulator::start(SimulatorOptions::default()).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let upstream = write(&dir, "upstream", &simulator.kubeconfig(""));
    let mut weir = Weir::serve(&["--kubeconfig", &upstream, "--listen=http://127.0.0.1:0"]);
    let line = weir.wait_for_log("weir serves");
    let (listeners, address) = (r#""listeners":"http://127.0.0.1:"#, simulator.url());
    for part in [r#""mode":"sidecar""#, listeners, r#""upstream_version":"v"#, &address] {
        assert!(line.contains(part), "{part} is missing in {line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_that_the_upstream_refuses_fail_the_start() {
    let users = vec![User::admin("right", "jane")];
    let options = SimulatorOptions { users, tls: true, ..SimulatorOptions::default() };
    let simulator = Simulator::start(options).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let upstream = write(&dir, "upstream", &simulator.kubeconfig("wrong"));
    let output = weir(&["serve", "--kubeconfig", &upstream, "--listen=http://127.0.0.1:0"]);
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("refuses Weir's credentials (401 Unauthorized)"), "{message}");
    assert!(!message.contains("wrong"), "the token is in a message: {message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_untrusted_upstream_certificate_is_reported_by_readyz() {
    let options = || SimulatorOptions { tls: true, ..SimulatorOptions::default() };
    let simulator = Simulator::start(options()).await.unwrap();
    let other = Simulator::start(options()).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let kubeconfig = other.kubeconfig("").replace(&other.url(), &simulator.url());
    let upstream = write(&dir, "upstream", &kubeconfig);
    let mut weir = Weir::serve(&["--kubeconfig", &upstream, "--listen=http://127.0.0.1:0"]);
    let ready = weir.get("/readyz");
    assert!(ready.contains("[-]upstream failed: "), "{ready}");
    assert!(ready.contains("certificate"), "{ready}");
    weir.signal("INT");
    assert_eq!(weir.wait(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_needs_only_the_kubeconfig_that_weir_writes() {
    let options = SimulatorOptions { tls: true, ..SimulatorOptions::default() };
    let simulator = Simulator::start(options).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let upstream = write(&dir, "upstream", &simulator.kubeconfig(""));
    let written = dir.path().join("kubeconfig");
    let flag = format!("--write-kubeconfig={}", written.display());
    let mut weir = Weir::serve(&["--kubeconfig", &upstream, "--listen=https://127.0.0.1:0", &flag]);
    weir.wait_until_ready().await;
    let kubeconfig = kube::config::Kubeconfig::read_from(&written).unwrap();
    let options = kube::config::KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    let version = kube::Client::try_from(config).unwrap().apiserver_version().await.unwrap();
    assert_eq!(version.major, "1");
    weir.signal("TERM");
    assert_eq!(weir.wait(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_weir_at_once() {
    let simulator = Simulator::start(SimulatorOptions::default()).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let upstream = write(&dir, "upstream", &simulator.kubeconfig(""));
    let socket = dir.path().join("weir.sock");
    let listen = format!("--listen=unix://{}", socket.display());
    let head = "apiVersion: weir.dev/v1alpha1\nkind: WeirConfiguration\n";
    let config = write(&dir, "weir.yaml", &format!("{head}server: {{ shutdownDelay: 10m }}\n"));
    let mut weir = Weir::serve(&["--config", &config, "--kubeconfig", &upstream, &listen]);
    weir.wait_until_ready().await;

    weir.signal("TERM");
    while !weir.get("/readyz").contains("[-]shutdown failed: process is shutting down") {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // Everything else goes on for the delay.
    let mut stream = UnixStream::connect(&socket).unwrap();
    let request = "GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line).unwrap();
    assert!(line.starts_with("HTTP/1.1 200 "), "{line}");
    weir.signal("TERM");
    assert_eq!(weir.wait(), Some(130));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hangup_does_not_end_it() {
    let simulator = Simulator::start(SimulatorOptions::default()).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let upstream = write(&dir, "upstream", &simulator.kubeconfig(""));
    let listen = format!("--listen=unix://{}", dir.path().join("weir.sock").display());
    let mut weir = Weir::serve(&["--kubeconfig", &upstream, &listen]);
    weir.signal("HUP");
    weir.wait_until_ready().await;
    weir.signal("HUP");
    weir.wait_for_log("there is no configuration file to read again");
    assert!(weir.get("/readyz").starts_with("HTTP/1.1 200 "));
    weir.signal("TERM");
    assert_eq!(weir.wait(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hangup_has_the_configuration_read_again() {
    let simulator = Simulator::start(SimulatorOptions::default()).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let upstream = write(&dir, "upstream", &simulator.kubeconfig(""));
    let listen = format!("--listen=unix://{}", dir.path().join("weir.sock").display());
    let head = "apiVersion: weir.dev/v1alpha1\nkind: WeirConfiguration\n";
    let config = write(&dir, "weir.yaml", head);
    let mut weir = Weir::serve(&["--config", &config, "--kubeconfig", &upstream, &listen]);
    weir.wait_until_ready().await;
    let metrics = |weir: &Weir| weir.get("/metrics");
    assert!(metrics(&weir).contains("weir_config_last_reload_successful 1\n"));

    write(
        &dir,
        "weir.yaml",
        &format!(
            "{head}cache: {{ maxStaleness: 7m, forwardBudget: 9 }}\ntracing: {{ samplingRatePerMillion: 1 }}\n"
        ),
    );
    weir.signal("HUP");
    let line = weir.wait_for_log("some fields need a restart");
    let applied = r#""applied":"cache.maxStaleness, tracing.samplingRatePerMillion""#;
    assert!(line.contains(applied), "{line}");
    assert!(line.contains(r#""needs_restart":"cache.forwardBudget""#), "{line}");
    weir.wait_for_log("does nothing without tracing.endpoint");

    write(&dir, "weir.yaml", &format!("{head}cache: {{ forwardBudget: 0, maxStaleness: x }}\n"));
    weir.signal("HUP");
    let line = weir.wait_for_log("the running one stays");
    assert!(line.contains("cache.maxStaleness") && line.contains("cache.forwardBudget"), "{line}");
    let metrics = metrics(&weir);
    for line in [
        "weir_config_last_reload_successful 0\n",
        "weir_config_reloads_total{result=\"success\"} 1\n",
        "weir_config_reloads_total{result=\"failure\"} 1\n",
        "weir_config_pending_fields 1\n",
    ] {
        assert!(metrics.contains(line), "{line}");
    }
    assert!(weir.get("/readyz").starts_with("HTTP/1.1 200 "));
    weir.signal("TERM");
    assert_eq!(weir.wait(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_manager_learns_that_it_is_ready_alive_and_stopping() {
    let simulator = Simulator::start(SimulatorOptions::default()).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let upstream = write(&dir, "upstream", &simulator.kubeconfig(""));
    let path = dir.path().join("notify");
    let messages = UnixDatagram::bind(&path).unwrap();
    messages.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let next = || {
        let mut message = [0; 512];
        let length = messages.recv(&mut message).unwrap();
        String::from_utf8(message[..length].to_vec()).unwrap()
    };
    let head = "apiVersion: weir.dev/v1alpha1\nkind: WeirConfiguration\n";
    let config = write(&dir, "weir.yaml", head);
    let args = ["serve", "--kubeconfig", &upstream, "--listen=http://127.0.0.1:0"];
    let mut serve = command(&args);
    serve.args(["--config", &config]);
    serve.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "200000");
    let mut weir = Weir::start(&mut serve);
    let ready = next();
    assert!(ready.starts_with("READY=1\nSTATUS=serving http://127.0.0.1:"), "{ready}");
    assert_eq!(next(), "WATCHDOG=1\n");
    assert_eq!(next(), "WATCHDOG=1\n");
    // A file that is refused ends the reload, too.
    for text in [format!("{head}cache: {{ maxStaleness: 7m }}\n"), "no configuration".to_owned()] {
        write(&dir, "weir.yaml", &text);
        weir.signal("HUP");
        let mut other = std::iter::repeat_with(next).filter(|message| message != "WATCHDOG=1\n");
        let reloading = other.next().unwrap();
        let time = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
        assert!(time.trim_end().parse::<u64>().unwrap() > 0, "{reloading}");
        assert_eq!(other.next().unwrap(), "READY=1\n");
    }
    weir.signal("TERM");
    let stopping = std::iter::repeat_with(next).find(|message| message != "WATCHDOG=1\n").unwrap();
    assert!(stopping.starts_with("STOPPING=1\n"), "{stopping}");
    assert_eq!(weir.wait(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_connects_before_the_start_waits_in_the_passed_socket() {
    let simulator = Simulator::start(SimulatorOptions::default()).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let upstream = write(&dir, "upstream", &simulator.kubeconfig(""));
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let mut early = TcpStream::connect(address).unwrap();
    let listen = format!("--listen=http://{address}");
    let args = ["serve", "--kubeconfig", &upstream, &listen];
    let mut weir = Weir::start(&mut with_socket(socket, &args));
    let request = "GET /version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    early.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    early.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    weir.signal("TERM");
    assert_eq!(weir.wait(), Some(0));
}

#[test]
fn a_passed_socket_without_a_listener_is_named() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap().to_string();
    let dir = tempfile::tempdir().unwrap();
    let upstream = write(&dir, "upstream", &kubeconfig("http://127.0.0.1:1"));
    let args = ["serve", "--kubeconfig", &upstream, "--listen=http://127.0.0.1:0"];
    let output = with_socket(socket, &args).arg("--admin-listen=none").output().unwrap();
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains(&address), "{message}");
}

/// A running `weir serve`, killed when dropped.
struct Weir {
    child: Child,
    admin: String,
    log: Log,
}

impl Weir {
    fn serve(args: &[&str]) -> Self {
        Self::start(command(&["serve"]).args(args))
    }

    /// Starts Weir and waits until its admin listener is bound.
    fn start(serve: &mut Command) -> Self {
        let mut child = serve.args(ADMIN).spawn().unwrap();
        let log = Log::read_from(child.stderr.take().unwrap());
        let Some(line) = log.wait_for("admin listening") else {
            panic!("weir ended: {:?}", child.wait());
        };
        let event: serde_json::Value = serde_json::from_str(&line).unwrap();
        let admin = event.get("address").and_then(|address| address.as_str()).unwrap().to_owned();
        Self { child, admin, log }
    }

    /// Reads the log up to the line that contains `text`, and returns that line.
    fn wait_for_log(&mut self, text: &str) -> String {
        let line = self.log.wait_for(text);
        line.unwrap_or_else(|| {
            panic!("weir ended without saying {text:?}: {:?}", self.child.wait())
        })
    }

    /// Returns the response of the admin listener.
    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.admin).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: weir\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    async fn wait_until_ready(&self) {
        while !self.get("/readyz").starts_with("HTTP/1.1 200 ") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    fn wait(&mut self) -> Option<i32> {
        // The log ends with the process.
        while self.log.next().is_some() {}
        self.child.wait().unwrap().code()
    }
}

impl Drop for Weir {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

const ADMIN: [&str; 2] = ["--admin-listen=127.0.0.1:0", "--log-format=json"];

/// Runs Weir as systemd does with a socket unit: the socket is the descriptor 3.
fn with_socket(socket: TcpListener, args: &[&str]) -> Command {
    let script = "exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" \"$@\"";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_weir")]).args(args).env_remove("WEIR_LOG");
    shell.stdin(OwnedFd::from(socket)).stdout(Stdio::piped()).stderr(Stdio::piped());
    shell
}

fn weir(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(args).current_dir(env!("CARGO_MANIFEST_DIR")).env_remove("WEIR_LOG");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn write(dir: &TempDir, name: &str, text: &str) -> String {
    let path: PathBuf = Path::new(dir.path()).join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn kubeconfig(server: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: x\n\
         clusters: [{{ name: x, cluster: {{ server: \"{server}\" }} }}]\n\
         contexts: [{{ name: x, context: {{ cluster: x, user: x }} }}]\n\
         users: [{{ name: x, user: {{}} }}]\n"
    )
}
