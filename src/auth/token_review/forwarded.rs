//! The tokens of forwarded requests: whether the upstream is known to accept them
//! (`docs/decisions/connection-pools.md`), and whose they are, for accounting
//! (`docs/decisions/client-costs.md`).

use std::sync::Arc;
use std::time::Duration;

use crate::auth::bearer::BearerToken;
use crate::auth::token_review::cache::{Lookup, TokenKey};
use crate::auth::token_review::flow_key::FlowKey;
use crate::auth::token_review::memo::TokenMemo;
use crate::auth::token_review::standing::{TokenProof, TokenStanding};
use crate::auth::token_review::{TOKEN_BYTES_MAX, TokenReviews, answer};

impl TokenReviews {
    /// Returns whether the upstream is known to accept a token, and keeps what its response to the
    /// request will show. An unknown token is reviewed first, for at most [`PROOF_WAIT_MAX`].
    pub(crate) async fn standing(
        &self,
        token: &BearerToken,
        flow: FlowKey,
        memo: &TokenMemo,
    ) -> TokenStanding {
        let key = memo.hash(&self.inner.key, token.as_bytes());
        let mut user = self.inner.cache.named(&key);
        let proof = match self.inner.cache.recently_good(&key) {
            Some(good) => {
                memo.accept(key, token.as_bytes());
                if user.is_none() {
                    self.review_beside(key, token);
                }
                TokenProof::Good(good.user)
            }
            None => {
                match tokio::time::timeout(PROOF_WAIT_MAX, self.review(token, flow, memo)).await {
                    Ok(Ok(identity)) => {
                        let user_info = user.insert(identity.user);
                        TokenProof::Good(Some(user_info.name_key()))
                    }
                    Ok(Err(_)) | Err(_) => TokenProof::Unknown(answer::expiry(token.as_str())),
                }
            }
        };
        TokenStanding::new(Arc::clone(&self.inner.cache), key, proof, user)
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

/// The longest wait of a forwarded request for the review of its token. It is then forwarded as one
/// whose token is not known to be good.
const PROOF_WAIT_MAX: Duration = Duration::from_secs(1);
/// How long a review that only names a user waits for its permit.
const NAME_WAIT_MAX: Duration = Duration::from_millis(100);
