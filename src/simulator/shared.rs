//! What all connections of a simulator share.

use parking_lot::RwLock;
use serde_json::Value;
use std::collections::HashMap;

use super::faults::Faults;
use super::identity::ClientCas;
use super::options::SimulatorOptions;
use super::request_log::RequestLog;
use super::store::Store;
use super::tokens::Tokens;

/// The parts that a request needs.
#[derive(Debug)]
pub(super) struct Shared {
    /// The settings.
    pub(super) options: SimulatorOptions,
    /// The objects.
    pub(super) store: Store,
    /// The tokens of service accounts.
    pub(super) tokens: Tokens,
    /// Whose client certificates are believed; `None` for nobody's.
    pub(super) client_cas: Option<ClientCas>,
    /// The injected faults.
    pub(super) faults: Faults,
    /// What arrived.
    pub(super) log: RequestLog,
    /// Fixed answers of registered aggregated API servers, by path.
    pub(super) aggregated: RwLock<HashMap<String, Value>>,
}
