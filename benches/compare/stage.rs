//! The servers of a run: those given, and those started for it, which end with it.

use std::path::Path;

use http::header;
use http_body_util::BodyExt as _;
use tempfile::TempDir;

use crate::args::Compare;
use crate::child::{Place, Role};
use crate::client::{Ask, Connection, Protocol};
use crate::floor::{Answer, Plan};
use crate::nginx::Nginx;
use crate::own_weir::{Identity, OwnWeir};
use crate::pods;
use crate::reads::Read;
use crate::server::{FLOOR, Server, UPSTREAM, WEIR, read_ca};
use crate::usage::Usage;

pub(crate) struct Stage {
    pub(crate) upstream: Server,
    pub(crate) weir: Server,
    pub(crate) floor: Server,
    nginx: Option<Nginx>,
    own_weir: Option<OwnWeir>,
    own_floor: Role,
    token: String,
    _simulator: Option<Role>,
    /// Certificates, the upstream's answers, and what the floor is told.
    directory: TempDir,
}

impl Stage {
    pub(crate) async fn set(args: &Compare, reads: &[Read]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let simulator = args.upstream.is_none().then(|| Role::start(&["simulator", &args.token]));
        let (place, upstream) = upstream(args, simulator.as_ref());
        if args.fill || simulator.is_some() {
            pods::fill(&upstream).await;
        }
        let identity = Identity::new();
        identity.write(directory.path());
        let answers = answers(&upstream, reads, directory.path()).await;
        let token = args.token.clone();
        let own_weir = args.weir.is_none().then(|| OwnWeir::new(&place, &token, directory.path()));
        let weir = match &own_weir {
            Some(own) => own.server(&identity, &token),
            None => given_weir(args),
        };
        let nginx = match &args.nginx {
            Some(program) => Some(Nginx::start(program, directory.path(), &identity, &token).await),
            None => None,
        };
        let Identity { certificate, key } = identity;
        Plan { upstream: place, token: token.clone(), certificate, key, answers }
            .write(directory.path());
        let (own_floor, floor) = start_floor(directory.path(), &token);
        let mut stage = Self {
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
        stage.fresh().await;
        for server in stage.readable() {
            if server.usage.used().await.cpu.is_nan() {
                println!("{}: nobody tells its CPU time and memory; --help", server.name);
            }
        }
        stage
    }

    /// Starts those afresh that are the run's own, so that no row pays for another's memory. Whether Weir is one of them.
    pub(crate) async fn fresh(&mut self) -> bool {
        (self.own_floor, self.floor) = start_floor(self.directory.path(), &self.token);
        let Some(own) = &mut self.own_weir else { return false };
        self.weir.usage = Usage::Process(own.start().await);
        true
    }

    /// Those that serve reads.
    pub(crate) fn readable(&self) -> Vec<&Server> {
        let nginx = self.nginx.as_ref().map(|it| &it.server);
        [&self.upstream, &self.weir, &self.floor].into_iter().chain(nginx).collect()
    }
}

fn upstream(args: &Compare, simulator: Option<&Role>) -> (Place, Server) {
    let (place, pid) = match simulator {
        Some(role) => (role.place.clone(), Some(role.pid())),
        None => {
            let url = args.upstream.clone().expect("one or the other");
            (Place { url, ca: read_ca(args.upstream_ca.as_deref()) }, args.upstream_pid)
        }
    };
    let at_home = format!("{}/metrics", place.url.trim_end_matches('/'));
    let metrics = args.upstream_metrics.as_deref().unwrap_or(&at_home);
    let server = Server::new(UPSTREAM, &place.url, &place.ca, &args.token);
    let server = server.measured(pid, Some(metrics), &place.ca, &args.token);
    (place, server)
}

fn given_weir(args: &Compare) -> Server {
    let ca = read_ca(args.weir_ca.as_deref());
    let url = args.weir.as_deref().expect("it is given");
    let server = Server::new(WEIR, url, &ca, &args.token);
    server.measured(args.weir_pid, args.weir_metrics.as_deref(), &ca, &args.token)
}

fn start_floor(directory: &Path, token: &str) -> (Role, Server) {
    let role = Role::start(&["floor", directory.to_str().expect("a path")]);
    let mut server = Server::new(FLOOR, &role.place.url, &role.place.ca, token);
    server.usage = Usage::Process(role.pid());
    (role, server)
}

/// Asks the upstream once for everything, and keeps it.
async fn answers(upstream: &Server, reads: &[Read], directory: &Path) -> Vec<Answer> {
    let connection = Connection::open(upstream, Protocol::Http2).await;
    let mut answers = Vec::new();
    for read in reads {
        let ask = Ask::get(upstream, &read.path, read.accept, read.gzip);
        let (parts, body) = connection.send(&ask).await.into_parts();
        assert!(parts.status.is_success(), "{}: {}; --fill?", read.path, parts.status);
        let encoded = parts.headers.contains_key(header::CONTENT_ENCODING);
        assert_eq!(encoded, read.gzip, "{}: gzip", read.path);
        let body = body.collect().await.expect("a body").to_bytes();
        std::fs::write(directory.join(read.name), &body).expect("a file");
        let content_type = parts.headers.get(header::CONTENT_TYPE).expect("a media type");
        answers.push(Answer {
            path: read.path.clone(),
            accept: read.accept.to_owned(),
            gzip: read.gzip,
            content_type: content_type.to_str().expect("text").to_owned(),
            file: read.name.to_owned(),
        });
    }
    answers
}
