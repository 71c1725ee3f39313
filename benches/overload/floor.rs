//! The CPU time of a refusal in a server that does nothing else: hyper, as a process of its own.
//! The rest of the CPU time of a refusal is Weir's own.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Stdio;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
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

/// Runs as that process: refuses every request in the same words.
pub(crate) async fn run() -> ! {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
    println!("{}", listener.local_addr().expect("its address"));
    loop {
        let (tcp, _) = listener.accept().await.expect("a connection");
        tcp.set_nodelay(true).expect("a socket");
        let refuse = service_fn(|_: Request<Incoming>| async {
            let response = Response::builder()
                .status(StatusCode::TOO_MANY_REQUESTS)
                .header(CONTENT_TYPE, "application/json")
                .header(RETRY_AFTER, "1")
                .body(Full::new(Bytes::from_static(STATUS)))
                .expect("a response");
            Ok::<_, Infallible>(response)
        });
        tokio::spawn(async move {
            drop(Builder::new().serve_connection(TokioIo::new(tcp), refuse).await);
        });
    }
}

const STATUS: &[u8] = br#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too many requests, please try again later","reason":"TooManyRequests","details":{"retryAfterSeconds":1},"code":429}"#;
