//! `logging` as written.

use serde::{Deserialize, Serialize};

/// `logging`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LoggingSection {
    /// `text`, `json` or `kubernetes`.
    pub format: Option<String>,
    /// A filter in `tracing`'s syntax.
    pub filter: Option<String>,
    /// A duration, or `never`.
    pub slow_request: Option<String>,
}
