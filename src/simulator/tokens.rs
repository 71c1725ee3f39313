//! Tokens of service accounts. The subresource `token` issues them; they are valid until they
//! expire or their account is deleted.
//!
//! They have the shape of a JWT, since clients read the expiry from one. The simulator only looks
//! them up; the signature is random.
//!
//! Lock order: only the lock of the map; no other lock is taken while it is held.

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

/// All issued tokens.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    issued: Mutex<HashMap<String, Token>>,
}

#[derive(Clone, Debug)]
pub(super) struct Token {
    pub(super) namespace: String,
    pub(super) account: String,
    /// The uid of the account. A recreated account of the same name has another one.
    pub(super) uid: String,
    pub(super) id: String,
    pub(super) audiences: Vec<String>,
    pub(super) expires: Timestamp,
}

impl Tokens {
    /// Returns the user and the audiences of a token, if the token is valid and its account exists.
    pub(super) fn user(&self, store: &Store, token: &str) -> Option<(Identity, Vec<String>)> {
        let token = self.issued.lock().get(token).cloned()?;
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

    pub(super) fn issue(&self, token: Token) -> String {
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
        let mut issued = self.issued.lock();
        issued.retain(|_, token| token.expires > now);
        issued.insert(text.clone(), token);
        text
    }
}

/// Returns the uid of a service account.
pub(super) fn account(store: &Store, namespace: &str, name: &str) -> Option<String> {
    let kind = store.registry().find("", "v1", "serviceaccounts")?;
    let account = store.get(&kind, &key(namespace, name))?;
    Some(text(&account.value(), "/metadata/uid").to_owned())
}
