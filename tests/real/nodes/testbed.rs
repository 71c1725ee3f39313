//! A kube-apiserver with the authorizers Node and RBAC and the admission plug-in NodeRestriction,
//! its nodes and their objects, and Weir with the static pod's configuration and roles.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};

use crate::control_plane::{ADMIN, ControlPlane, WITH_WATCH_LIST, kubectl};
use crate::matrix_suite::credentials::{Certificate, LONG, Pki};
use crate::matrix_suite::world::{Credentials, Side};
use crate::suite::objects::create;
use crate::suite::wire::{Call, Endpoint};
use crate::support::{Weir, free_port};

pub(super) struct Testbed {
    pub(super) plane: ControlPlane,
    pub(super) pki: Arc<Pki>,
    pub(super) direct: Side,
    pub(super) through: Side,
    weir: Option<Weir>,
    /// Sections that the static pod's configuration does not have.
    more: String,
}

impl Testbed {
    /// Starts the API server and a Weir with further sections of the configuration. The API server
    /// has the nodes 0 to `nodes`.
    pub(super) fn start(more: &str) -> Self {
        let credentials = Credentials::new();
        let mut arguments = credentials.arguments(&format!("{ADMIN},admin,0,\"system:masters\"\n"));
        arguments.extend(ARGUMENTS.map(str::to_owned));
        arguments.push(WITH_WATCH_LIST.to_owned());
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let plane = ControlPlane::start_with(&arguments);
        let pki = credentials.pki;
        let through = Side { address: ([127, 0, 0, 1], free_port()).into(), ca: pki.weir.pem() };
        let direct = plane.side();
        write_files(&pki, &direct);
        let mut testbed = Self { plane, pki, direct, through, weir: None, more: more.to_owned() };
        testbed.apply_roles();
        testbed.start_weir();
        testbed.weir().wait_until_ready();
        testbed
    }

    /// Starts Weir, without waiting.
    pub(super) fn start_weir(&mut self) {
        let port = self.through.address.port();
        let dir = self.pki.dir().display().to_string();
        let config: String = CONFIGURATION
            .lines()
            .filter(|line| !line.starts_with("apiVersion:") && !line.starts_with("kind:"))
            .map(|line| format!("{line}\n"))
            .collect();
        let config =
            config.replace("/etc/weir", &dir).replace(LISTEN, &format!("127.0.0.1:{port}"));
        let config = format!("{config}{}", self.more);
        let upstream = self.pki.path("kubeconfig");
        self.weir = Some(Weir::spawn_gateway(&upstream, &config, port, "info"));
    }

    /// Kills Weir, and returns when it is gone.
    pub(super) fn kill_weir(&mut self) {
        self.weir = None;
    }

    pub(super) fn weir(&self) -> &Weir {
        self.weir.as_ref().expect("Weir runs")
    }

    /// Returns the API server for the user with all permissions.
    pub(super) fn admin(&self) -> Endpoint {
        self.direct.as_token(ADMIN)
    }

    /// Issues a kubelet's certificate.
    pub(super) fn certificate(&self, node: &str) -> Certificate {
        self.pki.client(&format!("system:node:{node}"), "system:nodes", LONG)
    }

    /// Returns the API server and Weir for a kubelet.
    pub(super) fn sides(&self, node: &str) -> [Endpoint; 2] {
        let certificate = self.certificate(node);
        let client = Some((certificate.chain.as_str(), certificate.key.as_str()));
        [&self.direct, &self.through]
            .map(|side| Endpoint::tls_with(side.address, &side.ca, client, ""))
    }

    /// Gives Weir's user the roles that the documentation names, and Secrets too.
    fn apply_roles(&self) {
        let (kubeconfig, validation) = (self.plane.kubeconfig(ADMIN), self.plane.validation());
        for (number, manifest) in ROLES.iter().enumerate() {
            // The optional role is bound to the service account of a Deployment.
            let manifest = manifest.replace(SERVICE_ACCOUNT, USER);
            let file = self.pki.write(&format!("roles-{number}.yaml"), &manifest);
            let mut apply = Command::new(kubectl().expect("kubectl is there"));
            apply.arg("--kubeconfig").arg(&kubeconfig).args(["apply", validation, "-f"]).arg(file);
            let output = apply.output().expect("kubectl runs");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

/// Writes the files of the static pod: those that `docs/how-to/bootstrap.md` copies to `/etc/weir`.
fn write_files(pki: &Pki, direct: &Side) {
    for (from, to) in FILES {
        fs::copy(pki.path(from), pki.path(to)).expect("a file is copied");
    }
    let ca = pki.write("upstream.crt", &direct.ca);
    let weir = pki.client("weir", "", LONG);
    let file = |name: &str, text: &str| -> PathBuf { pki.write(name, text) };
    let [chain, key] = [file("weir-client.crt", &weir.chain), file("weir-client.key", &weir.key)];
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: t\n\
         clusters: [{{name: t, cluster: {{server: \"https://{}\", certificate-authority: {}}}}}]\n\
         users: [{{name: t, user: {{client-certificate: {}, client-key: {}}}}}]\n\
         contexts: [{{name: t, context: {{cluster: t, user: t}}}}]\n",
        direct.address,
        ca.display(),
        chain.display(),
        key.display()
    );
    pki.write("kubeconfig", &text);
}

/// Creates the objects of a node: itself, its pods, and the secrets and config maps of these.
pub(super) async fn fill_node(admin: &Endpoint, node: &str) {
    let mut connection = admin.connection();
    create(&mut connection, NODES, &json!({"metadata": {"name": node}})).await;
    for number in 0..NAMED {
        create(&mut connection, &collection(number), &named(&object_name(node, number))).await;
    }
    for number in 0..PODS {
        let objects = [2 * number, 2 * number + 1].map(|number| object_name(node, number));
        let pod = pod(node, &format!("{node}-pod-{number}"), &[&objects[0]], &[&objects[1]]);
        create(&mut connection, PODS_PATH, &pod).await;
    }
}

/// Deletes an object at once, whatever its grace period.
pub(super) async fn delete(admin: &Endpoint, path: &str) {
    let answer =
        admin.send(&Call::new(Method::DELETE, format!("{path}?gracePeriodSeconds=0"))).await;
    assert_eq!(answer.status, 200, "{path}");
}

/// Returns a secret or a config map.
pub(super) fn named(name: &str) -> Value {
    // Base64, which both kinds accept.
    json!({"metadata": {"name": name}, "data": {"key": "eHh4".repeat(70)}})
}

/// Returns a pod that is bound to a node and mounts these secrets and config maps.
pub(super) fn pod(node: &str, name: &str, secrets: &[&str], config_maps: &[&str]) -> Value {
    let secrets = secrets.iter().map(|name| json!({"name": name, "secret": {"secretName": name}}));
    let config_maps =
        config_maps.iter().map(|name| json!({"name": name, "configMap": {"name": name}}));
    let volumes: Vec<Value> = secrets.chain(config_maps).collect();
    json!({"metadata": {"name": name, "annotations": {"padding": "x".repeat(3_000)}},
        "spec": {"nodeName": node, "volumes": volumes,
            "containers": [{"name": "main", "image": "none"}]}})
}

pub(super) fn node_name(number: usize) -> String {
    format!("node-{number:05}")
}

/// Returns the name of a node's secret (even numbers) or config map.
pub(super) fn object_name(node: &str, number: usize) -> String {
    format!("{node}-{number}")
}

/// Returns the collection of a node's object with this number.
pub(super) fn collection(number: usize) -> String {
    let kind = if number.is_multiple_of(2) { "secrets" } else { "configmaps" };
    format!("/api/v1/namespaces/default/{kind}")
}

pub(super) const NODES: &str = "/api/v1/nodes";
pub(super) const PODS_PATH: &str = "/api/v1/namespaces/default/pods";
pub(super) const PODS: usize = 10;
/// Secrets and config maps of a node, every second one of either kind. A pod has one of each.
pub(super) const NAMED: usize = 2 * PODS;

const ARGUMENTS: [&str; 4] = [
    "--authorization-mode=Node,RBAC",
    "--enable-admission-plugins=NodeRestriction",
    // The defaults are 400 and 200. A whole population opens its watches at once here.
    "--max-requests-inflight=3000",
    "--max-mutating-requests-inflight=1000",
];
const CONFIGURATION: &str = include_str!("../../../deploy/static-pod/weir.yaml");
const LISTEN: &str = "0.0.0.0:6440";
const ROLES: [&str; 3] = [
    include_str!("../../../deploy/manifests/rbac.yaml"),
    include_str!("../../../deploy/static-pod/rbac.yaml"),
    include_str!("../../../deploy/manifests/optional/secrets.yaml"),
];
const SERVICE_ACCOUNT: &str = "  - kind: ServiceAccount\n    name: weir\n    namespace: weir\n";
const USER: &str = "  - {apiGroup: rbac.authorization.k8s.io, kind: User, name: weir}\n";
const FILES: [(&str, &str); 6] = [
    ("clients.crt", "ca.crt"),
    ("proxies.crt", "front-proxy-ca.crt"),
    ("proxy.crt", "front-proxy-client.crt"),
    ("proxy.key", "front-proxy-client.key"),
    ("weir.crt", "tls.crt"),
    ("weir.key", "tls.key"),
];
