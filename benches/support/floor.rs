//! The floor of a bench: hyper alone, as a process of its own, with which Weir is compared. The
//! bench starts itself again with [`FLOOR`] as its argument, and listens by [`listen`] there.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Stdio;

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

/// Listens, as that process, and prints its address for the bench.
pub(crate) async fn listen() -> TcpListener {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
    println!("{}", listener.local_addr().expect("its address"));
    listener
}
