//! The servers that the comparison starts: this program with a subcommand, in separate processes.
//!
//! A server prints its address to standard output. It ends when its standard input closes, so that
//! it never outlives the run.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde::{Deserialize, Serialize};

/// The address of a server.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Endpoint {
    pub(crate) url: String,
    /// PEM.
    pub(crate) ca: String,
}

/// A running server process, which is killed on drop.
pub(crate) struct ChildServer {
    child: Child,
    pub(crate) endpoint: Endpoint,
    _output: BufReader<ChildStdout>,
}

impl ChildServer {
    /// Starts this program with these arguments, and waits until it listens.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let mut output = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let mut line = String::new();
        output.read_line(&mut line).expect("the server prints its address");
        let endpoint = serde_json::from_str(&line).expect("an address in JSON");
        Self { child, endpoint, _output: output }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for ChildServer {
    fn drop(&mut self) {
        self.child.kill().expect("the server runs");
        self.child.wait().expect("the server ends");
    }
}

/// Prints the address of this server process for its parent, and waits until the parent ends it.
pub(crate) async fn serve_until_stdin_closes(endpoint: &Endpoint) {
    #[expect(clippy::print_stdout, reason = "the parent reads it")]
    {
        println!("{}", serde_json::to_string(endpoint).expect("JSON"));
    }
    let end = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    end.await.expect("the reader ends").expect("stdin is readable");
}
