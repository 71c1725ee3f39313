//! A Weir as its users run it: the binary, a configuration file, signals, its own metrics.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A running `weir serve`. Killed when dropped.
pub(crate) struct Weir {
    child: Child,
    dir: TempDir,
    admin_port: u16,
    plain_port: u16,
}

impl Weir {
    /// Starts Weir in front of the upstream of a kubeconfig and waits until it is ready. `config`
    /// is YAML that is appended to the configuration file.
    pub(crate) fn start(upstream: &Path, config: &str) -> Self {
        let weir = Self::spawn(upstream, config);
        weir.wait_until_ready();
        weir
    }

    /// Starts Weir without waiting.
    pub(crate) fn spawn(upstream: &Path, config: &str) -> Self {
        Self::spawn_command("serve", upstream, config)
    }

    /// Starts a command that serves, without waiting.
    pub(crate) fn spawn_command(command: &str, upstream: &Path, config: &str) -> Self {
        let plain_port = free_port();
        let dir = tempfile::tempdir().expect("a directory for Weir");
        let arguments = [
            "--listen=https://127.0.0.1:0".to_owned(),
            format!("--listen=http://127.0.0.1:{plain_port}"),
            "--write-kubeconfig".to_owned(),
            dir.path().join("kubeconfig").display().to_string(),
        ];
        Self::launch(command, dir, upstream, config, &arguments, "info,weir=debug", plain_port)
    }

    /// Starts Weir in gateway mode without waiting. `config` has its listeners, one of them at
    /// `port`; `log` is its log filter.
    pub(crate) fn spawn_gateway(upstream: &Path, config: &str, port: u16, log: &str) -> Self {
        let dir = tempfile::tempdir().expect("a directory for Weir");
        Self::launch("serve", dir, upstream, config, &[], log, port)
    }

    fn launch(
        command: &str,
        dir: TempDir,
        upstream: &Path,
        config: &str,
        arguments: &[String],
        log: &str,
        plain_port: u16,
    ) -> Self {
        let admin_port = free_port();
        let file = dir.path().join("weir.yaml");
        let head = "apiVersion: weir.dev/v1alpha1\nkind: WeirConfiguration\n";
        std::fs::write(&file, format!("{head}{config}")).expect("the configuration is written");
        let output = std::fs::File::create(dir.path().join("log")).expect("the log is created");
        let child = Command::new(binary())
            .arg(command)
            .arg("--config")
            .arg(&file)
            .arg("--kubeconfig")
            .arg(upstream)
            .args(arguments)
            .arg(format!("--admin-listen=127.0.0.1:{admin_port}"))
            .env("WEIR_LOG", log)
            .stdout(output.try_clone().expect("the log is shared"))
            .stderr(output)
            .spawn()
            .expect("weir starts");
        Self { child, dir, admin_port, plain_port }
    }

    /// Waits until `/readyz` succeeds.
    pub(crate) fn wait_until_ready(&self) {
        eventually_blocking("weir is ready", || {
            self.admin("/readyz").is_some_and(|(code, _)| code == 200)
        });
    }

    /// Returns the path of the kubeconfig that Weir wrote.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("kubeconfig")
    }

    /// Returns the port of its plain HTTP listener on 127.0.0.1.
    pub(crate) fn plain_port(&self) -> u16 {
        self.plain_port
    }

    /// Returns the address of its admin listener.
    pub(crate) fn admin_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.admin_port)
    }

    /// Returns its standard output and standard error so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// Sends a GET to its admin listener; returns status and body.
    pub(crate) fn admin(&self, path: &str) -> Option<(u16, String)> {
        http_get(self.admin_port, path)
    }

    /// Returns the sum of a metric over all series that have all of `labels`, such as
    /// `cache_status="hit"`.
    pub(crate) fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        let (_, text) = self.admin("/metrics").expect("metrics are served");
        sum_metric(&text, name, labels)
    }

    /// Returns its CPU time, user and system. The metric has whole seconds.
    pub(crate) fn cpu(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()));
        let stat = stat.expect("weir runs");
        // The second field is the name in parentheses, which may contain spaces.
        let (_, rest) = stat.rsplit_once(") ").expect("a name in parentheses");
        let ticks = rest.split(' ').skip(11).take(2).filter_map(|ticks| ticks.parse::<u32>().ok());
        Duration::from_millis(10) * ticks.sum::<u32>()
    }

    /// Sends SIGTERM and waits; returns the exit code.
    pub(crate) fn stop(&mut self) -> Option<i32> {
        self.signal("TERM");
        self.wait(Duration::from_secs(60))
    }

    /// Sends a signal by name.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let status = Command::new("kill").args([&format!("-{name}"), &pid]).status();
        assert!(status.expect("kill runs").success());
    }

    /// Waits for the exit code.
    pub(crate) fn wait(&mut self, timeout: Duration) -> Option<i32> {
        let deadline = Instant::now() + timeout;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().expect("weir can be waited for") {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("weir did not exit within {timeout:?}; log:\n{}", self.log());
    }
}

impl Drop for Weir {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        if std::thread::panicking() {
            let log = self.log();
            let tail: Vec<_> = log.lines().rev().take(40).collect();
            eprintln!("the end of weir's log:");
            tail.iter().rev().for_each(|line| eprintln!("  {line}"));
        }
    }
}

/// Returns `$WEIR_BINARY`, for figures of another build, or the binary of these tests.
fn binary() -> PathBuf {
    let built = || env!("CARGO_BIN_EXE_weir").into();
    std::env::var_os("WEIR_BINARY").map_or_else(built, PathBuf::from)
}

/// Sums a metric of a Prometheus text over the series that have all the labels.
pub(crate) fn sum_metric(text: &str, name: &str, labels: &[&str]) -> f64 {
    text.lines()
        .filter(|line| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']))
                && labels.iter().all(|label| line.contains(label))
        })
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok())
        .sum()
}

/// Waits until `condition` holds, at most a minute.
pub(crate) fn eventually_blocking(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "never came true: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Returns a port that was free a moment before. It is below those that the system gives to
/// listeners on port 0, so that none of them takes it meanwhile.
pub(crate) fn free_port() -> u16 {
    const FIRST: u16 = 20_000;
    const COUNT: u32 = 12_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let of_process = std::process::id().wrapping_mul(97);
    (0..COUNT)
        .map(|_| NEXT.fetch_add(1, Ordering::Relaxed).wrapping_add(of_process) % COUNT)
        .filter_map(|offset| u16::try_from(offset).ok())
        .map(|offset| FIRST + offset)
        .find(|port| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("a port is free")
}

/// Sends a plain GET to a loopback port.
pub(crate) fn http_get(port: u16, path: &str) -> Option<(u16, String)> {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let code = answer.split(' ').nth(1)?.parse().ok()?;
    Some((code, answer.split_once("\r\n\r\n")?.1.to_owned()))
}
