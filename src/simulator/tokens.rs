//! Tokens of service accounts: asked for by the subresource `token`, good until they expire or their account goes.
//!
//! They have the shape of a JWT, since clients read the expiry from one, but they are only looked up; the signature is random.
//!
//! Lock order: the one map; nothing else is locked while it is held.

use std::collections::{BTreeMap, HashMap};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::json;

use super::identity::{API_AUDIENCE, Identity};
use super::json::text;
use super::object::key;
use super::store::Store;

/// All that were given out.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    given: Mutex<HashMap<String, Token>>,
}

#[derive(Clone, Debug)]
pub(super) struct Token {
    pub(super) namespace: String,
    pub(super) account: String,
    /// The account's; another account of the same name has another.
    pub(super) uid: String,
    pub(super) id: String,
    pub(super) audiences: Vec<String>,
    pub(super) expires: Timestamp,
}

impl Tokens {
    /// The account of a token, if both are still there, and what the token is for.
    pub(super) fn user(&self, store: &Store, token: &str) -> Option<(Identity, Vec<String>)> {
        let token = self.given.lock().get(token).cloned()?;
        let uid = account(store, &token.namespace, &token.account)?;
        if uid != token.uid || token.expires <= Timestamp::now() {
            return None;
        }
        let groups =
            ["system:serviceaccounts", &format!("system:serviceaccounts:{}", token.namespace)];
        let credential = "authentication.kubernetes.io/credential-id".to_owned();
        let identity = Identity {
            name: format!("system:serviceaccount:{}:{}", token.namespace, token.account),
            uid,
            groups: groups.map(str::to_owned).to_vec(),
            extra: BTreeMap::from([(credential, vec![format!("JTI={}", token.id)])]),
            rules: Vec::new(),
        };
        Some((identity, token.audiences))
    }

    pub(super) fn mint(&self, token: Token) -> String {
        let claims = json!({
            "aud": token.audiences, "exp": token.expires.as_second(), "iss": API_AUDIENCE, "jti": token.id,
            "sub": format!("system:serviceaccount:{}:{}", token.namespace, token.account),
        });
        let parts = [
            json!({"alg": "none"}).to_string(),
            claims.to_string(),
            uuid::Uuid::new_v4().to_string(),
        ];
        let text = parts.map(|part| URL_SAFE_NO_PAD.encode(part)).join(".");
        let now = Timestamp::now();
        let mut given = self.given.lock();
        given.retain(|_, token| token.expires > now);
        given.insert(text.clone(), token);
        text
    }
}

/// The uid of a service account.
pub(super) fn account(store: &Store, namespace: &str, name: &str) -> Option<String> {
    let kind = store.registry().find("", "v1", "serviceaccounts")?;
    let account = store.get(&kind, &key(namespace, name))?;
    Some(text(&account.value(), "/metadata/uid").to_owned())
}
