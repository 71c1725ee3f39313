//! One log line when an API server has been limited for long, and one when it no longer is.

use std::time::Duration;

/// A time in which an API server is limited.
#[derive(Debug, Default)]
pub(super) struct Episode {
    since: Option<Duration>,
    is_logged: bool,
}

impl Episode {
    /// Notes the limit. `is_enforced` is whether it is the actual one.
    pub(super) fn note(
        &mut self,
        now: Duration,
        server: &str,
        limit: u64,
        ceiling: u64,
        is_enforced: bool,
    ) {
        if limit * PART.1 >= ceiling * PART.0 {
            if self.is_logged {
                tracing::info!(%server, limit, ceiling, "an API server is no longer limited");
            }
            *self = Self::default();
            return;
        }
        let since = *self.since.get_or_insert(now);
        if !self.is_logged && now.saturating_sub(since) >= LONG {
            self.is_logged = true;
            tracing::warn!(
                %server,
                limit,
                ceiling,
                is_enforced,
                "an API server is slow or refuses requests, so that it should get fewer"
            );
        }
    }
}

/// A limit below this part of the ceiling is worth a line...
const PART: (u64, u64) = (9, 10);
/// ...after this time.
const LONG: Duration = Duration::from_secs(30);
