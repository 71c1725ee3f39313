//! The tokens of forwarded requests: whether the upstream is known to accept them, which the
//! response to a request may change (`docs/decisions/connection-pools.md`), and whose they are, for
//! accounting (`docs/decisions/client-costs.md`).

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::StatusCode;

use crate::auth::bearer::BearerToken;
use crate::auth::token_review::cache::{Lookup, TokenCache, TokenKey};
use crate::auth::token_review::flow_key::FlowKey;
use crate::auth::token_review::memo::TokenMemo;
use crate::auth::token_review::{TOKEN_BYTES_MAX, TokenReviews, answer};
use crate::auth::user::{Identity, User, UserKey};

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
enum TokenProof {
    Good,
    /// Nothing is known. When it says that it expires.
    Unknown(Option<SystemTime>),
}

impl TokenReviews {
    /// Returns whether the upstream is known to accept a token, and keeps what its response to the
    /// request will show. An unknown token is reviewed first, for at most [`PROOF_WAIT_MAX`].
    pub(crate) async fn standing(
        &self,
        token: &BearerToken,
        flow: FlowKey,
        memo: &TokenMemo,
    ) -> TokenStanding {
        let key = token.key(&self.inner.key);
        let (proof, user) = match self.inner.cache.recently_good(&key) {
            Some(Some(identity)) => {
                memo.accept(key, token.as_bytes());
                (TokenProof::Good, Some(Arc::clone(identity.user())))
            }
            Some(None) => {
                memo.accept(key, token.as_bytes());
                self.review_beside(key, token);
                (TokenProof::Good, None)
            }
            None => {
                match tokio::time::timeout(PROOF_WAIT_MAX, self.review(token, flow, memo)).await {
                    Ok(Ok(Identity { user, .. })) => (TokenProof::Good, Some(user)),
                    Ok(Err(_)) | Err(_) => {
                        (TokenProof::Unknown(answer::expiry(token.as_str())), None)
                    }
                }
            }
        };
        TokenStanding { cache: Arc::clone(&self.inner.cache), key, proof, user }
    }

    /// Starts a review of a token that the upstream is known to accept, so that later requests have
    /// a name. No request waits for it, and it is dropped if it cannot run soon.
    fn review_beside(&self, key: TokenKey, token: &BearerToken) {
        let inner = &self.inner;
        if token.as_bytes().len() > TOKEN_BYTES_MAX
            || inner.reviewer.is_paused()
            || !matches!(inner.lookup(&key), Lookup::Miss)
        {
            return;
        }
        if let Ok(outcome) = inner.join(key, token, FlowKey::KnownToken) {
            tokio::spawn(async move { tokio::time::timeout(NAME_WAIT_MAX, outcome.wait()).await });
        }
    }
}

impl TokenStanding {
    /// Returns the user, or a part of the token's keyed hash if no review has named it.
    pub(crate) fn named(&self) -> Result<&Arc<User>, u32> {
        self.user.as_ref().ok_or_else(|| self.key.short())
    }

    /// Whether the upstream is known to accept the token.
    pub(crate) fn is_proven(&self) -> bool {
        matches!(self.proof, TokenProof::Good)
    }

    /// Returns the key of the user's name, if known.
    pub(crate) fn user(&self) -> Option<UserKey> {
        self.user.as_ref().map(|user| user.name_key())
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
            TokenProof::Good if is_refused => self.cache.forget(&self.key),
            TokenProof::Unknown(not_after) if is_accepted => {
                self.cache.insert_recently_good(self.key, not_after);
            }
            TokenProof::Good | TokenProof::Unknown(_) => {}
        }
    }
}

crate::api::opaque!(TokenStanding);

/// The longest wait of a forwarded request for the review of its token. It is then forwarded as one
/// whose token is not known to be good.
const PROOF_WAIT_MAX: Duration = Duration::from_secs(1);
/// How long a review that only names a user waits for its permit.
const NAME_WAIT_MAX: Duration = Duration::from_millis(100);
