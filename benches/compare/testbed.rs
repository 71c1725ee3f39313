//! The servers of a run: those that the command line names, and those that the run starts and
//! stops.

use std::path::Path;

use http::header;
use http_body_util::BodyExt as _;
use serde_json::Value;
use tempfile::TempDir;

use crate::args::Compare;
use crate::child::{ChildServer, Endpoint};
use crate::client::{Connection, PreparedRequest, Protocol};
use crate::floor::{Answer, Plan};
use crate::nginx::Nginx;
use crate::own_weir::{Identity, OwnWeir};
use crate::pods;
use crate::reads::Read;
use crate::server::{FLOOR, Server, UPSTREAM, WEIR, read_ca};
use crate::usage::Usage;

pub(crate) struct Testbed {
    pub(crate) upstream: Server,
    pub(crate) weir: Server,
    pub(crate) floor: Server,
    nginx: Option<Nginx>,
    own_weir: Option<OwnWeir>,
    own_floor: ChildServer,
    token: String,
    _simulator: Option<ChildServer>,
    /// Holds certificates, the upstream's responses and the floor's configuration.
    directory: TempDir,
}

impl Testbed {
    pub(crate) async fn start(args: &Compare, reads: &[Read]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let simulator =
            args.upstream.is_none().then(|| ChildServer::start(&["simulator", &args.token]));
        let (endpoint, upstream) = upstream(args, simulator.as_ref());
        if args.fill || simulator.is_some() {
            pods::fill(&upstream).await;
        }
        let identity = Identity::new();
        identity.write(directory.path());
        let answers = answers(&upstream, reads, directory.path()).await;
        let token = args.token.clone();
        let own_weir =
            args.weir.is_none().then(|| OwnWeir::new(&endpoint, &token, directory.path()));
        let weir = match &own_weir {
            Some(started_weir) => started_weir.server(&identity, &token),
            None => given_weir(args),
        };
        let nginx = match &args.nginx {
            Some(program) => Some(Nginx::start(program, directory.path(), &identity, &token).await),
            None => None,
        };
        let Identity { certificate, key } = identity;
        Plan { upstream: endpoint, token: token.clone(), certificate, key, answers }
            .write(directory.path());
        let (own_floor, floor) = start_floor(directory.path(), &token);
        let mut testbed = Self {
            upstream,
            weir,
            floor,
            nginx,
            own_weir,
            own_floor,
            token,
            _simulator: simulator,
            directory,
        };
        testbed.restart().await;
        for server in testbed.readable() {
            if server.usage.sample().await.cpu.is_nan() {
                println!(
                    "{}: CPU time and memory are unknown; --help lists the options for them",
                    server.name
                );
            }
        }
        testbed
    }

    /// Restarts the floor, and Weir if the run started it, so that no row includes the memory of an
    /// earlier one. Returns whether Weir was restarted.
    pub(crate) async fn restart(&mut self) -> bool {
        self.restart_with(Value::Null).await
    }

    /// Restarts them like [`Self::restart`]; Weir with this section `cache`.
    pub(crate) async fn restart_with(&mut self, cache: Value) -> bool {
        (self.own_floor, self.floor) = start_floor(self.directory.path(), &self.token);
        let Some(started_weir) = &mut self.own_weir else { return false };
        self.weir.usage = Usage::Process(started_weir.start(cache).await);
        true
    }

    /// Returns the servers that serve reads.
    pub(crate) fn readable(&self) -> Vec<&Server> {
        let nginx = self.nginx.as_ref().map(|nginx| &nginx.server);
        [&self.upstream, &self.weir, &self.floor].into_iter().chain(nginx).collect()
    }
}

fn upstream(args: &Compare, simulator: Option<&ChildServer>) -> (Endpoint, Server) {
    let (endpoint, pid) = match simulator {
        Some(child) => (child.endpoint.clone(), Some(child.pid())),
        None => {
            let url = args.upstream.clone().expect("a URL, since there is no simulator");
            (Endpoint { url, ca: read_ca(args.upstream_ca.as_deref()) }, args.upstream_pid)
        }
    };
    let at_home = format!("{}/metrics", endpoint.url.trim_end_matches('/'));
    let metrics = args.upstream_metrics.as_deref().unwrap_or(&at_home);
    let server = Server::new(UPSTREAM, &endpoint.url, &endpoint.ca, &args.token);
    let server = server.measured(pid, Some(metrics), &endpoint.ca, &args.token);
    (endpoint, server)
}

fn given_weir(args: &Compare) -> Server {
    let ca = read_ca(args.weir_ca.as_deref());
    let url = args.weir.as_deref().expect("a URL, since no Weir was started");
    let server = Server::new(WEIR, url, &ca, &args.token);
    server.measured(args.weir_pid, args.weir_metrics.as_deref(), &ca, &args.token)
}

fn start_floor(directory: &Path, token: &str) -> (ChildServer, Server) {
    let child = ChildServer::start(&["floor", directory.to_str().expect("a path")]);
    let mut server = Server::new(FLOOR, &child.endpoint.url, &child.endpoint.ca, token);
    server.usage = Usage::Process(child.pid());
    (child, server)
}

/// Sends each row's request to the upstream once and writes the responses to files.
async fn answers(upstream: &Server, reads: &[Read], directory: &Path) -> Vec<Answer> {
    let connection = Connection::open(upstream, Protocol::Http2).await;
    let mut answers = Vec::new();
    for read in reads {
        let request = PreparedRequest::get(upstream, &read.path, read.accept, read.gzip);
        let (parts, body) = connection.send(&request).await.into_parts();
        assert!(
            parts.status.is_success(),
            "{}: {}; are pods missing (--fill)?",
            read.path,
            parts.status
        );
        let encoded = parts.headers.contains_key(header::CONTENT_ENCODING);
        // Before 1.37, watches are never compressed.
        assert!(encoded == read.gzip || read.is_watch(), "{}: gzip", read.path);
        let body = body.collect().await.expect("a body").to_bytes();
        std::fs::write(directory.join(read.name), &body).expect("a file");
        let content_type = parts.headers.get(header::CONTENT_TYPE).expect("a media type");
        answers.push(Answer {
            path: read.path.clone(),
            accept: read.accept.to_owned(),
            gzip: read.gzip,
            encoded,
            content_type: content_type.to_str().expect("text").to_owned(),
            file: read.name.to_owned(),
        });
    }
    answers
}
