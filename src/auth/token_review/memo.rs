//! The last token of a connection with its keyed hash, so that a connection whose requests have the
//! same token hashes it once. To hash the token of a service account takes a quarter of the time
//! of a GET from the cache.
//!
//! The token is kept from the second request with it on: most connections of watches have no second
//! one. It is compared in a time that depends on its length only, since users may share a
//! connection.

use std::fmt;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;
use parking_lot::Mutex;

use crate::auth::token_review::TOKEN_BYTES_MAX;
use crate::auth::token_review::cache::TokenKey;

/// The last token of a connection. Its `Debug` output does not show it.
#[derive(Default)]
pub(crate) struct TokenMemo(Mutex<Option<LastToken>>);

struct LastToken {
    key: TokenKey,
    /// `None` after the first request with it.
    token: Option<Box<[u8]>>,
}

impl TokenMemo {
    /// Returns the keyed hash of a token.
    pub(super) fn hash(&self, key: &hmac::Key, token: &[u8]) -> TokenKey {
        if let Some(known) = self.known(token) {
            return known;
        }
        let hash = TokenKey::new(key, token);
        if token.len() <= TOKEN_BYTES_MAX {
            let mut last = self.0.lock();
            let is_again = last.as_ref().is_some_and(|last| last.key == hash);
            *last = Some(LastToken { key: hash, token: is_again.then(|| token.into()) });
        }
        hash
    }

    fn known(&self, token: &[u8]) -> Option<TokenKey> {
        let last = self.0.lock();
        let LastToken { key, token: known } = last.as_ref()?;
        verify_slices_are_equal(known.as_deref()?, token).is_ok().then_some(*key)
    }
}

impl fmt::Debug for TokenMemo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenMemo(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::user::random_key;

    #[test]
    fn each_token_has_its_own_hash() {
        let (memo, key) = (TokenMemo::default(), random_key());
        let tokens = ["alice's", "bob's 1", "alice's and more", "alice"];
        // Also after the same one, after a longer and a shorter one, and after one as long.
        for pair in tokens.iter().flat_map(|one| tokens.iter().map(move |other| [one, other])) {
            for token in pair.iter().flat_map(|token| [token; 3]) {
                let hash = memo.hash(&key, token.as_bytes());
                assert_eq!(hash, TokenKey::new(&key, token.as_bytes()), "{token}");
            }
        }
    }

    #[test]
    fn only_a_token_that_comes_again_is_kept() {
        let (memo, key) = (TokenMemo::default(), random_key());
        let kept = |token: &str| {
            memo.hash(&key, token.as_bytes());
            memo.known(token.as_bytes()).is_some()
        };
        assert_eq!(["a", "a", "b", "a", "a"].map(kept), [false, true, false, false, true]);
        let long = "x".repeat(TOKEN_BYTES_MAX + 1);
        assert_eq!([kept(&long), kept(&long), kept("a")], [false, false, true]);
    }
}
