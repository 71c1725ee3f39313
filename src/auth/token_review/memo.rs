//! The last accepted token of a connection with its keyed hash. A connection whose requests have
//! the same token need not parse and hash it for each. To hash the token of a service account takes
//! a quarter of the time of a GET from the cache.
//!
//! A token is kept from its second use on: most connections of watches have no second request.
//! One that no review has accepted is not kept, so that nobody unknown fills memory. Tokens are
//! compared in a time that depends on their length only, since users may share a connection.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use parking_lot::Mutex;

use crate::auth::token_review::cache::TokenKey;

/// The last accepted token of a connection. Its `Debug` output does not show it.
#[derive(Default)]
pub(crate) struct TokenMemo(Mutex<Option<LastToken>>);

struct LastToken {
    key: TokenKey,
    /// `None` after the first use.
    token: Option<Box<[u8]>>,
}

impl TokenMemo {
    /// Returns the keyed hash of a token, if it is the last one that was accepted. That the token
    /// is still good follows from no memo.
    pub(in crate::auth) fn key_of(&self, token: &[u8]) -> Option<TokenKey> {
        let last = self.0.lock();
        let LastToken { key, token: last_token } = last.as_ref()?;
        verify_slices_are_equal(last_token.as_deref()?, token).is_ok().then_some(*key)
    }

    /// Notes that a token with this hash was accepted.
    pub(in crate::auth) fn accept(&self, key: TokenKey, token: &[u8]) {
        let mut last = self.0.lock();
        let same = last.as_ref().filter(|last| last.key == key);
        if same.is_none_or(|same| same.token.is_none()) {
            let kept = same.filter(|_| token.len() <= KEPT_BYTES_MAX).map(|_| token.into());
            *last = Some(LastToken { key, token: kept });
        }
    }
}

crate::api::opaque!(TokenMemo);

/// A longer token is hashed each time. Those of service accounts have about 1 KB.
const KEPT_BYTES_MAX: usize = 4_096;

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
                let hash = TokenKey::new(&key, token.as_bytes());
                assert!(memo.key_of(token.as_bytes()).is_none_or(|key| key == hash), "{token}");
                memo.accept(hash, token.as_bytes());
            }
        }
    }

    #[test]
    fn only_a_token_that_was_accepted_twice_is_kept() {
        let (memo, key) = (TokenMemo::default(), random_key());
        let kept = |token: &str| {
            memo.accept(TokenKey::new(&key, token.as_bytes()), token.as_bytes());
            memo.key_of(token.as_bytes()).is_some()
        };
        assert_eq!(
            ["a", "a", "a", "b", "a", "a"].map(kept),
            [false, true, true, false, false, true]
        );
        let long = "x".repeat(KEPT_BYTES_MAX + 1);
        assert_eq!([&long, &long, "a"].map(kept), [false, false, false]);
    }
}
