//! The rows of `docs/semantics.md` §1.4 and §1.6.4, and of §6.2 for the deprecated path prefix.

use std::time::Duration;

use crate::api::list_options::ListOptions;
use crate::api::resource_version::ResourceVersion;
use crate::server::delegate::freshness::{Freshness, RequestedVersion};
use crate::server::delegate::reason::Reason;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WatchPlan {
    pub(crate) start: Start,
    /// Whether the request has `sendInitialEvents`, true or false. An upstream without watch-list
    /// refuses it with its own message (`docs/semantics.md` §1.5).
    pub(crate) asks_watch_list: bool,
    pub(crate) bookmarks: bool,
    /// Whether a bookmark ends the initial events, if the client requested bookmarks and the
    /// upstream has watch-list (`docs/semantics.md` §1.4).
    pub(crate) marks_initial_end: bool,
    pub(crate) timeout: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// Starts with the whole state, once it is fresh enough.
    State(Freshness),
    /// Starts with the whole state, not older than this request.
    ConsistentState,
    /// Starts with the events after this resourceVersion.
    After(ResourceVersion),
    /// Starts with the events after the cache's resourceVersion.
    Now,
    /// Starts with the events after the upstream's resourceVersion.
    ConsistentNow,
}

impl Start {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::State(_) => "state",
            Self::ConsistentState => "consistent-state",
            Self::After(_) => "after",
            Self::Now => "now",
            Self::ConsistentNow => "consistent-now",
        }
    }
}

impl WatchPlan {
    /// Decides by the rows of `docs/semantics.md`. The limit is ignored. A time-out that the
    /// upstream reads as no later than the start is forwarded, since the upstream ends such a watch
    /// at once, with or without its first events (§1.2).
    ///
    /// | `watch` in the query | resourceVersion | `sendInitialEvents` | match | decision | reason |
    /// |---|---|---|---|---|---|
    /// | yes | unset | absent | absent | the state, consistent; end bookmark | §1.4 rewrites it |
    /// | yes | `0` | absent | absent | the state; end bookmark | §1.4 rewrites it |
    /// | yes | unset, `0` | absent | absent, with a token | forward | rewritten, it is a 422 |
    /// | yes | N | absent | absent | the events after N | a token is ignored |
    /// | yes | unset | true | `NotOlderThan` | the state, consistent; end bookmark | |
    /// | yes | `0` | true | `NotOlderThan` | the state; end bookmark | |
    /// | yes | N | true | `NotOlderThan` | the state, once it is at N; end bookmark | |
    /// | yes | unset | false | `NotOlderThan` | the events after the upstream's revision | |
    /// | yes | `0` | false | `NotOlderThan` | the events to come | |
    /// | yes | N | false | `NotOlderThan` | the events after N | |
    /// | yes | any | given | other, or with a token | forward | 422 |
    /// | yes | any | absent | given | forward | 422 |
    /// | no: `/watch/` | any | given | any | forward | a list's 422 |
    /// | no: `/watch/` | unset | absent | given | forward | a list's 422 |
    /// | no: `/watch/` | any | absent | token, unknown, `Exact` with `0` | forward | a list's 422 |
    /// | no: `/watch/` | unset, `0` | absent | other | the state; no end bookmark | not rewritten |
    /// | no: `/watch/` | N | absent | other | the events after N | the match is ignored |
    /// | any | no plain number | any | any | forward | the upstream's 500 |
    pub(super) fn decide(options: &ListOptions) -> Result<Self, Reason> {
        let requested = RequestedVersion::parse(&options.resource_version)?;
        let start =
            if options.watch { plain(requested, options) } else { by_prefix(requested, options) }?;
        let timeout = options.timeout_seconds.map(timeout).transpose()?.flatten();
        Ok(Self {
            start,
            asks_watch_list: options.send_initial_events.is_some(),
            bookmarks: options.allow_watch_bookmarks,
            marks_initial_end: options.watch
                && matches!(start, Start::State(_) | Start::ConsistentState),
            timeout,
        })
    }
}

/// Returns the time-out that kube-apiserver makes of `timeoutSeconds`; `None` for its own. Its
/// `time.Duration(seconds) * time.Second` wraps around 64 bits (`docs/semantics.md` §1.2), so that
/// a large number may become a short time-out or a negative one. A time-out of less than a second
/// is forwarded too: there the end and the first events race.
fn timeout(seconds: i64) -> Result<Option<Duration>, Reason> {
    match seconds.wrapping_mul(NANOSECONDS) {
        0 => Ok(None),
        left if left >= NANOSECONDS => Ok(Some(Duration::from_nanos(left.unsigned_abs()))),
        _ => Err(Reason::Options),
    }
}

fn plain(requested: RequestedVersion, options: &ListOptions) -> Result<Start, Reason> {
    let token = !options.continue_token.is_empty();
    match (options.send_initial_events, options.resource_version_match.as_str(), requested) {
        (None, "", RequestedVersion::At(after)) => Ok(Start::After(after)),
        (None, "", RequestedVersion::Unset) if !token => Ok(Start::ConsistentState),
        (None, "", RequestedVersion::Any) if !token => Ok(Start::State(Freshness::Any)),
        (Some(true), "NotOlderThan", requested) if !token => Ok(match requested {
            RequestedVersion::Unset => Start::ConsistentState,
            RequestedVersion::Any => Start::State(Freshness::Any),
            RequestedVersion::At(at) => Start::State(Freshness::NotOlderThan(at)),
        }),
        (Some(false), "NotOlderThan", requested) if !token => Ok(match requested {
            RequestedVersion::Unset => Start::ConsistentNow,
            RequestedVersion::Any => Start::Now,
            RequestedVersion::At(after) => Start::After(after),
        }),
        _ => Err(Reason::Options),
    }
}

fn by_prefix(requested: RequestedVersion, options: &ListOptions) -> Result<Start, Reason> {
    let token = !options.continue_token.is_empty();
    let valid = match (options.resource_version_match.as_str(), requested) {
        ("", _) => true,
        (_, RequestedVersion::Unset) => false,
        ("NotOlderThan", _) | ("Exact", RequestedVersion::At(_)) => !token,
        _ => false,
    };
    match requested {
        _ if !valid || options.send_initial_events.is_some() => Err(Reason::Options),
        RequestedVersion::Unset | RequestedVersion::Any => Ok(Start::State(Freshness::Any)),
        RequestedVersion::At(after) => Ok(Start::After(after)),
    }
}

const NANOSECONDS: i64 = 1_000_000_000;
