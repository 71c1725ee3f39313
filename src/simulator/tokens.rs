//! Tokens of service accounts: asked for by the subresource `token`, good until they expire or their account goes.
//!
//! They have the shape of a JWT, since clients read the expiry from one, but they are only looked up; the signature is random.
//!
//! Lock order: the one map; nothing else is locked while it is held.

use std::collections::{BTreeMap, HashMap};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Response;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::answer::{self, Body};
use super::identity::{API_AUDIENCE, Identity};
use super::kinds::{text, texts};
use super::object::key;
use super::request::{Request, Target};
use super::shared::Shared;
use super::status::ApiError;
use super::store::Store;
use super::writes::body;

/// How long a token is good if nothing else is asked for.
const SECONDS: i64 = 3600;

/// All that were given out.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    given: Mutex<HashMap<String, Token>>,
}

#[derive(Clone, Debug)]
struct Token {
    namespace: String,
    account: String,
    /// The account's; another account of the same name has another.
    uid: String,
    id: String,
    audiences: Vec<String>,
    expires: Timestamp,
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

    fn mint(&self, token: Token) -> String {
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
fn account(store: &Store, namespace: &str, name: &str) -> Option<String> {
    let kind = store.registry().find("", "v1", "serviceaccounts")?;
    let account = store.get(&kind, &key(namespace, name))?;
    Some(text(&account.value(), "/metadata/uid").to_owned())
}

/// Answers the POST of a TokenRequest.
pub(super) fn request(
    shared: &Shared,
    request: &Request,
    target: &Target,
) -> Result<Response<Body>, ApiError> {
    let asked = if request.body.is_empty() { Value::Null } else { body(request)? };
    let (namespace, name) = (target.namespace.as_str(), target.name.as_str());
    let not_found = || ApiError::not_found("", "serviceaccounts", name);
    let uid = account(&shared.store, namespace, name).ok_or_else(not_found)?;
    let mut audiences = texts(&asked, "/spec/audiences");
    if audiences.is_empty() {
        audiences.push(API_AUDIENCE.to_owned());
    }
    let seconds =
        asked.pointer("/spec/expirationSeconds").and_then(Value::as_i64).unwrap_or(SECONDS);
    let now = Timestamp::now();
    let expires = now.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(now);
    let shown = |time: Timestamp| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let token = shared.tokens.mint(Token {
        namespace: namespace.to_owned(),
        account: name.to_owned(),
        uid,
        id: uuid::Uuid::new_v4().to_string(),
        audiences: audiences.clone(),
        expires,
    });
    let answer = json!({
        "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"name": name, "namespace": namespace, "creationTimestamp": shown(now)},
        "spec": {"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": null},
        "status": {"token": token, "expirationTimestamp": shown(expires)},
    });
    Ok(answer::value(request, 201, &answer))
}
