//! Starts Weir as a separate process, so that its memory and CPU time can be measured alone.
//!
//! The binary is the one that cargo built with the bench, or the one that `WEIR_BENCH_BINARY`
//! names, so that two builds can be compared.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

/// The limits of a process.
#[derive(Default)]
pub(crate) struct Limits<'a> {
    /// The directories of control groups.
    pub(crate) groups: &'a [PathBuf],
    /// Open file descriptors.
    pub(crate) descriptors: Option<usize>,
}

impl Limits<'_> {
    /// Returns a script that sets the limits for itself and becomes its arguments.
    fn script(&self) -> String {
        let group = |group: &PathBuf| format!("echo $$ > {}/cgroup.procs && ", group.display());
        let groups: String = self.groups.iter().map(group).collect();
        let descriptors = self.descriptors.map(|most| format!("ulimit -n {most} && "));
        format!("{groups}{}exec \"$@\"", descriptors.unwrap_or_default())
    }
}

/// A running process, which is killed on drop.
pub(crate) struct Weir {
    child: Child,
    /// The address of its listener for clients.
    pub(crate) address: SocketAddr,
    _dir: TempDir,
}

impl Weir {
    /// Starts Weir with this kubeconfig and these sections of its configuration, and waits until it
    /// listens.
    pub(crate) async fn start(kubeconfig: &str, sections: serde_json::Value) -> Self {
        Self::start_at(free_address(), kubeconfig, sections).await
    }

    /// Starts Weir at a given address. `sections` may replace the listener, for example to use TLS.
    pub(crate) async fn start_at(
        address: SocketAddr,
        kubeconfig: &str,
        sections: serde_json::Value,
    ) -> Self {
        Self::start_within(&Limits::default(), address, kubeconfig, sections).await
    }

    /// Starts Weir at a given address, with limits that hold from its first instruction on.
    pub(crate) async fn start_within(
        limits: &Limits<'_>,
        address: SocketAddr,
        kubeconfig: &str,
        sections: serde_json::Value,
    ) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let (upstream, file) = (dir.path().join("kubeconfig"), dir.path().join("weir.yaml"));
        let mut text = serde_json::json!({
            "apiVersion": "weir.dev/v1alpha1", "kind": "WeirConfiguration",
            "server": {"listeners": [{"listen": format!("http://{address}")}]},
            "admin": {"listen": "none"},
            "upstream": {"kubeconfig": upstream},
            "logging": {"filter": "error"},
        });
        if let (Some(settings), serde_json::Value::Object(sections)) =
            (text.as_object_mut(), sections)
        {
            settings.extend(sections);
        }
        fs::write(&upstream, kubeconfig).expect("a file");
        fs::write(&file, text.to_string()).expect("a file");
        let binary = std::env::var_os("WEIR_BENCH_BINARY");
        let child = Command::new("sh")
            .args(["-c", &limits.script(), "sh"])
            .arg(binary.unwrap_or_else(|| env!("CARGO_BIN_EXE_weir").into()))
            .args(["serve".as_ref(), "--config".as_ref(), file.as_os_str()])
            .stdout(Stdio::null())
            .spawn()
            .expect("weir starts");
        // Constructed before the wait, so that the process is killed if it never listens.
        let weir = Self { child, address, _dir: dir };
        let deadline = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(address).await.is_err() {
            assert!(Instant::now() < deadline, "weir does not listen within 20 s");
            sleep(Duration::from_millis(50)).await;
        }
        weir
    }

    /// Whether it still runs.
    pub(crate) fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends SIGTERM.
    pub(crate) fn terminate(&self) {
        let pid = i32::try_from(self.pid()).ok().and_then(rustix::process::Pid::from_raw);
        let pid = pid.expect("a process ID");
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
    }

    /// Returns its exit code, once it has ended by itself.
    pub(crate) fn exit_code(&mut self) -> Option<i32> {
        self.child.try_wait().ok().flatten().and_then(|status| status.code())
    }

    /// Returns the CPU time that it has used.
    pub(crate) fn cpu(&self) -> Duration {
        crate::cpu::time_of(&self.proc())
    }

    /// Returns its process ID.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns its directory in `/proc`.
    pub(crate) fn proc(&self) -> String {
        format!("/proc/{}", self.pid())
    }
}

impl Drop for Weir {
    fn drop(&mut self) {
        self.child.kill().expect("the process runs");
        self.child.wait().expect("the process ends");
    }
}

/// Returns an address that is free now. If another program binds it first, the bench fails and can
/// be repeated.
pub(crate) fn free_address() -> SocketAddr {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    listener.local_addr().expect("a bound address")
}
