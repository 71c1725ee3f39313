//! The state that all connections of a simulator share.

use tokio::sync::watch;

use super::aggregation::Aggregation;
use super::balancer::Balancer;
use super::faults::Faults;
use super::identity::ClientCas;
use super::options::SimulatorOptions;
use super::request_log::RequestLog;
use super::servers::Servers;
use super::store::Store;
use super::tokens::Tokens;

/// The parts that request handlers need.
#[derive(Debug)]
pub(super) struct Shared {
    /// The settings.
    pub(super) options: SimulatorOptions,
    pub(super) store: Store,
    /// The API servers with an address of their own.
    pub(super) servers: Servers,
    /// Gives connections to API servers.
    pub(super) balancer: Balancer,
    /// The tokens of service accounts.
    pub(super) tokens: Tokens,
    /// The CAs of client certificates; `None` to ignore client certificates.
    pub(super) client_cas: Option<ClientCas>,
    /// The injected faults.
    pub(super) faults: Faults,
    /// The received requests.
    pub(super) log: RequestLog,
    /// The aggregated API servers.
    pub(super) aggregation: Aggregation,
    /// Whether connections are open and carry nothing.
    pub(super) frozen: watch::Sender<bool>,
}
