//! The processes of a control plane: one etcd, and one API server. Both are killed when dropped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use serde_json::{Value, json};

use super::{ADMIN, fetch};
use crate::suite::wire::{Call, Endpoint};
use crate::support::{eventually_blocking, free_port};

/// etcd with its data in a directory.
pub(crate) struct Etcd {
    binary: PathBuf,
    /// Has the log beside the data.
    dir: PathBuf,
    data: PathBuf,
    port: u16,
    peer_port: u16,
    child: Option<Child>,
}

impl Etcd {
    /// Prepares an etcd whose data is at `name` in `dir`.
    pub(crate) fn new(assets: &Path, dir: &Path, name: &str) -> Self {
        Self {
            binary: assets.join("etcd"),
            dir: dir.to_owned(),
            data: dir.join(name),
            port: free_port(),
            peer_port: free_port(),
            child: None,
        }
    }

    /// Starts it on its data.
    pub(crate) fn start(&mut self) {
        let (client, peer) = (self.url(), url(self.peer_port));
        let child = Command::new(&self.binary)
            .arg("--data-dir")
            .arg(&self.data)
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
            .stderr(log(&self.dir, "etcd"))
            .spawn()
            .expect("etcd starts");
        self.child = Some(child);
    }

    /// Kills it like a crash.
    pub(crate) fn kill(&mut self) {
        kill(&mut self.child);
    }

    /// Copies its data as a crash would leave it. A running etcd is paused for that time.
    pub(crate) fn save(&self, to: &Path) {
        self.signal("STOP");
        copy_dir(&self.data, to);
        self.signal("CONT");
    }

    /// Replaces its data while it is stopped.
    pub(crate) fn restore(&self, from: &Path) {
        fs::remove_dir_all(&self.data).expect("the data is there");
        copy_dir(from, &self.data);
    }

    pub(crate) fn url(&self) -> String {
        url(self.port)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Returns its current revision.
    pub(crate) fn revision(&self) -> u64 {
        let mut revision = None;
        eventually_blocking("etcd returns its revision", || {
            let range = self.post("/v3/kv/range", &json!({"key": STANDARD.encode("/")}));
            revision = range.and_then(|range| range["header"]["revision"].as_str()?.parse().ok());
            revision.is_some()
        });
        revision.unwrap()
    }

    /// Compacts its history up to now.
    pub(crate) fn compact(&self) {
        let revision = self.revision().to_string();
        let compaction = self.post("/v3/kv/compaction", &json!({"revision": revision}));
        assert!(compaction.unwrap()["header"].is_object(), "etcd compacts");
    }

    /// Deletes all keys that begin with `prefix`, behind the back of the API servers.
    pub(crate) fn delete(&self, prefix: &str) {
        let mut end = prefix.as_bytes().to_owned();
        *end.last_mut().unwrap() += 1;
        let range = json!({"key": STANDARD.encode(prefix), "range_end": STANDARD.encode(end)});
        let deleted = self.post("/v3/kv/deleterange", &range);
        assert!(deleted.unwrap()["header"].is_object(), "etcd deletes {prefix}");
    }

    /// Calls etcd's JSON gateway: envtest's archive has no etcdctl.
    fn post(&self, path: &str, body: &Value) -> Option<Value> {
        let etcd = Endpoint::plain(([127, 0, 0, 1], self.port).into());
        let answer = fetch(&etcd, &Call::json(Method::POST, path, body))?;
        serde_json::from_str(&answer).ok()
    }

    fn signal(&self, name: &str) {
        if let Some(child) = &self.child {
            signal(child, name);
        }
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
    }
}

/// One API server.
pub(crate) struct ApiServer {
    binary: PathBuf,
    /// Has the credentials and the log.
    dir: PathBuf,
    etcd: String,
    port: u16,
    arguments: Vec<String>,
    child: Option<Child>,
}

impl ApiServer {
    /// Prepares an API server with the credentials in `dir` before the etcd at a URL.
    pub(crate) fn new(assets: &Path, dir: &Path, etcd: String) -> Self {
        Self {
            binary: assets.join("kube-apiserver"),
            dir: dir.to_owned(),
            etcd,
            port: free_port(),
            arguments: Vec::new(),
            child: None,
        }
    }

    pub(crate) fn add_argument(&mut self, argument: &str) {
        self.arguments.push(argument.to_owned());
    }

    /// Whether its arguments name authorizers. A list that is given twice would be joined.
    fn has_authorizers(&self) -> bool {
        self.arguments.iter().any(|argument| argument.starts_with("--authorization-mode="))
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Starts it and waits until it is ready.
    pub(crate) fn start(&mut self) {
        self.spawn();
        self.wait_until_ready();
    }

    /// Starts it without waiting.
    pub(crate) fn spawn(&mut self) {
        let dir = &self.dir;
        let file = |flag: &str, name: &str| format!("--{flag}={}", dir.join(name).display());
        let child = Command::new(&self.binary)
            .arg(format!("--etcd-servers={}", self.etcd))
            .args(["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1"])
            .arg(format!("--secure-port={}", self.port))
            .args([file("tls-cert-file", "server.crt"), file("tls-private-key-file", "server.key")])
            .args([file("client-ca-file", "ca.crt"), file("token-auth-file", "tokens.csv")])
            .args([
                file("service-account-key-file", "sa.pub"),
                file("service-account-signing-key-file", "sa.key"),
            ])
            .arg("--service-account-issuer=https://kubernetes.default.svc")
            .args((!self.has_authorizers()).then_some("--authorization-mode=RBAC"))
            .args(["--service-cluster-ip-range=10.0.0.0/24", "--endpoint-reconciler-type=none"])
            .args(["--disable-admission-plugins=ServiceAccount", file("cert-dir", ".").as_str()])
            .args(&self.arguments)
            .stdout(Stdio::null())
            .stderr(log(&self.dir, "kube-apiserver"))
            .spawn()
            .expect("kube-apiserver starts");
        self.child = Some(child);
    }

    /// Waits until `/readyz` succeeds.
    pub(crate) fn wait_until_ready(&self) {
        eventually_blocking("kube-apiserver is ready", || {
            fetch(&self.endpoint(ADMIN), &Call::get("/readyz")).as_deref() == Some("ok")
        });
    }

    /// Kills it like a crash.
    pub(crate) fn kill(&mut self) {
        kill(&mut self.child);
    }

    /// Makes the next start that of another version.
    pub(crate) fn set_version(&mut self, assets: &Path) {
        self.binary = assets.join("kube-apiserver");
    }

    /// Stops it as an upgrade does, and waits for its end.
    pub(crate) fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            signal(&child, "TERM");
            child.wait().expect("kube-apiserver ends");
        }
    }

    /// Stops the process where it is; its connections stay open.
    pub(crate) fn pause(&self) {
        self.child.iter().for_each(|child| signal(child, "STOP"));
    }

    /// Lets it go on.
    pub(crate) fn resume(&self) {
        self.child.iter().for_each(|child| signal(child, "CONT"));
    }

    /// Returns it for the holder of a token.
    pub(crate) fn endpoint(&self, token: &str) -> Endpoint {
        let ca = fs::read_to_string(self.dir.join("ca.crt")).expect("the CA was written");
        Endpoint::tls(([127, 0, 0, 1], self.port).into(), &ca, token)
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Writes a kubeconfig for a token and a port of this machine, and returns its path.
pub(crate) fn write_kubeconfig(dir: &Path, port: u16, token: &str) -> PathBuf {
    let path = dir.join(format!("kubeconfig-{token}-{port}"));
    let ca = dir.join("ca.crt");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: t\n\
         clusters: [{{name: t, cluster: {{server: \"https://127.0.0.1:{port}\", certificate-authority: {}}}}}]\n\
         users: [{{name: t, user: {{token: {token}}}}}]\n\
         contexts: [{{name: t, context: {{cluster: t, user: t}}}}]\n",
        ca.display()
    );
    fs::write(&path, text).expect("the kubeconfig is written");
    path
}

fn signal(child: &Child, name: &str) {
    let pid = child.id().to_string();
    let status = Command::new("kill").args([&format!("-{name}"), &pid]).status();
    assert!(status.expect("kill runs").success());
}

fn kill(child: &mut Option<Child>) {
    if let Some(mut child) = child.take() {
        drop(child.kill());
        drop(child.wait());
    }
}

fn log(dir: &Path, name: &str) -> fs::File {
    let path = dir.join(format!("{name}.log"));
    fs::File::options().create(true).append(true).open(path).expect("the log opens")
}

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
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
