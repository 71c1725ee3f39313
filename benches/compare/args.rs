//! What the command line says.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Loads a Kubernetes API server, Weir before it and the floor in the same way, and compares what that costs each of them.
#[derive(Parser)]
#[command(name = "compare")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) role: Option<Role>,
    #[command(flatten)]
    pub(crate) compare: Compare,
}

/// A server that the comparison starts as a process of its own.
#[derive(Subcommand)]
pub(crate) enum Role {
    /// Serves the files that a floor.json in the directory names, and fans out watches, over TLS and HTTP/2.
    Floor {
        /// Where floor.json is.
        directory: PathBuf,
    },
    /// The simulator, over TLS.
    Simulator {
        /// The token that it knows.
        token: String,
    },
}

#[derive(Args)]
pub(crate) struct Compare {
    /// A Kubernetes API server, https://HOST:PORT; without it, the simulator is started.
    #[arg(long)]
    pub(crate) upstream: Option<String>,
    /// Its CA, PEM.
    #[arg(long)]
    pub(crate) upstream_ca: Option<PathBuf>,
    /// Its process, if it runs here; otherwise its metrics tell CPU and memory.
    #[arg(long)]
    pub(crate) upstream_pid: Option<u32>,
    /// Its metrics, https://HOST:PORT/metrics, if not at its own address.
    #[arg(long)]
    pub(crate) upstream_metrics: Option<String>,
    /// A Weir before it, https://HOST:PORT; without it, one is started.
    #[arg(long)]
    pub(crate) weir: Option<String>,
    /// Its CA, PEM.
    #[arg(long)]
    pub(crate) weir_ca: Option<PathBuf>,
    /// Its process, if it runs here.
    #[arg(long)]
    pub(crate) weir_pid: Option<u32>,
    /// Its metrics, http://HOST:PORT/metrics of the admin listener. They have whole seconds of CPU time, which is too
    /// few for most rows: give the process where it runs here.
    #[arg(long)]
    pub(crate) weir_metrics: Option<String>,
    /// An nginx program, to be started as another floor for reads.
    #[arg(long)]
    pub(crate) nginx: Option<PathBuf>,
    /// A bearer token that may do everything with pods, at the API server and at Weir.
    #[arg(long, default_value = "admin-token")]
    pub(crate) token: String,
    /// Creates nodes and pods first, and 45,000 pods more for the last rows. For a control plane to be thrown away. The simulator is filled
    /// anyway.
    #[arg(long)]
    pub(crate) fill: bool,
    /// Where to write the results, JSON lines.
    #[arg(long)]
    pub(crate) out: Option<PathBuf>,
    /// A short run, for a look: fewer watches, and no more than 5,000 pods.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Only rows whose name contains one of these.
    #[arg(long, value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Measures Weir alone, without the API server, the floor and nginx, in the rows that `only` names
    /// in full. `benches/paired.py` compares two builds with it.
    #[arg(long)]
    pub(crate) alone: bool,
    /// Given by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

impl Compare {
    /// Whether a row is asked for.
    pub(crate) fn wants(&self, row: &str) -> bool {
        let is_named = |part: &String| if self.alone { row == part } else { row.contains(part) };
        self.only.is_empty() || self.only.iter().any(is_named)
    }
}
