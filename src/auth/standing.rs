//! The standing of a forwarded request's credential: whether the upstream is known to accept it.
//!
//! kube-apiserver ends the HTTP/2 connection of each request that it does not authenticate: one
//! without a credential, and one with a wrong token (`docs/semantics.md` §8.8). Requests whose
//! credential is not known to be good therefore use connections of their own
//! (`docs/decisions/connection-pools.md`).

use std::sync::Arc;

use http::StatusCode;

use crate::auth::token_review::forwarded::TokenStanding;
use crate::auth::user::{User, UserKey};

/// Whether the upstream is known to accept the credential of a forwarded request.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    /// Whether the upstream is known to authenticate the request as a user.
    pub(crate) is_proven: bool,
    /// The key of the user's name, if known. Nobody (`system:anonymous`) is not a known user.
    pub(crate) user: Option<UserKey>,
    token: Option<TokenStanding>,
}

impl Standing {
    /// Weir's own credential, or one that Weir replaces by its own.
    pub(crate) fn own_credential() -> Self {
        Self { is_proven: true, user: None, token: None }
    }

    /// No credential, or one that only the upstream can read.
    pub(crate) fn unproven() -> Self {
        Self { is_proven: false, user: None, token: None }
    }

    /// A user whom Weir names to the upstream.
    pub(crate) fn from_user(user: &User) -> Self {
        let user = (!user.is_anonymous()).then(|| user.name_key());
        Self { is_proven: user.is_some(), user, token: None }
    }

    /// The user of a token.
    pub(crate) fn from_token(token: TokenStanding) -> Self {
        Self { is_proven: token.is_proven(), user: token.user(), token: Some(token) }
    }

    /// Returns the key of the name of the user that the request's token has proved.
    pub(crate) fn token_user_key(&self) -> Option<UserKey> {
        self.token.as_ref().and(self.user).filter(|_| self.is_proven)
    }

    /// Returns the user of the request's token, as a review named it not long ago, or a part of the
    /// token's keyed hash. `None` if the request has no token. It is for accounting: it grants
    /// nothing.
    pub(crate) fn token_user(&self) -> Option<Result<&Arc<User>, u32>> {
        self.token.as_ref().map(TokenStanding::named)
    }

    /// Learns from the status of the upstream's response ([`TokenStanding::answered`]).
    pub(crate) fn answered(&self, status: StatusCode, is_proxied: bool) {
        if let Some(token) = &self.token {
            token.answered(status, is_proxied);
        }
    }
}
