//! The command line.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

/// Replaces two Weirs one after the other under watches, reads and writes; counts failed requests,
/// lost events, clients that list again, and what reaches the API server
#[derive(Parser, Debug)]
#[command(name = "upgrade")]
pub(crate) struct Args {
    /// Number of watchers
    #[arg(long, default_value_t = WATCHERS)]
    pub(crate) watchers: usize,
    /// Watchers that share a connection, as the informers of one process do
    #[arg(long, default_value_t = NonZeroUsize::MIN)]
    pub(crate) per_connection: NonZeroUsize,
    /// Milliseconds between two requests of a reader or of the writer
    #[arg(long, default_value_t = 250)]
    pub(crate) interval: u64,
    /// Number of readers: every second one reads from the caches, the others are forwarded
    #[arg(long, default_value_t = 20)]
    pub(crate) readers: usize,
    /// Number of service accounts that the clients share
    #[arg(long, default_value_t = 50)]
    pub(crate) users: usize,
    /// Number of objects of each resource
    #[arg(long, default_value_t = 200)]
    pub(crate) objects: usize,
    /// server.shutdownDelay, in seconds
    #[arg(long, default_value_t = 10)]
    pub(crate) delay: u64,
    /// server.shutdownTimeout, in seconds
    #[arg(long, default_value_t = 120)]
    pub(crate) drain: u64,
    /// Seconds between a new Weir's readiness and the end of an old one
    #[arg(long, default_value_t = 15)]
    pub(crate) min_ready: u64,
    /// Seconds until the balancer learns that a Weir is ready, or no longer is
    #[arg(long, default_value_t = 5)]
    pub(crate) late: u64,
    /// Fill the caches before a Weir is ready (`cache.warm`). Without it, the first watches that
    /// come back begin before the cache does, and cost a second list
    #[arg(long)]
    pub(crate) warm: bool,
    /// Print the lists and watches among the last 2,048 requests of the simulator
    #[arg(long)]
    pub(crate) requests: bool,
    /// URL of a real API server, https://127.0.0.1:PORT; the default is a simulator. Use it only
    /// with a throwaway control plane
    #[arg(long)]
    pub(crate) upstream: Option<String>,
    /// File with the CA of the API server, PEM
    #[arg(long)]
    pub(crate) upstream_ca: Option<PathBuf>,
    /// Bearer token of an administrator of the API server
    #[arg(long, default_value = "admin-token")]
    pub(crate) token: String,
    /// Passed by `cargo bench`
    #[arg(long, hide = true)]
    bench: bool,
}

impl Args {
    /// How long the first watches may take to open.
    pub(crate) fn longest_opening(&self) -> Duration {
        OPENING_MIN + time_of(self.watchers)
    }

    /// How long the last events may take to arrive.
    pub(crate) fn longest_completion(&self) -> Duration {
        COMPLETION_MIN + time_of(self.watchers.saturating_sub(WATCHERS))
    }

    pub(crate) fn interval(&self) -> Duration {
        Duration::from_millis(self.interval)
    }

    pub(crate) fn late(&self) -> Duration {
        Duration::from_secs(self.late)
    }
}

fn time_of(watchers: usize) -> Duration {
    TIME_OF_A_WATCHER * u32::try_from(watchers).unwrap_or(u32::MAX)
}

const WATCHERS: usize = 2_000;
const OPENING_MIN: Duration = Duration::from_secs(60);
/// The shortest time for the last events: that of the default number of watchers.
const COMPLETION_MIN: Duration = Duration::from_secs(30);
/// A handshake, a list and a watch, of which a slow machine does some fifty in a second.
const TIME_OF_A_WATCHER: Duration = Duration::from_millis(20);
