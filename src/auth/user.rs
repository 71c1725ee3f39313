//! A user, as authentication found it and authorization asks about it (`authentication.k8s.io/v1` UserInfo).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::SystemTime;

use aws_lc_rs::hmac;

/// Who somebody is. Immutable, so that its key is computed once.
#[derive(PartialEq, Eq)]
pub struct User {
    /// The name; may be empty only for nobody the upstream would know.
    pub name: String,
    /// The uid; empty for none.
    pub uid: String,
    /// All groups, `system:authenticated` or `system:unauthenticated` among them, in the order in which they were told.
    pub groups: Vec<String>,
    /// Further fields by key.
    pub extra: BTreeMap<String, Vec<String>>,
    key: UserKey,
}

/// Stands for a user in the keys of caches: two users have the same only if they are the same in every field. A hash keyed with a random key of
/// this process, so that nobody can make a second user for one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UserKey([u8; 32]);

impl User {
    /// With all fields as given.
    pub fn new(
        name: String,
        uid: String,
        groups: Vec<String>,
        extra: BTreeMap<String, Vec<String>>,
    ) -> Self {
        let key = UserKey::of(&name, &uid, &groups, &extra);
        Self { name, uid, groups, extra, key }
    }

    /// Who asks without a credential.
    pub fn anonymous() -> Self {
        let groups = vec![UNAUTHENTICATED.to_owned()];
        Self::new(ANONYMOUS.to_owned(), String::new(), groups, BTreeMap::new())
    }

    /// See [`UserKey`].
    pub fn key(&self) -> UserKey {
        self.key
    }
}

/// Names a user without what its extra fields hold (session and credential ids).
impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("User").field("name", &self.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for UserKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UserKey")
    }
}

impl UserKey {
    fn of(name: &str, uid: &str, groups: &[String], extra: &BTreeMap<String, Vec<String>>) -> Self {
        let mut context = hmac::Context::with_key(&KEY);
        // Each text after its length, and each list after its own, so that no two users are written alike.
        let mut count = |n: usize| context.update(&(n as u64).to_le_bytes());
        count(groups.len());
        count(extra.len());
        let mut text = |text: &str| {
            context.update(&(text.len() as u64).to_le_bytes());
            context.update(text.as_bytes());
        };
        text(name);
        text(uid);
        groups.iter().for_each(|group| text(group));
        for (key, values) in extra {
            text(key);
            text(&values.len().to_string());
            values.iter().for_each(|value| text(value));
        }
        let mut key = [0; 32];
        key.copy_from_slice(context.sign().as_ref());
        Self(key)
    }
}

/// The user of a request, and how it was found.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Who.
    pub user: Arc<User>,
    /// By what.
    pub credential: Credential,
    /// When the credential ends, if that is known: from then on it is wrong.
    pub not_after: Option<SystemTime>,
    /// Whether it is used beyond its time, since the upstream cannot be asked (`staleDecisionGrace`).
    pub stale: bool,
}

/// What a user showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Credential {
    /// Nothing.
    None,
    /// A bearer token.
    Token,
    /// A client certificate.
    Certificate,
    /// The word of a front proxy.
    FrontProxy,
}

impl Credential {
    /// The word in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Token => "token",
            Self::Certificate => "certificate",
            Self::FrontProxy => "front-proxy",
        }
    }
}

/// The user who shows nothing.
pub const ANONYMOUS: &str = "system:anonymous";
/// Its group.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// Everybody else's.
pub const AUTHENTICATED: &str = "system:authenticated";

static KEY: LazyLock<hmac::Key> = LazyLock::new(random_key);

/// A key of this process for keyed hashes; random, and never written anywhere.
pub(crate) fn random_key() -> hmac::Key {
    let random = aws_lc_rs::rand::SystemRandom::new();
    // The system's source of randomness cannot fail after start; TLS would not work without it either.
    hmac::Key::generate(hmac::HMAC_SHA256, &random)
        .unwrap_or_else(|_| hmac::Key::new(hmac::HMAC_SHA256, uuid::Uuid::new_v4().as_bytes()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn fields_do_not_run_into_each_other() {
        let groups = |groups: &[&str]| groups.iter().map(|&group| group.to_owned()).collect();
        let user = |name: &str, list: &[&str]| {
            User::new(name.to_owned(), String::new(), groups(list), BTreeMap::new()).key()
        };
        assert_ne!(user("ab", &[]), user("a", &["b"]));
        assert_ne!(user("a", &["bc"]), user("a", &["b", "c"]));
        assert_eq!(user("a", &["b", "c"]), user("a", &["b", "c"]));
    }

    type Fields = (String, String, Vec<String>, BTreeMap<String, Vec<String>>);

    /// Few and short texts, so that users are often nearly alike.
    fn fields() -> impl Strategy<Value = Fields> {
        let text = || "[ab:]{0,2}";
        let texts = || prop::collection::vec(text(), 0..3);
        (text(), text(), texts(), prop::collection::btree_map(text(), texts(), 0..3))
    }

    proptest! {
        #[test]
        fn users_are_alike_only_if_they_are_the_same(
            one in fields(),
            two in fields(),
        ) {
            let same = one == two;
            let user = |(name, uid, groups, extra)| User::new(name, uid, groups, extra).key();
            prop_assert_eq!(user(one) == user(two), same);
        }
    }
}
