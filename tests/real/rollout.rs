//! A controller manager whose every read and write goes through Weir, and kubectl commands that
//! wait for its work.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::control_plane::{ADMIN, ControlPlane, assets};
use crate::kubectl::{Kubectl, text};
use crate::manifests::deployment;
use crate::support::{Weir, eventually_blocking, free_port};

/// The controller manager beside the API server.
pub(crate) fn manager() -> Option<PathBuf> {
    Some(assets()?.join("kube-controller-manager")).filter(|path| path.is_file())
}

struct Manager(Child);

impl Manager {
    /// Starts it with the controllers of deployments and replica sets, through Weir.
    fn start(weir: &Weir, dir: &std::path::Path) -> Self {
        let log = std::fs::File::create(dir.join("manager.log")).unwrap();
        let child = Command::new(manager().unwrap())
            .arg(format!("--kubeconfig={}", weir.kubeconfig().display()))
            .args(["--leader-elect=false", "--bind-address=127.0.0.1"])
            .arg(format!("--secure-port={}", free_port()))
            .arg(format!("--cert-dir={}", dir.display()))
            .args(["--controllers=deployment-controller,replicaset-controller", "--v=2"])
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        Self(child)
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// A deployment is created, rolled out, scaled, changed and waited for; the test acts as the
/// kubelet.
pub(crate) fn through_weir() {
    let plane = ControlPlane::start();
    let weir = Weir::start(&plane.kubeconfig(ADMIN), "");
    let kubectl = Kubectl::new(&plane, &weir);
    let dir = tempfile::tempdir().unwrap();
    let _manager = Manager::start(&weir, dir.path());

    kubectl.feed("apply", &deployment("web", 2));
    let rollout = kubectl
        .command(&["rollout", "status", "deployment/web", "--timeout=120s"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let wait = kubectl
        .command(&["wait", "--for=condition=Available", "deployment/web", "--timeout=120s"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    make_ready(&kubectl, "web", 2);
    let (rollout, wait) = (rollout.wait_with_output().unwrap(), wait.wait_with_output().unwrap());
    assert!(text(&rollout.stdout).contains("successfully rolled out"), "{rollout:?}");
    assert!(text(&wait.stdout).contains("condition met"), "{wait:?}");

    // Another image: new pods appear, and the old ones disappear as they are replaced.
    let ready = ["wait", "--for=jsonpath={.status.readyReplicas}=3", "deployment/web"];
    kubectl.ok(&["scale", "deployment/web", "--replicas=3"]);
    make_ready(&kubectl, "web", 3);
    kubectl.ok(&[&ready[..], &["--timeout=120s"]].concat());
    kubectl.ok(&["set", "image", "deployment/web", "web=other"]);
    eventually_blocking("the new pods are there and ready", || {
        make_ready(&kubectl, "web", 1);
        let status = kubectl.run(&["rollout", "status", "deployment/web", "--watch=false"]);
        text(&status.stdout).contains("successfully rolled out")
    });
    kubectl.ok(&["delete", "deployment", "web", "--wait=false"]);
    kubectl.ok(&["wait", "--for=delete", "deployment/web", "--timeout=120s"]);

    for resource in ["deployments", "replicasets", "pods"] {
        let resource = format!("resource=\"{resource}\"");
        let watches = |answer: &str| {
            weir.metric("weir_requests_total", &[r#"verb="watch""#, &resource, answer])
        };
        // kubectl's watches of one object may be forwarded; those of informers come from the cache.
        assert!(watches(r#"cache_status="hit""#) >= 1.0, "{resource}");
        let proofs = |step: &str| weir.metric("weir_freshness_proofs_total", &[&resource, step]);
        assert_eq!(proofs(r#"step="forwarded""#), 0.0, "{resource}");
        if plane.has_watch_list() {
            assert!(proofs("step=") >= 1.0, "{resource}: a consistent start");
        }
    }
}

/// Sets the status of the pods like a kubelet, once there are `count`.
fn make_ready(kubectl: &Kubectl, app: &str, count: usize) {
    let mut pods = Vec::new();
    eventually_blocking("the pods are there", || {
        let select = format!("app={app}");
        let listed = kubectl.ok(&["get", "pods", "-l", &select, "-o", "name"]);
        pods = listed.lines().map(str::to_owned).collect();
        pods.len() >= count
    });
    for pod in pods {
        // A pod that is deleted meanwhile needs no status.
        drop(kubectl.run(&["patch", &pod, "--subresource=status", "--type=merge", "-p", READY]));
    }
}

const READY: &str = r#"{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}"#;
