//! The figures of the parts of Weir, as values.

use std::time::SystemTime;

use crate::server::{FlowFigures, OverloadFigures, ServerFigures};
use crate::upstream::metrics::UpstreamFigures;

/// The figures of the parts of Weir at one moment.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Requests, watches and connections of clients.
    pub server: ServerFigures,
    /// Requests and connections to the upstream.
    pub upstream: UpstreamFigures,
    /// Weir's own overload.
    pub overload: OverloadFigures,
    /// The seats of the API servers.
    pub flow: FlowFigures,
    /// The bytes of the compressed lists in memory, and their limit.
    pub gzip: [f64; 2],
    /// The configuration in use.
    pub configuration: ConfigurationFigures,
    /// The expiries of certificates, in seconds since 1970, by their use.
    pub certificates: Vec<(&'static str, i64)>,
}

/// The configuration in use.
#[derive(Clone, Debug, Default)]
pub struct ConfigurationFigures {
    /// The beginning of its hash.
    pub hash: String,
    /// When it was read.
    pub read: Option<SystemTime>,
    /// The number of changed fields that need a restart.
    pub pending: usize,
}
