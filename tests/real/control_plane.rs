//! A real kube-apiserver with its etcd, from the binaries of envtest's convention.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use http::Method;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use serde_json::json;
use tempfile::TempDir;

use crate::matrix_suite::world::Side;
use crate::suite::wire::{Call, Endpoint};
use crate::support::{eventually_blocking, free_port};

/// Returns the directory of the binaries, if all required ones are there.
pub(crate) fn assets() -> Option<PathBuf> {
    let dir = std::env::var_os("KUBEBUILDER_ASSETS")
        .map_or_else(|| PathBuf::from("/usr/local/kubebuilder/bin"), PathBuf::from);
    ["etcd", "kube-apiserver"].iter().all(|name| dir.join(name).is_file()).then_some(dir)
}

/// Whether the API server enables watch-list by default, by its own help text.
pub(crate) fn has_watch_list() -> bool {
    let help = assets()
        .and_then(|dir| Command::new(dir.join("kube-apiserver")).arg("--help").output().ok());
    let help = help.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    help.unwrap_or_default()
        .lines()
        .any(|line| line.contains("WatchList=true|false") && line.contains("default=true"))
}

/// Returns kubectl beside the other binaries, or on the path.
pub(crate) fn kubectl() -> Option<PathBuf> {
    let beside_the_others = assets()?.join("kubectl");
    if beside_the_others.exists() {
        return Some(beside_the_others);
    }
    let found = Command::new("kubectl").args(["version", "--client"]).output().ok()?;
    found.status.success().then(|| "kubectl".into())
}

/// The token of the user `admin` in `system:masters`.
pub(crate) const ADMIN: &str = "admin-token";
/// The token of the user `alice`, whose permissions come from RBAC.
pub(crate) const ALICE: &str = "alice-token";

/// etcd and kube-apiserver on loopback, killed when dropped.
pub(crate) struct ControlPlane {
    dir: TempDir,
    assets: PathBuf,
    etcd_port: u16,
    etcd_peer_port: u16,
    port: u16,
    etcd: Option<Child>,
    apiserver: Option<Child>,
    /// Further arguments of the API server.
    arguments: Vec<String>,
}

impl ControlPlane {
    /// Starts both and waits until the API server is ready.
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts both, with further arguments for the API server.
    pub(crate) fn start_with(arguments: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a directory for the control plane");
        write_credentials(dir.path());
        let mut plane = Self {
            dir,
            assets: assets().expect("the binaries are there"),
            etcd_port: free_port(),
            etcd_peer_port: free_port(),
            port: free_port(),
            etcd: None,
            apiserver: None,
            arguments: arguments.iter().map(|text| (*text).to_owned()).collect(),
        };
        plane.start_etcd();
        plane.start_apiserver();
        plane
    }

    /// Starts both with watch-list, which is enabled where it is off by default.
    pub(crate) fn start_with_watch_list() -> Self {
        let mut plane = Self::start();
        if !plane.has_watch_list() {
            plane.kill_apiserver();
            plane.arguments.push("--feature-gates=WatchList=true".to_owned());
            plane.start_apiserver();
            assert!(plane.has_watch_list(), "this API server has no watch-list at all");
        }
        plane
    }

    /// Starts etcd on its data.
    pub(crate) fn start_etcd(&mut self) {
        let (client, peer) = (url(self.etcd_port), url(self.etcd_peer_port));
        let child = Command::new(self.assets.join("etcd"))
            .arg("--data-dir")
            .arg(self.dir.path().join("etcd"))
            .args(["--name=t", "--unsafe-no-fsync", "--log-level=error"])
            .args([
                format!("--listen-client-urls={client}"),
                format!("--advertise-client-urls={client}"),
            ])
            .args([
                format!("--listen-peer-urls={peer}"),
                format!("--initial-advertise-peer-urls={peer}"),
            ])
            .arg(format!("--initial-cluster=t={peer}"))
            .stdout(Stdio::null())
            .stderr(self.log("etcd"))
            .spawn()
            .expect("etcd starts");
        self.etcd = Some(child);
    }

    /// Starts the API server and waits until it is ready.
    pub(crate) fn start_apiserver(&mut self) {
        let dir = self.dir.path();
        let file = |flag: &str, name: &str| format!("--{flag}={}", dir.join(name).display());
        let child = Command::new(self.assets.join("kube-apiserver"))
            .arg(format!("--etcd-servers={}", url(self.etcd_port)))
            .args(["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1"])
            .arg(format!("--secure-port={}", self.port))
            .args([file("tls-cert-file", "server.crt"), file("tls-private-key-file", "server.key")])
            .args([file("client-ca-file", "ca.crt"), file("token-auth-file", "tokens.csv")])
            .args([
                file("service-account-key-file", "sa.pub"),
                file("service-account-signing-key-file", "sa.key"),
            ])
            .args([
                "--service-account-issuer=https://kubernetes.default.svc",
                "--authorization-mode=RBAC",
            ])
            .args(["--service-cluster-ip-range=10.0.0.0/24", "--endpoint-reconciler-type=none"])
            .args(["--disable-admission-plugins=ServiceAccount", file("cert-dir", ".").as_str()])
            .args(&self.arguments)
            .stdout(Stdio::null())
            .stderr(self.log("kube-apiserver"))
            .spawn()
            .expect("kube-apiserver starts");
        self.apiserver = Some(child);
        eventually_blocking("kube-apiserver is ready", || {
            self.get("/readyz").as_deref() == Some("ok")
        });
    }

    /// Kills the API server like a crash.
    pub(crate) fn kill_apiserver(&mut self) {
        kill(&mut self.apiserver);
    }

    /// Kills etcd like a crash.
    pub(crate) fn kill_etcd(&mut self) {
        kill(&mut self.etcd);
    }

    /// Copies etcd's data while it is stopped.
    pub(crate) fn save_etcd(&self, name: &str) {
        copy_dir(&self.dir.path().join("etcd"), &self.dir.path().join(name));
    }

    /// Restores data saved earlier while etcd is stopped.
    pub(crate) fn restore_etcd(&self, name: &str) {
        fs::remove_dir_all(self.dir.path().join("etcd")).expect("the data is there");
        copy_dir(&self.dir.path().join(name), &self.dir.path().join("etcd"));
    }

    /// Writes a kubeconfig for a token into the plane's directory, and returns its path.
    pub(crate) fn kubeconfig(&self, token: &str) -> PathBuf {
        let path = self.dir.path().join(format!("kubeconfig-{token}"));
        let ca = self.dir.path().join("ca.crt");
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: t\n\
             clusters: [{{name: t, cluster: {{server: \"https://127.0.0.1:{}\", certificate-authority: {}}}}}]\n\
             users: [{{name: t, user: {{token: {token}}}}}]\n\
             contexts: [{{name: t, context: {{cluster: t, user: t}}}}]\n",
            self.port,
            ca.display()
        );
        fs::write(&path, text).expect("the kubeconfig is written");
        path
    }

    /// Returns the API server itself, for the holder of a token.
    pub(crate) fn endpoint(&self, token: &str) -> Endpoint {
        let ca = fs::read_to_string(self.dir.path().join("ca.crt")).expect("the CA was written");
        Endpoint::tls(([127, 0, 0, 1], self.port).into(), &ca, token)
    }

    /// Returns the API server as a side of the matrix.
    pub(crate) fn side(&self) -> Side {
        let ca = fs::read_to_string(self.dir.path().join("ca.crt")).expect("the CA was written");
        Side { address: ([127, 0, 0, 1], self.port).into(), ca }
    }

    /// GETs a path of the API server as admin. Returns the body, or none if there was no whole
    /// response.
    pub(crate) fn get(&self, path: &str) -> Option<String> {
        fetch(&self.endpoint(ADMIN), &Call::get(path))
    }

    /// Whether the API server supports watch-list: otherwise it rejects one as invalid.
    pub(crate) fn has_watch_list(&self) -> bool {
        let query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
        let path = format!("/api/v1/configmaps?{query}&timeoutSeconds=1");
        let answer = self.get(&path).expect("the API server answers");
        !answer.contains(r#""code":422"#)
    }

    /// Compacts etcd's history up to now, by etcd's JSON gateway: envtest's archive has no etcdctl.
    pub(crate) fn compact(&self) {
        let etcd = Endpoint::plain(([127, 0, 0, 1], self.etcd_port).into());
        let post = |path: &str, body: serde_json::Value| {
            let answer = fetch(&etcd, &Call::json(Method::POST, path, &body));
            let answer = answer.unwrap_or_else(|| panic!("etcd answers {path}"));
            serde_json::from_str::<serde_json::Value>(&answer).expect("etcd answers JSON")
        };
        // The key is "/" in base64; any key will do.
        let range = post("/v3/kv/range", json!({"key": "Lw=="}));
        let revision = &range["header"]["revision"];
        assert!(revision.is_string(), "etcd returns its revision: {range}");
        let compaction = post("/v3/kv/compaction", json!({"revision": revision}));
        assert!(compaction["header"].is_object(), "etcd compacts: {compaction}");
    }

    fn log(&self, name: &str) -> fs::File {
        let path = self.dir.path().join(format!("{name}.log"));
        fs::File::options().create(true).append(true).open(path).expect("the log opens")
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        kill(&mut self.apiserver);
        kill(&mut self.etcd);
    }
}

/// Sends a request on a thread of its own, so that asynchronous tests can call it too.
fn fetch(endpoint: &Endpoint, call: &Call) -> Option<String> {
    let exchange = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(endpoint.send(call))
    };
    let answer = std::thread::scope(|scope| scope.spawn(exchange).join().expect("a request"));
    let text = || String::from_utf8_lossy(&answer.body).into_owned();
    (answer.broken.is_none() && answer.status != 0).then(text)
}

fn kill(child: &mut Option<Child>) {
    if let Some(mut child) = child.take() {
        drop(child.kill());
        drop(child.wait());
    }
}

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

/// A CA with a serving certificate, tokens, and a key for service accounts.
fn write_credentials(dir: &Path) {
    let mut ca = CertificateParams::new(Vec::<String>::new()).expect("no names are fine");
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.distinguished_name.push(DnType::CommonName, "the CA of a test");
    let ca = CertifiedIssuer::self_signed(ca, key()).expect("a CA");
    let names = ["localhost", "127.0.0.1"].map(str::to_owned);
    let server_key = key();
    let server = CertificateParams::new(names).expect("the names are fine");
    let server = server.signed_by(&server_key, &ca).expect("a certificate");
    let write =
        |name: &str, text: String| fs::write(dir.join(name), text).expect("a file is written");
    write("ca.crt", ca.pem());
    write("server.crt", server.pem());
    write("server.key", server_key.serialize_pem());
    let service_accounts = key();
    write("sa.key", service_accounts.serialize_pem());
    write("sa.pub", service_accounts.public_key_pem());
    write("tokens.csv", format!("{ADMIN},admin,1,\"system:masters\"\n{ALICE},alice,2,\"dev\"\n"));
}

fn key() -> KeyPair {
    KeyPair::generate().expect("a key")
}

fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory is made");
    for part in fs::read_dir(from).expect("the directory is there").flatten() {
        let target = to.join(part.file_name());
        if part.path().is_dir() {
            copy_dir(&part.path(), &target);
        } else {
            fs::copy(part.path(), target).expect("a file is copied");
        }
    }
}
