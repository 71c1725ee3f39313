//! An authenticated user.

use std::collections::BTreeMap;

use http::HeaderMap;
use serde_json::{Map, Value, json};

use crate::options::{Rule, User};
use crate::request::percent_decode;

/// An authenticated user.
#[derive(Clone, Debug, Default)]
pub(crate) struct Identity {
    /// The user's name.
    pub(crate) name: String,
    /// Empty for none.
    pub(crate) uid: String,
    pub(crate) groups: Vec<String>,
    /// Extra attributes, by key.
    pub(crate) extra: BTreeMap<String, Vec<String>>,
    /// The rules that the configuration grants, besides roles.
    pub(crate) rules: Vec<Rule>,
}

impl Identity {
    /// Returns the user of every request to an open simulator.
    pub(crate) fn administrator() -> Self {
        Self::from_user(&User::admin("", "kubernetes-admin"))
    }

    pub(super) fn from_user(user: &User) -> Self {
        let identity = Self {
            name: user.name.clone(),
            uid: user.uid.clone(),
            groups: user.groups.clone(),
            extra: BTreeMap::new(),
            rules: user.rules.clone(),
        };
        identity.authenticated_group()
    }

    pub(super) fn authenticated_group(mut self) -> Self {
        let is_standard = |group: &String| group == AUTHENTICATED || group == UNAUTHENTICATED;
        if !self.groups.iter().any(is_standard) {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }

    /// Returns the identity with the rules that the configuration has for its name.
    pub(crate) fn with_rules_of(mut self, users: &[User]) -> Self {
        let user = users.iter().find(|user| user.name == self.name);
        self.rules = user.map(|user| user.rules.clone()).unwrap_or_default();
        self
    }

    /// Returns the user as reviews contain it (authentication.k8s.io/v1 UserInfo).
    pub(crate) fn info(&self) -> Value {
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

/// The user of a request without a credential.
pub(crate) const ANONYMOUS: &str = "system:anonymous";
/// The group of that user.
pub(crate) const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The group of all other users.
pub(crate) const AUTHENTICATED: &str = "system:authenticated";
/// The audience of tokens for the API itself.
pub(crate) const API_AUDIENCE: &str = "https://kubernetes.default.svc";

/// Returns the values of a header.
pub(super) fn values(headers: &HeaderMap, name: &str) -> Vec<String> {
    let values = headers.get_all(name).iter();
    values.filter_map(|value| value.to_str().ok()).map(str::to_owned).collect()
}

/// Returns the extra fields of a user, whose names follow `prefix` in the names of headers. A name
/// that cannot be decoded is taken as it is.
pub(super) fn extra_fields(headers: &HeaderMap, prefix: &str) -> BTreeMap<String, Vec<String>> {
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for header in headers.keys() {
        if let Some(key) = header.as_str().strip_prefix(prefix) {
            let decoded = percent_decode(key, false).and_then(|key| String::from_utf8(key).ok());
            let key = decoded.unwrap_or_else(|| key.to_owned());
            extra.entry(key).or_default().extend(values(headers, header.as_str()));
        }
    }
    extra
}
