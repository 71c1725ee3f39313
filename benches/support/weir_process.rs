//! A whole Weir in a process of its own, before a simulator of the bench's, so that its memory and its CPU time are its own.
//!
//! It is the one that was built with the bench, or another by `WEIR_BENCH_BINARY`, to compare two.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

/// Ends with its value.
pub(crate) struct Weir {
    child: Child,
    /// Where its clients come in.
    pub(crate) address: SocketAddr,
    _dir: TempDir,
}

impl Weir {
    /// Starts it with this kubeconfig and these sections of its configuration, and waits until it listens.
    pub(crate) async fn start(kubeconfig: &str, sections: serde_json::Value) -> Self {
        Self::start_at(free_address(), kubeconfig, sections).await
    }

    /// The same at an address, where the sections may have a listener of their own.
    pub(crate) async fn start_at(
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
        if let (Some(all), serde_json::Value::Object(sections)) = (text.as_object_mut(), sections) {
            all.extend(sections);
        }
        fs::write(&upstream, kubeconfig).expect("a file");
        fs::write(&file, text.to_string()).expect("a file");
        let binary = std::env::var_os("WEIR_BENCH_BINARY");
        let child = Command::new(binary.unwrap_or_else(|| env!("CARGO_BIN_EXE_weir").into()))
            .args(["serve".as_ref(), "--config".as_ref(), file.as_os_str()])
            .stdout(Stdio::null())
            .spawn()
            .expect("it starts");
        // Ends it even if it never listens.
        let weir = Self { child, address, _dir: dir };
        let deadline = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(address).await.is_err() {
            assert!(Instant::now() < deadline, "it does not listen");
            sleep(Duration::from_millis(50)).await;
        }
        weir
    }

    /// Its CPU time so far.
    pub(crate) fn cpu(&self) -> Duration {
        crate::cpu::of(&self.proc())
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The directory in `/proc` that tells of it.
    pub(crate) fn proc(&self) -> String {
        format!("/proc/{}", self.pid())
    }
}

impl Drop for Weir {
    fn drop(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }
}

/// Nobody's just now; whoever takes it meanwhile makes the bench fail, which is no harm.
pub(crate) fn free_address() -> SocketAddr {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    listener.local_addr().expect("its address")
}
