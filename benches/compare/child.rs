//! The comparison's own servers: this very program, started again in another role.
//!
//! It tells on its standard output where it listens, and ends when its standard input does, so that none outlives a run.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde::{Deserialize, Serialize};

/// Where a server is to be found.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Place {
    pub(crate) url: String,
    /// PEM.
    pub(crate) ca: String,
}

/// Ends with its value.
pub(crate) struct Role {
    child: Child,
    pub(crate) place: Place,
    _output: BufReader<ChildStdout>,
}

impl Role {
    /// Starts this program with these arguments, and waits until it serves.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut output = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut line = String::new();
        output.read_line(&mut line).expect("it tells");
        let place = serde_json::from_str(&line).expect("where it listens");
        Self { child, place, _output: output }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }
}

/// In such a process: tells where it serves, and waits for the end.
pub(crate) async fn serve_until_told(place: &Place) {
    #[expect(clippy::print_stdout, reason = "the parent reads it")]
    {
        println!("{}", serde_json::to_string(place).expect("JSON"));
    }
    let end = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    end.await.expect("it ends").expect("it is piped");
}
