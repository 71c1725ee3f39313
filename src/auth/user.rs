//! An authenticated user, as authorization sees it (`authentication.k8s.io/v1` UserInfo).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::SystemTime;

use aws_lc_rs::hmac;

/// A user. Immutable, so that its keys are computed once.
pub struct User {
    /// The name. Upstream never authenticates a user with an empty name.
    pub name: String,
    /// The uid; empty if there is none.
    pub uid: String,
    /// All groups in their original order, including `system:authenticated` or
    /// `system:unauthenticated`.
    pub groups: Vec<String>,
    /// The extra fields, by key.
    pub extra: BTreeMap<String, Vec<String>>,
    key: UserKey,
    name_key: OnceLock<UserKey>,
}

/// Identifies a user in the keys of caches: two users have the same key only if all their fields
/// are equal. It is a hash with a random key of this process, so that nobody can construct a second
/// user with the same key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UserKey([u8; 32]);

impl User {
    /// Creates a user with these fields.
    pub fn new(
        name: String,
        uid: String,
        groups: Vec<String>,
        extra: BTreeMap<String, Vec<String>>,
    ) -> Self {
        let key = UserKey::new(&name, &uid, &groups, &extra);
        Self { name, uid, groups, extra, key, name_key: OnceLock::new() }
    }

    /// Returns the user of a request without a credential.
    pub fn anonymous() -> Self {
        let groups = vec![UNAUTHENTICATED.to_owned()];
        Self::new(ANONYMOUS.to_owned(), String::new(), groups, BTreeMap::new())
    }

    /// Returns the key that identifies the user in caches.
    pub fn key(&self) -> UserKey {
        self.key
    }

    /// Returns the key of the name alone. Other fields may differ from token to token.
    pub(crate) fn name_key(&self) -> UserKey {
        *self.name_key.get_or_init(|| UserKey::new(&self.name, "", &[], &BTreeMap::new()))
    }

    /// Returns the key of the name and the groups, by which roles are given. Other fields may
    /// differ from token to token.
    pub(crate) fn roles_key(&self) -> UserKey {
        // Authenticators may return groups in any order.
        let mut groups = self.groups.clone();
        groups.sort_unstable();
        groups.dedup();
        UserKey::new(&self.name, "", &groups, &BTreeMap::new())
    }

    /// Whether the node authorizer decides the user's requests.
    pub(crate) fn is_node(&self) -> bool {
        self.name.starts_with(NODE_PREFIX) && self.groups.iter().any(|group| group == NODES)
    }

    /// Whether the API server treats the user's requests as those of nobody.
    pub(crate) fn is_anonymous(&self) -> bool {
        self.name == ANONYMOUS || self.groups.iter().any(|group| group == UNAUTHENTICATED)
    }
}

impl PartialEq for User {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for User {}

/// Shows only the name, because extra fields may hold ids of sessions and credentials.
impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("User").field("name", &self.name).finish_non_exhaustive()
    }
}

crate::api::opaque!(UserKey);

impl UserKey {
    fn new(
        name: &str,
        uid: &str,
        groups: &[String],
        extra: &BTreeMap<String, Vec<String>>,
    ) -> Self {
        let mut context = hmac::Context::with_key(&KEY);
        // Every string is preceded by its length and every list by its own, so that no two users
        // have the same encoding.
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

/// The user of a request, and the credential that proved it.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The user.
    pub user: Arc<User>,
    /// The kind of credential.
    pub credential: Credential,
    /// When the credential expires, if that is known.
    pub not_after: Option<SystemTime>,
    /// Whether the identity is used beyond its cache lifetime because the upstream is down
    /// (`staleDecisionGrace`).
    pub stale: bool,
}

crate::api::labels! {
    /// A kind of credential.
    pub enum Credential {
        /// No credential.
        None = "none",
        /// A bearer token.
        Token = "token",
        /// A client certificate.
        Certificate = "certificate",
        /// The headers of a front proxy.
        FrontProxy = "front-proxy",
    }
}

/// The name of the user of requests without a credential.
pub const ANONYMOUS: &str = "system:anonymous";
/// The group of the anonymous user.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The group of all other users.
pub const AUTHENTICATED: &str = "system:authenticated";
/// The user names of kubelets begin with it.
const NODE_PREFIX: &str = "system:node:";
/// The group of kubelets.
const NODES: &str = "system:nodes";

static KEY: LazyLock<hmac::Key> = LazyLock::new(random_key);

/// Returns a random key for keyed hashes. It never leaves this process. With the feature
/// `simulation` it follows the run's seed, since hashes order what a map is walked by.
pub(crate) fn random_key() -> hmac::Key {
    if cfg!(feature = "simulation") {
        return hmac::Key::new(hmac::HMAC_SHA256, uuid::Uuid::new_v4().as_bytes());
    }
    let random = aws_lc_rs::rand::SystemRandom::new();
    // The system's source of randomness does not fail after start; TLS would not work without it
    // either.
    hmac::Key::generate(hmac::HMAC_SHA256, &random)
        .unwrap_or_else(|_| hmac::Key::new(hmac::HMAC_SHA256, uuid::Uuid::new_v4().as_bytes()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn users_that_differ_only_in_field_boundaries_have_different_keys() {
        let groups = |groups: &[&str]| groups.iter().map(|&group| group.to_owned()).collect();
        let user = |name: &str, list: &[&str]| {
            User::new(name.to_owned(), String::new(), groups(list), BTreeMap::new()).key()
        };
        assert_ne!(user("ab", &[]), user("a", &["b"]));
        assert_ne!(user("a", &["bc"]), user("a", &["b", "c"]));
        assert_eq!(user("a", &["b", "c"]), user("a", &["b", "c"]));
    }

    type Fields = (String, String, Vec<String>, BTreeMap<String, Vec<String>>);

    /// Generates short strings of few letters, so that users are often nearly equal.
    fn fields() -> impl Strategy<Value = Fields> {
        let text = || "[ab:]{0,2}";
        let texts = || prop::collection::vec(text(), 0..3);
        (text(), text(), texts(), prop::collection::btree_map(text(), texts(), 0..3))
    }

    proptest! {
        #[test]
        fn keys_are_equal_only_if_users_are(
            one in fields(),
            two in fields(),
        ) {
            let same = one == two;
            let user = |(name, uid, groups, extra)| User::new(name, uid, groups, extra).key();
            prop_assert_eq!(user(one) == user(two), same);
        }
    }
}
