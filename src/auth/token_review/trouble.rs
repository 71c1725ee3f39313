//! The upstream's trouble with reviews: what is remembered of it, and told once.

use std::time::Duration;

use http::StatusCode;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::auth::outage::OutageDetector;
use crate::auth::token_review::cache::TokenKey;
use crate::upstream::error::UpstreamError;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Nothing is asked until then.
    until: Option<Instant>,
    outage: OutageDetector<TokenKey>,
    /// Whether it is logged.
    told: bool,
}

impl Trouble {
    /// Whether nobody is to be asked now.
    pub(super) fn is_paused(&self) -> bool {
        self.state.lock().until.is_some_and(|until| Instant::now() < until)
    }

    /// Whether the upstream was away a moment ago, or said that it will be until now, whosever token it was asked about.
    pub(super) fn is_away(&self) -> bool {
        self.state.lock().outage.is_down()
    }

    /// A review was answered.
    pub(super) fn answered(&self) {
        let before = std::mem::take(&mut *self.state.lock());
        if before.told {
            tracing::info!("the upstream answers token reviews again");
        }
    }

    /// One was not; returns whether the upstream is away, as far as this token is concerned.
    pub(super) fn failed(&self, key: TokenKey, error: &UpstreamError) -> bool {
        let (away, pause, now) = (is_away(error), pause_after(error), Instant::now());
        let told = {
            let mut state = self.state.lock();
            if away {
                state.outage.failed(key, pause.is_some(), now + pause.unwrap_or(PAUSE));
            } else {
                state.outage.answered();
            }
            if let Some(pause) = pause {
                state.until = Some(now + pause);
            }
            std::mem::replace(&mut state.told, true)
        };
        if !told {
            // Not the upstream's own words: they could quote what it was sent.
            let code = match error {
                UpstreamError::Status { code, .. } => Some(code.as_u16()),
                _ => None,
            };
            tracing::warn!(
                cause = error.cause(),
                code,
                "the upstream does not answer a token review; requests with tokens that are not known are forwarded"
            );
        }
        away
    }
}

/// Whether the upstream cannot be asked, rather than that it will not answer Weir.
fn is_away(error: &UpstreamError) -> bool {
    match error {
        UpstreamError::Connect { .. } | UpstreamError::Lost(_) | UpstreamError::Timeout(_) => true,
        UpstreamError::Status { code, .. } => code.is_server_error(),
        UpstreamError::Credentials(_)
        | UpstreamError::TooLong(_)
        | UpstreamError::Request(_)
        | UpstreamError::Malformed(_) => false,
    }
}

/// For how long no token at all is asked about: only after what cannot be the doing of one token.
fn pause_after(error: &UpstreamError) -> Option<Duration> {
    match error {
        UpstreamError::Credentials(_) | UpstreamError::Connect { .. } => Some(PAUSE),
        UpstreamError::Status { code, retry_after, .. } => match *code {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Some(PAUSE),
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                Some(retry_after.unwrap_or(PAUSE).clamp(PAUSE, PAUSE_MAX))
            }
            _ => None,
        },
        _ => None,
    }
}

/// How long a review that was not answered is not asked again.
pub(super) const PAUSE: Duration = Duration::from_secs(1);
/// The longest `Retry-After` that is heeded: until then every new token is forwarded.
const PAUSE_MAX: Duration = Duration::from_secs(10);
