//! Processes of Kubernetes that are clients of Weir.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::control_plane::{assets, kubectl};
use crate::support::free_port;

/// A client, which is killed when dropped.
pub(super) struct Component(Child);

impl Component {
    /// Starts a component of the control plane, with its log in `dir`.
    pub(super) fn start(name: &str, kubeconfig: &Path, dir: &Path, more: &[&str]) -> Self {
        let log = std::fs::File::create(dir.join(format!("{name}.log"))).unwrap();
        let kubeconfig = kubeconfig.display();
        let mut command = Command::new(assets().unwrap().join(name));
        command
            .arg(format!("--kubeconfig={kubeconfig}"))
            .arg(format!("--authentication-kubeconfig={kubeconfig}"))
            .arg(format!("--authorization-kubeconfig={kubeconfig}"))
            .args(["--leader-elect=true", "--bind-address=127.0.0.1"])
            .arg(format!("--secure-port={}", free_port()))
            .arg(format!("--cert-dir={}", dir.display()))
            .args(more)
            .stdout(Stdio::null())
            .stderr(log);
        Self(command.spawn().unwrap())
    }

    /// Starts a kubectl that does not end, with its output in a file of `dir`.
    pub(super) fn kubectl(kubeconfig: &Path, dir: &Path, output: &str, arguments: &[&str]) -> Self {
        let output = std::fs::File::create(dir.join(output)).unwrap();
        let mut command = Command::new(kubectl().unwrap());
        command
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .arg(format!("--cache-dir={}", dir.join("kubectl").display()))
            .args(arguments)
            .stdout(output.try_clone().unwrap())
            .stderr(output);
        Self(command.spawn().unwrap())
    }

    /// Starts a program that finds its kubeconfig by KUBECONFIG, with its output in a file of
    /// `dir`.
    pub(super) fn program(path: &Path, kubeconfig: &Path, dir: &Path, output: &str) -> Self {
        let output = std::fs::File::create(dir.join(output)).unwrap();
        let mut command = Command::new(path);
        command.env("KUBECONFIG", kubeconfig).stdout(output.try_clone().unwrap()).stderr(output);
        Self(command.spawn().unwrap())
    }
}

impl Drop for Component {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
