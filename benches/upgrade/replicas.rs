//! The Weirs, and their replacement.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::api_server::ApiServer;
use crate::args::Args;
use crate::balancer::{Balancer, is_ready};
use crate::client::Endpoint;
use crate::objects::RESOURCES;
use crate::weir_process::{Weir, free_address};

pub(crate) struct Replicas {
    pub(crate) balancer: Balancer,
    /// The old ones, until they are replaced, and the new ones.
    weirs: Vec<Replica>,
    kubeconfig: String,
    directory: TempDir,
    ca: String,
    /// The end of each old Weir.
    pub(crate) ends: Vec<EndOfReplica>,
    settings: Value,
    min_ready: Duration,
    end_within: Duration,
    /// Connections and refused ones before the upgrade.
    before: [usize; 2],
    began: Instant,
}

struct Replica {
    weir: Weir,
    admin: SocketAddr,
}

/// The end of a Weir after SIGTERM.
pub(crate) struct EndOfReplica {
    pub(crate) code: Option<i32>,
    pub(crate) took: Duration,
}

impl Replicas {
    /// Starts two Weirs, and waits until the balancer knows both.
    pub(crate) async fn start(args: &Args, api_server: &ApiServer) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let generated = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]);
        let generated = generated.expect("a certificate");
        let ca = generated.cert.pem();
        let path = |name: &str| directory.path().join(name);
        std::fs::write(path("tls.crt"), &ca).expect("a file");
        std::fs::write(path("tls.key"), generated.signing_key.serialize_pem()).expect("a file");
        let warm = RESOURCES.each_ref().map(|resource| resource.path());
        let warm = warm.map(|path| path.replace("/apis/", "").replace("/api/", ""));
        let mut settings = json!({
            "server": {
                "shutdownDelay": format!("{}s", args.delay),
                "shutdownTimeout": format!("{}s", args.drain)},
            "authentication": {"mode": "gateway"},
            "audit": {"output": "none"},
        });
        if let (Some(settings), true) = (settings.as_object_mut(), args.warm) {
            settings.insert("cache".to_owned(), json!({"warm": warm}));
        }
        let mut replicas = Self {
            balancer: Balancer::start(args.late()).await,
            weirs: Vec::new(),
            kubeconfig: api_server.kubeconfig(),
            directory,
            ca,
            ends: Vec::new(),
            settings,
            min_ready: Duration::from_secs(args.min_ready),
            end_within: Duration::from_secs(args.delay + args.drain + 10),
            before: [0; 2],
            began: Instant::now(),
        };
        for _ in 0..REPLICAS {
            replicas.add().await;
        }
        while replicas.balancer.ready() < REPLICAS {
            sleep(POLL).await;
        }
        replicas
    }

    /// Where clients connect.
    pub(crate) fn endpoint(&self) -> Endpoint {
        Endpoint::new(self.balancer.address, &self.ca)
    }

    /// Starts a Weir, and waits until it is ready.
    async fn add(&mut self) {
        let (address, admin) = (free_address(), free_address());
        let file = |name: &str| self.directory.path().join(name);
        let mut sections = self.settings.clone();
        let server = sections.get_mut("server").and_then(Value::as_object_mut);
        server.expect("a section").insert(
            "listeners".to_owned(),
            json!([{"listen": format!("https://{address}"), "certificate": {
                "certificateFile": file("tls.crt"), "privateKeyFile": file("tls.key"),
                "caFile": file("tls.crt")}}]),
        );
        if let Some(sections) = sections.as_object_mut() {
            sections.insert("admin".to_owned(), json!({"listen": admin.to_string()}));
        }
        let weir = Weir::start_at(address, &self.kubeconfig, sections).await;
        let deadline = Instant::now() + READY_WITHIN;
        while !is_ready(admin).await {
            assert!(Instant::now() < deadline, "weir is not ready");
            sleep(POLL).await;
        }
        self.balancer.add(address, admin);
        self.weirs.push(Replica { weir, admin });
    }

    /// Replaces one Weir after the other, and waits until the old ones have ended.
    pub(crate) async fn replace_all(&mut self) {
        self.before = [self.balancer.connections(), self.balancer.refused()];
        self.began = Instant::now();
        let mut ending = Vec::new();
        for _ in 0..REPLICAS {
            self.add().await;
            sleep(self.min_ready).await;
            let old = self.weirs.remove(0);
            old.weir.terminate();
            ending.push((old, Instant::now()));
        }
        for (mut old, began) in ending {
            while old.weir.runs() && began.elapsed() < self.end_within {
                sleep(POLL).await;
            }
            let code = old.weir.exit_code();
            self.ends.push(EndOfReplica { code, took: began.elapsed() });
        }
    }

    /// Returns the connections of the upgrade, and those of them that were refused.
    pub(crate) fn connections(&self) -> [usize; 2] {
        let [connections, refused] = self.before;
        [self.balancer.connections() - connections, self.balancer.refused() - refused]
    }

    /// Returns when the connections of the upgrade were opened, after its begin.
    pub(crate) fn opened(&self) -> Vec<Duration> {
        self.balancer.opened_since(self.began)
    }

    /// Returns the addresses of the admin listeners, and the CPU time of each Weir.
    pub(crate) fn running(&self) -> impl Iterator<Item = (SocketAddr, Duration)> {
        self.weirs.iter().map(|replica| (replica.admin, replica.weir.cpu()))
    }
}

pub(crate) const REPLICAS: usize = 2;
const POLL: Duration = Duration::from_millis(100);
const READY_WITHIN: Duration = Duration::from_secs(30);
