//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Compares a Kubernetes API server, Weir in front of it and a minimal server (the floor) under the
/// same load: CPU time, rates, latencies and memory
#[derive(Parser)]
#[command(name = "compare")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) server: Option<ServerCommand>,
    #[command(flatten)]
    pub(crate) compare: Compare,
}

/// A server that the comparison starts as a separate process.
#[derive(Subcommand)]
pub(crate) enum ServerCommand {
    /// Run the floor: serve the files that floor.json in the directory names, and watches, over TLS
    Floor {
        /// The directory of floor.json
        directory: PathBuf,
    },
    /// Run the simulator, over TLS
    Simulator {
        /// The bearer token of its administrator
        token: String,
    },
}

#[derive(Args)]
pub(crate) struct Compare {
    /// URL of a Kubernetes API server, https://HOST:PORT; the default is a simulator that this
    /// program starts
    #[arg(long)]
    pub(crate) upstream: Option<String>,
    /// File with the CA of the API server, PEM
    #[arg(long)]
    pub(crate) upstream_ca: Option<PathBuf>,
    /// Process ID of the API server, if it runs on this machine; otherwise CPU time and memory come
    /// from its metrics
    #[arg(long)]
    pub(crate) upstream_pid: Option<u32>,
    /// URL of the API server's metrics, https://HOST:PORT/metrics; the default is its own address
    #[arg(long)]
    pub(crate) upstream_metrics: Option<String>,
    /// URL of a running Weir, https://HOST:PORT; the default is a Weir that this program starts
    #[arg(long)]
    pub(crate) weir: Option<String>,
    /// File with the CA of that Weir, PEM
    #[arg(long)]
    pub(crate) weir_ca: Option<PathBuf>,
    /// Process ID of that Weir, if it runs on this machine
    #[arg(long)]
    pub(crate) weir_pid: Option<u32>,
    /// URL of that Weir's metrics, http://HOST:PORT/metrics of the admin listener. Their CPU time
    /// is in whole seconds, which is too coarse for most rows: prefer --weir-pid
    #[arg(long)]
    pub(crate) weir_metrics: Option<String>,
    /// Path of an nginx program, which serves the same bytes as the floor
    #[arg(long)]
    pub(crate) nginx: Option<PathBuf>,
    /// Bearer token of a user with all permissions on the API server and on Weir
    #[arg(long, default_value = "admin-token")]
    pub(crate) token: String,
    /// Create nodes and pods first, and 45,000 more pods for the last rows. Use it only with a
    /// throwaway control plane. The simulator is always filled
    #[arg(long)]
    pub(crate) fill: bool,
    /// File for the results, as JSON lines
    #[arg(long)]
    pub(crate) out: Option<PathBuf>,
    /// Make a short run with fewer watches and no more than 5,000 pods
    #[arg(long)]
    pub(crate) quick: bool,
    /// Run only rows whose name contains one of these words
    #[arg(long, value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Measure only Weir, not the API server, the floor and nginx, in the rows that --only names in
    /// full. benches/paired.py uses it to compare two builds
    #[arg(long)]
    pub(crate) alone: bool,
    /// Cargo passes this flag; it has no effect
    #[arg(long, hide = true)]
    bench: bool,
}

impl Compare {
    /// Returns whether the command line selects a row.
    pub(crate) fn wants(&self, row: &str) -> bool {
        let is_named = |part: &String| if self.alone { row == part } else { row.contains(part) };
        self.only.is_empty() || self.only.iter().any(is_named)
    }
}
