//! A user with 200 lists of 25 MB at once, as a process of its own at a lower priority.
//!
//! Clients and Weir share the machine. At the priority of the others the 200 readers would take the
//! processors for milliseconds at a time, and a latency beside them would show the scheduler of the
//! kernel. So they get a ninth of what Weir gets, or what it leaves: Weir has always something to
//! send. The lowest priority would be too low where others work: the readers would not read.

use std::io::Read as _;
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::client::{Client, LIST};

/// The first argument of the process.
pub(crate) const CROWD: &str = "crowd";
const LISTS_AT_ONCE: usize = 200;
const USER: usize = 1;

/// The process, as the bench sees it.
pub(crate) struct Crowd(Child);

impl Crowd {
    pub(crate) fn start(address: SocketAddr) -> Self {
        let bench = std::env::current_exe().expect("its own path");
        let mut command = Command::new("nice");
        command.args(["-n", "10"]).arg(bench).arg(CROWD).arg(address.to_string());
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        Self(command.spawn().expect("the process starts"))
    }

    /// Ends it. Returns how many lists were answered, and how many refused, as text.
    pub(crate) async fn end(mut self) -> String {
        drop(self.0.stdin.take());
        let mut counts = String::new();
        let mut output = self.0.stdout.take().expect("a pipe");
        output.read_to_string(&mut counts).await.expect("text");
        counts.trim().to_owned()
    }
}

/// Runs as that process, until its input ends.
pub(crate) async fn run(address: SocketAddr) {
    let counters = Arc::new([const { AtomicUsize::new(0) }; 2]);
    let mut readers = JoinSet::new();
    for _ in 0..LISTS_AT_ONCE {
        let counters = Arc::clone(&counters);
        readers.spawn(async move {
            let mut client = Client::open(USER, address).await;
            let [answered, refused] = &*counters;
            loop {
                if client.get(LIST).await.code == 200 {
                    answered.fetch_add(1, Ordering::Relaxed);
                } else {
                    refused.fetch_add(1, Ordering::Relaxed);
                    sleep(Duration::from_secs(1)).await;
                }
            }
        });
    }
    let ends = || std::io::stdin().read_to_end(&mut Vec::new());
    tokio::task::spawn_blocking(ends).await.expect("it ends").expect("it is closed");
    let [answered, refused] = counters.each_ref().map(|counter| counter.load(Ordering::Relaxed));
    println!("{answered} lists, {refused} refused");
}
