//! `weir shadow` before a real kube-apiserver. Its clients are the real controller manager and
//! scheduler, and kubectl. Its report is printed.

use std::time::{Duration, Instant};

use super::components::Component;
use crate::control_plane::{ADMIN, ControlPlane};
use crate::kubectl::Kubectl;
use crate::manifests::deployment;
use crate::support::Weir;

/// Deployments come and go, their pods are bound to a node, and kubectl reads.
pub(super) fn ten_minutes() {
    let plane = ControlPlane::start();
    let mut weir = Weir::spawn_command("shadow", &plane.kubeconfig(ADMIN), CONFIG);
    weir.wait_until_ready();
    let dir = tempfile::tempdir().unwrap();
    let components = ["kube-controller-manager", "kube-scheduler"]
        .map(|name| Component::start(name, &weir.kubeconfig(), dir.path(), &[]));
    let kubectl = Kubectl::new(&plane, &weir);
    kubectl.feed("apply", NODE);
    let until = Instant::now() + DURATION;
    let mut number = 0;
    while Instant::now() < until {
        let name = format!("web-{}", number % 5);
        number += 1;
        kubectl.feed("apply", &deployment(&name, 3));
        drop(kubectl.run(&["scale", "deployment", &name, &format!("--replicas={}", number % 7)]));
        for read in [
            &["get", "pods", "-o", "json"][..],
            &["get", "pods", "-A"],
            &["get", "deployments", "-o", "yaml"],
            &["get", "deployment", &name, "-o", "json"],
            &["get", "--raw", "/api/v1/pods?resourceVersion=0"],
            &["get", "--raw", "/api/v1/pods?limit=3&labelSelector=app"],
            &["get", "--raw", "/apis/apps/v1/replicasets?resourceVersion=0"],
            &["get", "configmap", "absent", "-o", "json"],
        ] {
            drop(kubectl.run(read));
        }
        if number % 3 == 0 {
            drop(kubectl.run(&["delete", "deployment", &name, "--wait=false"]));
        }
    }
    drop(components);
    let (_, report) = weir.admin("/api/shadow").unwrap();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!(weir.stop(), Some(0));
    let log = weir.log();
    let text = log.find("Shadow mode, ").and_then(|start| log.get(start..));
    eprintln!("{number} rounds\n{}", text.expect("a report at the end"));
    assert!(report["total"]["compared"].as_u64() > Some(100), "{report:#}");
}

const DURATION: Duration = Duration::from_secs(600);
/// The components, the API server and kubectl share the machine with Weir.
const CONFIG: &str = "shadow: {cpuShare: 50%}\n";

const NODE: &str = r#"
apiVersion: v1
kind: Node
metadata: {name: node-1}
spec: {}
status:
  capacity: {cpu: "64", memory: 256Gi, pods: "500"}
  allocatable: {cpu: "64", memory: 256Gi, pods: "500"}
"#;
