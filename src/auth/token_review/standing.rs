//! The standing of a forwarded request's token, which the response to the request may change.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use http::StatusCode;

use crate::auth::token_review::cache::{GoodToken, Lookup, TokenCache, TokenKey};
use crate::auth::user::{User, UserKey};

/// Whether the upstream is known to accept the token of a forwarded request.
#[derive(Clone)]
pub(crate) struct TokenStanding {
    /// Shared: its handles are hundreds of bytes, and requests that wait have a standing each.
    cache: Arc<TokenCache>,
    key: TokenKey,
    proof: TokenProof,
    /// The user, if a review named it not long ago. Grants nothing.
    user: Option<Arc<User>>,
}

/// Whether a token is known to be good.
#[derive(Clone, Copy)]
pub(super) enum TokenProof {
    /// It is good. The key of the user's name, if known.
    Good(Option<UserKey>),
    /// Nothing is known. When it says that it expires.
    Unknown(Option<SystemTime>),
}

impl TokenStanding {
    /// Creates the standing of a token.
    pub(super) fn new(
        cache: Arc<TokenCache>,
        key: TokenKey,
        proof: TokenProof,
        user: Option<Arc<User>>,
    ) -> Self {
        Self { cache, key, proof, user }
    }

    /// Returns the user, or a part of the token's keyed hash if no review has named it.
    pub(crate) fn named(&self) -> Result<&Arc<User>, u32> {
        self.user.as_ref().ok_or_else(|| self.key.short())
    }

    /// Whether the upstream is known to accept the token.
    pub(crate) fn is_proven(&self) -> bool {
        matches!(self.proof, TokenProof::Good(_))
    }

    /// Returns the key of the user's name, if known.
    pub(crate) fn user(&self) -> Option<UserKey> {
        match self.proof {
            TokenProof::Good(user) => user,
            TokenProof::Unknown(_) => None,
        }
    }

    /// Learns from the status of the upstream's response to a request with the token. The upstream
    /// authenticates first: it accepted the token unless the status is 401. Other errors may come
    /// from something before it. The 401 to a proxied request may be that of its backend: it counts
    /// once the review is too old to be used.
    pub(crate) fn answered(&self, status: StatusCode, is_proxied: bool) {
        let is_reviewed = || matches!(self.cache.get(&self.key), Lookup::Fresh(_));
        let is_refused = status == StatusCode::UNAUTHORIZED && !(is_proxied && is_reviewed());
        let is_accepted = status.is_success() || status == StatusCode::FORBIDDEN;
        match self.proof {
            TokenProof::Good(_) if is_refused => self.cache.forget(&self.key),
            TokenProof::Unknown(not_after) if is_accepted => {
                let good = GoodToken { user: None, not_after };
                self.cache.insert_recently_good(self.key, good);
            }
            TokenProof::Good(_) | TokenProof::Unknown(_) => {}
        }
    }
}

impl fmt::Debug for TokenStanding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenStanding")
            .field("is_proven", &self.is_proven())
            .finish_non_exhaustive()
    }
}
