//! The memory of requests that wait in a server that does nothing else: hyper, as a process of its
//! own. Weir itself takes all memory that its requests need beyond that.

use std::convert::Infallible;
use std::future::pending;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Stdio;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};

/// The first argument of the process.
pub(crate) const FLOOR: &str = "floor";

/// The process, as the bench sees it. It is killed on drop.
pub(crate) struct Floor {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Floor {
    pub(crate) async fn start() -> Self {
        let mut command = Command::new(std::env::current_exe().expect("its own path"));
        command.arg(FLOOR).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().expect("the process starts");
        let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        output.read_line(&mut line).await.expect("text");
        Self { child, address: line.trim().parse().expect("an address") }
    }

    /// Returns its directory in `/proc`.
    pub(crate) fn proc(&self) -> String {
        format!("/proc/{}", self.child.id().expect("it runs"))
    }
}

/// Runs as that process: accepts HTTP/2, and answers nothing.
pub(crate) async fn run() -> ! {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
    println!("{}", listener.local_addr().expect("its address"));
    loop {
        let (tcp, _) = listener.accept().await.expect("a connection");
        let wait = service_fn(|request: Request<Incoming>| async move {
            let _request = request;
            pending::<Result<Response<Empty<Bytes>>, Infallible>>().await
        });
        tokio::spawn(async move {
            let mut builder = Builder::new(TokioExecutor::new());
            builder.max_concurrent_streams(1_000);
            drop(builder.serve_connection(TokioIo::new(tcp), wait).await);
        });
    }
}
