//! Who asks (semantics.md §12.1): a front proxy's word, a client certificate, a bearer token, a WebSocket's token, or nobody; in
//! this order, and a wrong credential is only then nobody's if another one is right.
//!
//! Written apart from `auth`, which is what the tests hold against it. What the user may do is in `authorizer`, and as whom
//! a user acts who impersonates in `identity::impersonation`.

mod certificate;
mod impersonation;

use std::collections::BTreeMap;

use http::{HeaderMap, header};
use serde_json::{Map, Value, json};

use super::options::{Rule, User};
use super::request::Request;
use super::shared::Shared;
use super::status::ApiError;
use super::websocket;

pub(super) use self::certificate::ClientCas;

/// An authenticated user.
#[derive(Clone, Debug, Default)]
pub(super) struct Identity {
    /// The user's name.
    pub(super) name: String,
    /// Empty for none.
    pub(super) uid: String,
    /// All groups.
    pub(super) groups: Vec<String>,
    /// What else is known, by key.
    pub(super) extra: BTreeMap<String, Vec<String>>,
    /// What the configuration allows the user, besides what roles grant.
    pub(super) rules: Vec<Rule>,
}

impl Identity {
    /// The user of a request; of an open simulator everybody is an administrator.
    pub(super) fn of(request: &Request, shared: &Shared) -> Result<Self, ApiError> {
        let own = Self::authenticated(request, shared)?;
        impersonation::effective(own, request, shared)
    }

    fn authenticated(request: &Request, shared: &Shared) -> Result<Self, ApiError> {
        if shared.options.open() {
            return Ok(Self::administrator());
        }
        let mut wrong = false;
        if let (Some(cas), Some(chain)) = (&shared.client_cas, &request.certificates) {
            match cas.user(chain, &request.headers) {
                Some(identity) => return Ok(identity.authenticated_group().known(shared)),
                None => wrong = true,
            }
        }
        for token in [bearer(&request.headers), websocket::token(&request.headers)] {
            let Some(token) = token else { continue };
            match Self::by_token(&token, shared, &[]) {
                Some((identity, _)) => return Ok(identity),
                None => wrong = true,
            }
        }
        if wrong || !shared.options.anonymous {
            return Err(ApiError::new(401, "Unauthorized", "Unauthorized"));
        }
        Ok(Self {
            name: ANONYMOUS.to_owned(),
            groups: vec![UNAUTHENTICATED.to_owned()],
            ..Self::default()
        })
    }

    /// The user of a token that is for one of these audiences (for none: the API's own), and the audiences that it is for.
    pub(super) fn by_token(
        token: &str,
        shared: &Shared,
        audiences: &[String],
    ) -> Option<(Self, Vec<String>)> {
        if token.is_empty() {
            return None;
        }
        let own = [API_AUDIENCE.to_owned()];
        let wanted = if audiences.is_empty() { &own } else { audiences };
        if let Some(user) = shared.options.users.iter().find(|user| user.token == token) {
            // A static token is for whatever audience is asked for.
            return Some((Self::from_user(user), wanted.to_vec()));
        }
        let (identity, all) = shared.tokens.user(&shared.store, token)?;
        let fitting: Vec<String> = wanted.iter().filter(|one| all.contains(one)).cloned().collect();
        let identity = identity.authenticated_group().known(shared);
        (!fitting.is_empty()).then_some((identity, fitting))
    }

    /// Whoever comes to an open simulator.
    pub(super) fn administrator() -> Self {
        Self::from_user(&User::admin("", "kubernetes-admin"))
    }

    fn from_user(user: &User) -> Self {
        let identity = Self {
            name: user.name.clone(),
            uid: user.uid.clone(),
            groups: user.groups.clone(),
            extra: BTreeMap::new(),
            rules: user.rules.clone(),
        };
        identity.authenticated_group()
    }

    fn authenticated_group(mut self) -> Self {
        let known = |group: &String| group == AUTHENTICATED || group == UNAUTHENTICATED;
        if !self.groups.iter().any(known) {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }

    /// With the rules that the configuration has for this name.
    pub(super) fn known(mut self, shared: &Shared) -> Self {
        let user = shared.options.users.iter().find(|user| user.name == self.name);
        self.rules = user.map(|user| user.rules.clone()).unwrap_or_default();
        self
    }

    /// As reviews show it (authentication.k8s.io/v1 UserInfo).
    pub(super) fn info(&self) -> Value {
        let mut info = Map::new();
        info.insert("username".to_owned(), self.name.clone().into());
        if !self.uid.is_empty() {
            info.insert("uid".to_owned(), self.uid.clone().into());
        }
        info.insert("groups".to_owned(), self.groups.clone().into());
        if !self.extra.is_empty() {
            info.insert("extra".to_owned(), json!(self.extra));
        }
        info.into()
    }
}

/// The word of an `Authorization: Bearer`; `None` for any other, and for one that says nothing.
fn bearer(headers: &HeaderMap) -> Option<String> {
    let given = headers.get(header::AUTHORIZATION)?.to_str().ok()?.trim();
    let mut words = given.splitn(3, ' ');
    let scheme = words.next()?;
    let token = words.next()?;
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then(|| token.to_owned())
}

/// What a client is told whose token is not read, since a blank too many is before it.
pub(super) fn bearer_warning(headers: &HeaderMap) -> Option<&'static str> {
    const TEXT: &str = "the provided Authorization header contains extra space before the bearer token, and is ignored";
    let given = headers.get(header::AUTHORIZATION)?.to_str().ok()?.trim();
    let words: Vec<&str> = given.splitn(3, ' ').collect();
    let blank = matches!(*words, [scheme, "", _] if scheme.eq_ignore_ascii_case("bearer"));
    blank.then_some(TEXT)
}

/// The user who shows nothing.
pub(super) const ANONYMOUS: &str = "system:anonymous";
/// Its group.
pub(super) const UNAUTHENTICATED: &str = "system:unauthenticated";
/// Everybody else's.
pub(super) const AUTHENTICATED: &str = "system:authenticated";
/// What a token must be for to be one for the API itself.
pub(super) const API_AUDIENCE: &str = "https://kubernetes.default.svc";
