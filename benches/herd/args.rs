//! The command line.

use clap::Parser;

/// Restarts Weir, the API server and both under open watches, and lets many clients list at once;
/// counts what reaches the API server, and measures how long it takes
#[derive(Parser, Debug)]
#[command(name = "herd")]
pub(crate) struct Args {
    /// Number of watchers, each with a connection of its own
    #[arg(long, default_value_t = 5_000)]
    pub(crate) watchers: usize,
    /// Number of bearer tokens, each of another user
    #[arg(long, default_value_t = 200)]
    pub(crate) tokens: usize,
    /// Number of client addresses
    #[arg(long, default_value_t = 1)]
    pub(crate) addresses: u8,
    /// Number of objects of each resource
    #[arg(long, default_value_t = 500)]
    pub(crate) objects: usize,
    /// Seconds for which the API server is away
    #[arg(long, default_value_t = 3)]
    pub(crate) outage: u64,
    /// Milliseconds that the API server takes for a review
    #[arg(long, default_value_t = 0)]
    pub(crate) review_ms: u64,
    /// Seconds for which reviews are counted while nothing happens
    #[arg(long, default_value_t = 0)]
    pub(crate) quiet: u64,
    /// Connect by TLS
    #[arg(long)]
    pub(crate) tls: bool,
    /// Let Weir decide by the cluster's roles (`authorization.rbac`)
    #[arg(long)]
    pub(crate) rbac: bool,
    /// Phases to run, of weir, server, forgetful, both, lists, quiet; all if none is named
    #[arg(long, value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Passed by `cargo bench`
    #[arg(long, hide = true)]
    bench: bool,
}

impl Args {
    /// Whether to run a phase.
    pub(crate) fn runs(&self, phase: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == phase)
    }
}
