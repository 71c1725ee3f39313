//! Several API servers on one etcd, each with a relay of its own to it, and the faults.

use std::path::PathBuf;
use std::sync::Arc;

use tempfile::TempDir;
use tokio::runtime::Handle;

use super::reference::{Base, range};
use super::relay::Relay;
use crate::control_plane::{
    ADMIN, ApiServer, Etcd, WITH_WATCH_LIST, assets, write_credentials, write_kubeconfig,
};

/// One etcd with its API servers.
pub(super) struct Cluster {
    pub(super) servers: Vec<ApiServer>,
    /// The relays from each API server to etcd.
    links: Vec<Relay>,
    etcd: Etcd,
    assets: PathBuf,
    dir: Arc<TempDir>,
}

impl Cluster {
    /// Starts everything and waits until it is ready.
    pub(super) fn start(runtime: &Handle, servers: usize) -> Self {
        let dir = Arc::new(tempfile::tempdir().unwrap());
        write_credentials(dir.path());
        let assets = assets().unwrap();
        let etcd = Etcd::new(&assets, dir.path(), "etcd");
        let mut cluster = Self { servers: Vec::new(), links: Vec::new(), etcd, assets, dir };
        cluster.etcd.start();
        cluster.add_servers(runtime, servers);
        // The first one writes what every cluster has.
        cluster.servers.iter_mut().for_each(ApiServer::start);
        cluster
    }

    fn add_servers(&mut self, runtime: &Handle, servers: usize) {
        for _ in 0..servers {
            let link = runtime.block_on(Relay::start(vec![self.etcd.port()]));
            let url = format!("http://127.0.0.1:{}", link.port());
            let mut server = ApiServer::new(&self.assets, self.dir.path(), url);
            server.add_argument(WITH_WATCH_LIST);
            self.servers.push(server);
            self.links.push(link);
        }
    }

    /// Starts another cluster whose resourceVersions are higher: a copy with another uid of
    /// `kube-system` and without some objects. Returns it with its state before its API server
    /// began.
    pub(super) fn another(&self, runtime: &Handle) -> (Self, Base) {
        let dir = Arc::clone(&self.dir);
        self.etcd.save(&dir.path().join("other"));
        let etcd = Etcd::new(&self.assets, dir.path(), "other");
        let assets = self.assets.clone();
        let mut other = Self { servers: Vec::new(), links: Vec::new(), etcd, assets, dir };
        other.etcd.start();
        for prefix in ["/registry/namespaces/kube-system", "/registry/configmaps/a/"] {
            other.etcd.revision();
            other.etcd.delete(prefix);
        }
        let base = runtime.block_on(range(other.etcd.port()));
        other.add_servers(runtime, 1);
        other.servers.iter_mut().for_each(ApiServer::start);
        (other, base)
    }

    pub(super) fn ports(&self) -> Vec<u16> {
        self.servers.iter().map(ApiServer::port).collect()
    }

    pub(super) fn etcd_port(&self) -> u16 {
        self.etcd.port()
    }

    pub(super) fn revision(&self) -> u64 {
        self.etcd.revision()
    }

    /// Delays what etcd sends to one API server.
    pub(super) fn set_delay(&self, server: usize, delay: std::time::Duration) {
        self.links[server].set_delay(delay);
    }

    /// Takes a snapshot of etcd.
    pub(super) fn save(&self) {
        self.etcd.save(&self.dir.path().join("saved"));
    }

    /// Stops everything like a crash.
    pub(super) fn kill_servers(&mut self) {
        self.servers.iter_mut().for_each(ApiServer::kill);
    }

    /// Gives etcd the data of the snapshot, and returns its revision. The API servers are stopped.
    pub(super) fn restore(&mut self) -> u64 {
        self.etcd.kill();
        self.etcd.restore(&self.dir.path().join("saved"));
        self.etcd.start();
        self.etcd.revision()
    }

    /// Writes a kubeconfig for a token and a port.
    pub(super) fn kubeconfig(&self, port: u16, token: &str) -> PathBuf {
        write_kubeconfig(self.dir.path(), port, token)
    }

    /// Returns a kubeconfig of the administrator for a port.
    pub(super) fn admin(&self, port: u16) -> PathBuf {
        self.kubeconfig(port, ADMIN)
    }
}
