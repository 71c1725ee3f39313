//! The last accepted token of a connection with its keyed hash, so that a connection whose requests
//! have the same token hashes it once. To hash the token of a service account takes a quarter of
//! the time of a GET from the cache.
//!
//! A token is kept from its second use on: most connections of watches have no second request.
//! One that no review has accepted is not kept, so that nobody unknown fills memory. Tokens are
//! compared in a time that depends on their length only, since users may share a connection.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;
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
    /// Returns the keyed hash of a token. The key must always be the same one.
    pub(super) fn hash(&self, key: &hmac::Key, token: &[u8]) -> TokenKey {
        self.last_key(token).unwrap_or_else(|| TokenKey::new(key, token))
    }

    /// Notes that a token with this hash was accepted.
    pub(super) fn accept(&self, key: TokenKey, token: &[u8]) {
        let mut last = self.0.lock();
        match &*last {
            Some(LastToken { key: last_key, token: Some(_) }) if *last_key == key => {}
            Some(LastToken { key: last_key, .. })
                if *last_key == key && token.len() <= KEPT_BYTES_MAX =>
            {
                *last = Some(LastToken { key, token: Some(token.into()) });
            }
            _ => *last = Some(LastToken { key, token: None }),
        }
    }

    fn last_key(&self, token: &[u8]) -> Option<TokenKey> {
        let last = self.0.lock();
        let LastToken { key, token: last_token } = last.as_ref()?;
        verify_slices_are_equal(last_token.as_deref()?, token).is_ok().then_some(*key)
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
                let hash = memo.hash(&key, token.as_bytes());
                assert_eq!(hash, TokenKey::new(&key, token.as_bytes()), "{token}");
                memo.accept(hash, token.as_bytes());
            }
        }
    }

    #[test]
    fn only_a_token_that_was_accepted_twice_is_kept() {
        let (memo, key) = (TokenMemo::default(), random_key());
        let kept = |token: &str| {
            memo.accept(TokenKey::new(&key, token.as_bytes()), token.as_bytes());
            memo.last_key(token.as_bytes()).is_some()
        };
        assert_eq!(
            ["a", "a", "a", "b", "a", "a"].map(kept),
            [false, true, true, false, false, true]
        );
        let long = "x".repeat(KEPT_BYTES_MAX + 1);
        assert_eq!([&long, &long, "a"].map(kept), [false, false, false]);
        // A refused token is only hashed.
        for _ in 0..3 {
            memo.hash(&key, b"refused");
        }
        assert!(memo.last_key(b"refused").is_none());
    }
}
