//! A real kube-apiserver with its etcd, from the binaries of envtest's convention.

mod processes;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::TempDir;

pub(crate) use self::processes::{ApiServer, Etcd, write_kubeconfig};

use crate::matrix_suite::world::Side;
use crate::suite::wire::{Call, Endpoint};

/// Names the directory of the next version, for tests of an upgrade.
pub(crate) const UPGRADE: &str = "KUBEBUILDER_ASSETS_UPGRADE";

/// Returns the directories that `$KUBEBUILDER_ASSETS` names, or the default one.
pub(crate) fn asset_dirs() -> Vec<PathBuf> {
    std::env::var_os("KUBEBUILDER_ASSETS").map_or_else(
        || vec![PathBuf::from("/usr/local/kubebuilder/bin")],
        |dirs| std::env::split_paths(&dirs).collect(),
    )
}

/// Returns the directory of the binaries, if all required ones are there.
pub(crate) fn assets() -> Option<PathBuf> {
    asset_dirs().into_iter().next().filter(|dir| is_complete(dir))
}

/// Returns the directory of the version to which a test upgrades, if its binaries are there.
pub(crate) fn upgraded_assets() -> Option<PathBuf> {
    std::env::var_os(UPGRADE).map(PathBuf::from).filter(|dir| is_complete(dir))
}

fn is_complete(dir: &Path) -> bool {
    ["etcd", "kube-apiserver"].iter().all(|name| dir.join(name).is_file())
}

/// Returns the version of the API server in a directory, like `v1.36.2`.
pub(crate) fn version_of(dir: &Path) -> Option<String> {
    let output = Command::new(dir.join("kube-apiserver")).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().strip_prefix("Kubernetes ").map(str::to_owned)
}

/// Returns the minor version of the API server: 36 of `v1.36.2`.
pub(crate) fn minor() -> Option<u32> {
    version_of(&assets()?)?.split('.').nth(1)?.parse().ok()
}

/// Whether the API server has the feature gate of shard selectors, by its own help text.
pub(crate) fn has_shard_selectors() -> bool {
    let help = assets()
        .and_then(|dir| Command::new(dir.join("kube-apiserver")).arg("--help").output().ok());
    help.is_some_and(|output| {
        String::from_utf8_lossy(&output.stdout).contains("ShardedListAndWatch=true|false")
    })
}

/// Turns watch-list on, which is off by default in some versions: alpha up to 1.31, and 1.33.
pub(crate) const WITH_WATCH_LIST: &str = "--feature-gates=WatchList=true";

/// Returns kubectl beside the other binaries, or on the path.
pub(crate) fn kubectl() -> Option<PathBuf> {
    let beside_the_others = assets()?.join("kubectl");
    if beside_the_others.exists() {
        return Some(beside_the_others);
    }
    let output = Command::new("kubectl").args(["version", "--client"]).output().ok()?;
    output.status.success().then(|| "kubectl".into())
}

/// The token of the user `admin` in `system:masters`.
pub(crate) const ADMIN: &str = "admin-token";
/// The token of the user `alice`, whose permissions come from RBAC.
pub(crate) const ALICE: &str = "alice-token";
/// The token of the user `bob`, the same.
pub(crate) const BOB: &str = "bob-token";

/// etcd and kube-apiserver on loopback, killed when dropped.
pub(crate) struct ControlPlane {
    apiserver: ApiServer,
    etcd: Etcd,
    dir: TempDir,
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
        let assets = assets().expect("the binaries are there");
        let mut etcd = Etcd::new(&assets, dir.path(), "etcd");
        etcd.start();
        let mut apiserver = ApiServer::new(&assets, dir.path(), etcd.url());
        arguments.iter().for_each(|argument| apiserver.add_argument(argument));
        apiserver.start();
        Self { apiserver, etcd, dir }
    }

    /// Starts both with watch-list, also where it is off by default.
    pub(crate) fn start_with_watch_list() -> Self {
        let plane = Self::start_with(&[WITH_WATCH_LIST]);
        assert!(plane.has_watch_list(), "this API server has no watch-list at all");
        plane
    }

    /// Starts etcd on its data.
    pub(crate) fn start_etcd(&mut self) {
        self.etcd.start();
    }

    /// Starts the API server and waits until it is ready.
    pub(crate) fn start_apiserver(&mut self) {
        self.apiserver.start();
    }

    /// Kills the API server like a crash.
    pub(crate) fn kill_apiserver(&mut self) {
        self.apiserver.kill();
    }

    /// Kills etcd like a crash.
    pub(crate) fn kill_etcd(&mut self) {
        self.etcd.kill();
    }

    /// Copies etcd's data while it is stopped.
    pub(crate) fn save_etcd(&self, name: &str) {
        self.etcd.save(&self.dir.path().join(name));
    }

    /// Restores data saved earlier while etcd is stopped.
    pub(crate) fn restore_etcd(&self, name: &str) {
        self.etcd.restore(&self.dir.path().join(name));
    }

    /// Returns the directory with the credentials.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Writes a kubeconfig for a token into the plane's directory, and returns its path.
    pub(crate) fn kubeconfig(&self, token: &str) -> PathBuf {
        write_kubeconfig(self.dir.path(), self.apiserver.port(), token)
    }

    /// Returns the API server itself, for the holder of a token.
    pub(crate) fn endpoint(&self, token: &str) -> Endpoint {
        self.apiserver.endpoint(token)
    }

    /// Returns the API server as a side of the matrix.
    pub(crate) fn side(&self) -> Side {
        let ca = fs::read_to_string(self.dir.path().join("ca.crt")).expect("the CA was written");
        Side { address: ([127, 0, 0, 1], self.apiserver.port()).into(), ca }
    }

    /// GETs a path of the API server as admin. Returns the body, or none if there was no whole
    /// response.
    pub(crate) fn get(&self, path: &str) -> Option<String> {
        fetch(&self.endpoint(ADMIN), &Call::get(path))
    }

    /// Returns how kubectl validates manifests. An API server that was built with Go 1.27 serves no
    /// schemas (its `/openapi/v2` is 503), so that kubectl cannot.
    pub(crate) fn validation(&self) -> &'static str {
        let has_schemas = self.get("/openapi/v2").is_some_and(|text| text.contains("\"swagger\""));
        if has_schemas { "--validate=strict" } else { "--validate=ignore" }
    }

    /// Whether the API server supports watch-list: otherwise it rejects one as invalid.
    pub(crate) fn has_watch_list(&self) -> bool {
        let query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
        let path = format!("/api/v1/configmaps?{query}&timeoutSeconds=1");
        let answer = self.get(&path).expect("the API server answers");
        !answer.contains(r#""code":422"#)
    }

    /// Compacts etcd's history up to now.
    pub(crate) fn compact(&self) {
        self.etcd.compact();
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

/// A CA with a serving certificate, tokens, and a key for service accounts.
pub(crate) fn write_credentials(dir: &Path) {
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
    let tokens = [
        format!("{ADMIN},admin,1,\"system:masters\"\n"),
        format!("{ALICE},alice,2,\"dev\"\n"),
        format!("{BOB},bob,3,\"dev\"\n"),
    ];
    write("tokens.csv", tokens.concat());
}

fn key() -> KeyPair {
    KeyPair::generate().expect("a key")
}
