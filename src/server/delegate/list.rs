//! The rows of semantics.md §1.5 and §1.6.1, and where a list of a single object differs, §1.6.2.

use std::num::NonZeroUsize;

use crate::api::continue_token::ContinueToken;
use crate::api::list_options::ListOptions;
use crate::api::resource_version::ResourceVersion;
use crate::server::delegate::reason::Reason;
use crate::server::delegate::version::{Freshness, RequestedVersion};

/// How a list is answered from the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListPlan {
    /// Which state it shows.
    pub(crate) read_at: ReadAt,
    /// The most objects that it shows; a list of a single object has no pages.
    pub(crate) limit: Option<NonZeroUsize>,
    /// Of a next page: the first key that it may show, relative to the list's root.
    pub(crate) start_key: Option<String>,
    /// Whether the list of a single object is another row: L5, whose exactness holds for collections only.
    pub(crate) collection_only: bool,
}

/// Which state a list shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadAt {
    /// The newest, once it is so fresh.
    Newest(Freshness),
    /// That of this very resourceVersion.
    Exact(ResourceVersion),
}

/// What `resourceVersionMatch` says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Match {
    Absent,
    NotOlderThan,
    Exact,
}

impl ListPlan {
    /// The rows, in the order in which the upstream looks at a request.
    ///
    /// | row | resourceVersion | match | limit | continue | here | why |
    /// |---|---|---|---|---|---|---|
    /// | §1.5 | any | any | any | any | forward, with `sendInitialEvents` of any value | 422 |
    /// | §1.5 | any | unknown, or with unset, or `Exact` with `0` | any | any | forward | 422 |
    /// | §1.5 | any | any | any | given | forward | 422 |
    /// | L12 | any | absent | any | unreadable | forward | 400, or a token that only the upstream understands |
    /// | L11 | N | absent | any | given | forward | 400 |
    /// | L13, L14 | no plain number | any | any | any | forward | 400, or etcd's latest |
    /// | L9 | unset | absent | honoured | at a resourceVersion | exact, from the token's key | |
    /// | L9 | `0` | absent | ignored | at a resourceVersion | exact, from the token's key to the end | |
    /// | L10 | unset, `0` | absent | any | at the newest | forward | a consistent read |
    /// | L1, L2 | unset | absent | any | absent | forward | a consistent read |
    /// | L3 | `0` | absent, `NotOlderThan` | ignored | absent | the newest state | |
    /// | L4, L6 | N | absent, `NotOlderThan` | none | absent | the newest state, once it is at N | |
    /// | L5 | N | absent | honoured | absent | exact; a single object: forward | etcd's latest |
    /// | L7 | N | `NotOlderThan` | honoured | absent | the newest state, once it is at N | |
    /// | L8 | N | `Exact` | honoured | absent | exact | |
    ///
    /// Exact is forwarded where the cache does not have that state; whether it has is only known then. All pages are, where the upstream
    /// reads them from its store.
    pub(super) fn decide(options: &ListOptions) -> Result<Self, Reason> {
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
        // A negative limit is none.
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
            (RequestedVersion::Unset, Match::Absent) => Err(Reason::Consistent),
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

    /// Whether it is a part of a list, with a token of its own, or made by one.
    pub(crate) fn is_page(&self) -> bool {
        self.limit.is_some() || self.start_key.is_some()
    }

    /// Why it is forwarded when the cache does not have the state that it shows.
    pub(crate) fn unavailable(&self) -> Reason {
        if self.start_key.is_some() { Reason::Continue } else { Reason::Exact }
    }
}
