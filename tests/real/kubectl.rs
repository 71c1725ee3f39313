//! kubectl through Weir: the commands that people use all day.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use crate::control_plane::{ADMIN, ControlPlane, kubectl};
use crate::manifests::deployment;
use crate::support::{Weir, eventually_blocking};

pub(crate) struct Kubectl {
    kubeconfig: PathBuf,
    cache: tempfile::TempDir,
    /// How it validates manifests.
    validation: &'static str,
}

impl Kubectl {
    pub(crate) fn new(plane: &ControlPlane, weir: &Weir) -> Self {
        let cache = tempfile::tempdir().unwrap();
        Self { kubeconfig: weir.kubeconfig(), cache, validation: plane.validation() }
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(kubectl().unwrap());
        command
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .arg("--cache-dir")
            .arg(self.cache.path())
            .args(arguments);
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs it, requires success, returns its output.
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "kubectl {arguments:?}: {stdout}{stderr}");
        stdout
    }

    /// Runs it, requires failure, returns the error.
    fn fails(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(!output.status.success(), "kubectl {arguments:?} succeeded");
        text(&output.stderr)
    }

    /// Passes a manifest to `apply` or `create`.
    pub(crate) fn feed(&self, verb: &str, manifest: &str) -> String {
        let file = self.cache.path().join("manifest.yaml");
        std::fs::write(&file, manifest).unwrap();
        self.ok(&[verb, self.validation, "-f", file.to_str().unwrap()])
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn reads_and_writes() {
    let plane = ControlPlane::start();
    let mut weir = Weir::start(&plane.kubeconfig(ADMIN), "");
    let kubectl = Kubectl::new(&plane, &weir);

    kubectl.ok(&["create", "configmap", "a", "--from-literal=k=v"]);
    assert!(kubectl.ok(&["get", "configmaps"]).contains("a "));
    assert!(kubectl.ok(&["describe", "configmap", "a"]).contains("k:"));
    assert_eq!(kubectl.ok(&["get", "configmap", "a", "-o", "jsonpath={.data.k}"]), "v");
    let manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\ndata: {x: \"1\"}\n";
    assert!(kubectl.feed("apply", manifest).contains("created"));
    assert!(kubectl.feed("apply", &manifest.replace("\"1\"", "\"2\"")).contains("configured"));
    assert!(kubectl.feed("apply", &manifest.replace("\"1\"", "\"2\"")).contains("unchanged"));
    kubectl.ok(&["patch", "configmap", "b", "--type=merge", "-p", r#"{"data":{"x":"3"}}"#]);
    assert_eq!(kubectl.ok(&["get", "configmap", "b", "-o", "jsonpath={.data.x}"]), "3");
    kubectl.ok(&["label", "configmap", "b", "app=demo"]);
    assert!(kubectl.ok(&["get", "cm", "-l", "app=demo", "-o", "name"]).contains("configmap/b"));
    assert!(
        kubectl
            .ok(&["get", "cm", "-A", "--field-selector", "metadata.name=b", "-o", "name"])
            .contains("/b")
    );
    kubectl.ok(&["delete", "configmap", "b"]);
    assert!(kubectl.fails(&["get", "configmap", "b"]).contains(r#"configmaps "b" not found"#));
    assert!(kubectl.fails(&["create", "configmap", "a"]).contains("already exists"));
    assert!(
        kubectl.fails(&["exec", "nobody", "--", "true"]).contains(r#"pods "nobody" not found"#)
    );
    assert!(kubectl.fails(&["logs", "nobody"]).contains(r#"pods "nobody" not found"#));
    assert!(
        kubectl.fails(&["get", "nonsense"]).contains("the server doesn't have a resource type")
    );
    kubectl.ok(&["api-resources"]);
    kubectl.ok(&["explain", "pods.spec"]);
    kubectl.ok(&["version"]);
    assert!(kubectl.ok(&["auth", "can-i", "list", "pods"]).contains("yes"));
    // Weir answers the same read at any resourceVersion itself.
    let hits = || weir.metric("weir_requests_total", &[r#"cache_status="hit""#]);
    let before = hits();
    assert!(
        kubectl
            .ok(&["get", "--raw", "/api/v1/configmaps?resourceVersion=0"])
            .contains(r#""name":"a""#)
    );
    assert!(hits() > before);
    assert_eq!(weir.stop(), Some(0));
}

pub(crate) fn watches_and_waits() {
    let plane = ControlPlane::start();
    let mut weir = Weir::start(&plane.kubeconfig(ADMIN), "");
    let kubectl = Kubectl::new(&plane, &weir);
    kubectl.feed("apply", &deployment("web", 1));

    let mut watch = kubectl
        .command(&["get", "configmaps", "-w", "--output-watch-events", "-o", "name"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    kubectl.ok(&["create", "configmap", "seen", "--from-literal=k=v"]);
    let lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let seen = lines.map_while(Result::ok).any(|line| line.contains("configmap/seen"));
    watch.kill().unwrap();
    watch.wait().unwrap();
    assert!(seen, "the watch showed the new configmap");

    // No deployment controller runs here: the test acts as it.
    let mut rollout = kubectl.command(&["rollout", "status", "deployment/web", "--timeout=60s"]);
    let rollout = rollout.stdout(Stdio::piped()).spawn().unwrap();
    let wait = ["wait", "--for=condition=Available", "deployment/web", "--timeout=60s"];
    let wait = kubectl.command(&wait).stdout(Stdio::piped()).spawn().unwrap();
    eventually_blocking("both watch", || {
        weir.metric("weir_watchers", &[r#"resource="deployments""#]) >= 2.0
            || forwarded(&weir) >= 2.0
    });
    let patch =
        ["patch", "deployment", "web", "--subresource=status", "--type=merge", "-p", STATUS];
    kubectl.ok(&patch);
    let (rollout, wait) = (rollout.wait_with_output().unwrap(), wait.wait_with_output().unwrap());
    assert!(text(&rollout.stdout).contains("successfully rolled out"), "{rollout:?}");
    assert!(text(&wait.stdout).contains("condition met"), "{wait:?}");
    assert_eq!(weir.stop(), Some(0));
}

/// Watches of deployments that were forwarded.
fn forwarded(weir: &Weir) -> f64 {
    weir.metric("weir_requests_total", &[r#"verb="watch""#, r#"resource="deployments""#])
}

const STATUS: &str = r#"{"status":{"observedGeneration":1,"replicas":1,"updatedReplicas":1,"readyReplicas":1,"availableReplicas":1,"conditions":[{"type":"Available","status":"True","reason":"MinimumReplicasAvailable"}]}}"#;
