//! The rows of `docs/semantics.md` §1.5 and §1.6.1, and of §1.6.2 where a list of a single object
//! differs.

use std::num::NonZeroUsize;

use crate::api::continue_token::ContinueToken;
use crate::api::list_options::ListOptions;
use crate::api::resource_version::ResourceVersion;
use crate::config::ConsistentLists;
use crate::server::delegate::freshness::{Freshness, RequestedVersion};
use crate::server::delegate::reason::Reason;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListPlan {
    pub(crate) read_at: ReadAt,
    /// The largest number of objects of the list. A list of a single object has no pages.
    pub(crate) limit: Option<NonZeroUsize>,
    /// The first key of a next page, relative to the list's root.
    pub(crate) start_key: Option<String>,
    /// Whether a list of a single object is forwarded: row L5 is exact only for collections.
    pub(crate) collection_only: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadAt {
    /// The newest state, once it is fresh enough.
    Newest(Freshness),
    /// The newest state, once a proof shows that it is not older than the request.
    Consistent,
    Exact(ResourceVersion),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Match {
    Absent,
    NotOlderThan,
    Exact,
}

impl ListPlan {
    /// Decides by the rows of `docs/semantics.md`, in the order of the upstream's checks. The plan
    /// forwards if the cache does not have the exact state, which only the cache knows. It forwards
    /// all pages if the upstream reads them from etcd (`docs/decisions/exact-lists-and-pages.md`).
    ///
    /// | row | resourceVersion | match | limit | continue | decision | reason |
    /// |---|---|---|---|---|---|---|
    /// | §1.5 | any | any | any | any | forward, with any `sendInitialEvents` | 422 |
    /// | §1.5 | any | unknown, or with unset, or `Exact` with `0` | any | any | forward | 422 |
    /// | §1.5 | any | any | any | given | forward | 422 |
    /// | L12 | any | absent | any | unreadable | forward | 400, or an upstream token |
    /// | L11 | N | absent | any | given | forward | 400 |
    /// | L13, L14 | no plain number | any | any | any | forward | 400, or etcd's latest |
    /// | L9 | unset | absent | honoured | at a version | exact, from the token's key | |
    /// | L9 | `0` | absent | ignored | at a version | exact, from the token's key to the end | |
    /// | L10 | unset, `0` | absent | any | at the newest | forward | a consistent read |
    /// | L1, L2 | unset | absent | honoured | absent | the newest, once proved | consistent |
    /// | L1, L2 | the same, with `ConsistentLists::Forward` | | | | forward | consistent |
    /// | L3 | `0` | absent, `NotOlderThan` | ignored | absent | the newest state | |
    /// | L4, L6 | N | absent, `NotOlderThan` | none | absent | the newest, once at N | |
    /// | L5 | N | absent | honoured | absent | exact; a single object: forward | etcd's latest |
    /// | L7 | N | `NotOlderThan` | honoured | absent | the newest state, once it is at N | |
    /// | L8 | N | `Exact` | honoured | absent | exact | |
    pub(super) fn decide(
        options: &ListOptions,
        consistent_lists: ConsistentLists,
    ) -> Result<Self, Reason> {
        let matched = match options.resource_version_match.as_str() {
            "" => Match::Absent,
            "NotOlderThan" => Match::NotOlderThan,
            "Exact" => Match::Exact,
            _ => return Err(Reason::Options),
        };
        if options.send_initial_events.is_some() {
            return Err(Reason::Options);
        }
        let requested = RequestedVersion::parse(&options.resource_version)?;
        // A negative limit means no limit.
        let limit = usize::try_from(options.limit).ok().and_then(NonZeroUsize::new);
        if !options.continue_token.is_empty() {
            return Self::next_page(requested, matched, limit, &options.continue_token);
        }
        let newest = |freshness, limit| {
            Ok(Self {
                read_at: ReadAt::Newest(freshness),
                limit,
                start_key: None,
                collection_only: false,
            })
        };
        let exact = |at, collection_only| {
            Ok(Self { read_at: ReadAt::Exact(at), limit, start_key: None, collection_only })
        };
        match (requested, matched) {
            (RequestedVersion::Unset, Match::Absent)
                if consistent_lists == ConsistentLists::Forward =>
            {
                Err(Reason::Consistent)
            }
            (RequestedVersion::Unset, Match::Absent) => Ok(Self {
                read_at: ReadAt::Consistent,
                limit,
                start_key: None,
                collection_only: false,
            }),
            (RequestedVersion::Unset, _) | (RequestedVersion::Any, Match::Exact) => {
                Err(Reason::Options)
            }
            (RequestedVersion::Any, _) => newest(Freshness::Any, None),
            (RequestedVersion::At(at), Match::Absent) if limit.is_some() => exact(at, true),
            (RequestedVersion::At(at), Match::Absent | Match::NotOlderThan) => {
                newest(Freshness::NotOlderThan(at), limit)
            }
            (RequestedVersion::At(at), Match::Exact) => exact(at, false),
        }
    }

    fn next_page(
        requested: RequestedVersion,
        matched: Match,
        limit: Option<NonZeroUsize>,
        token: &str,
    ) -> Result<Self, Reason> {
        let limit = match (requested, matched) {
            (RequestedVersion::Unset, Match::Absent) => limit,
            (RequestedVersion::Any, Match::Absent) => None,
            _ => return Err(Reason::Options),
        };
        let token = ContinueToken::decode(token).ok_or(Reason::Token)?;
        let at = token.at.ok_or(Reason::Consistent)?;
        Ok(Self {
            read_at: ReadAt::Exact(at),
            limit,
            start_key: Some(token.from),
            collection_only: false,
        })
    }

    /// Whether the list is a part of another, with a limit or from a continue token.
    pub(crate) fn is_page(&self) -> bool {
        self.limit.is_some() || self.start_key.is_some()
    }

    /// Returns the reason to forward if the cache does not have the state.
    pub(crate) fn unavailable(&self) -> Reason {
        match self.read_at {
            _ if self.start_key.is_some() => Reason::Continue,
            ReadAt::Consistent => Reason::Consistent,
            ReadAt::Newest(_) | ReadAt::Exact(_) => Reason::Exact,
        }
    }
}
