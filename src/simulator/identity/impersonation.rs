//! As whom a request acts (semantics.md §12.4). The rules of legacy impersonation only: each item is a right of its own.
//!
//! The 403 is that of the legacy mode. A real 1.36 tries the constrained modes first and tells of the first one's failure
//! (`cannot impersonate-on:user-info:list ...`), so that this text is one of those in which the two worlds differ.

use std::collections::BTreeMap;

use http::HeaderMap;

use super::percent::decode;
use super::user::{ANONYMOUS, AUTHENTICATED, Identity, UNAUTHENTICATED};
use crate::simulator::authorizer::{self, Attributes};
use crate::simulator::request::Request;
use crate::simulator::shared::Shared;
use crate::simulator::status::ApiError;

const EXTRA: &str = "impersonate-extra-";

/// The user itself, or whom it may impersonate and asks to.
pub(super) fn effective(
    own: Identity,
    request: &Request,
    shared: &Shared,
) -> Result<Identity, ApiError> {
    let Some(wanted) = Wanted::of(&request.headers)? else { return Ok(own) };
    for what in wanted.rights() {
        let decision = authorizer::authorize(&shared.store, &own, &what);
        if !decision.allowed {
            return Err(authorizer::forbidden(&own, &what, &decision.reason));
        }
    }
    let groups = wanted.all_groups();
    let Wanted { name, uid, extra, .. } = wanted;
    let identity = Identity { name, uid, groups, extra, rules: Vec::new() };
    Ok(identity.with_rules_of(&shared.options.users))
}

struct Wanted {
    name: String,
    uid: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

impl Wanted {
    fn of(headers: &HeaderMap) -> Result<Option<Self>, ApiError> {
        let all = |name: &str| -> Vec<String> {
            let values = headers.get_all(name).iter();
            values.filter_map(|value| value.to_str().ok()).map(str::to_owned).collect()
        };
        let first = |name: &str| all(name).into_iter().next().unwrap_or_default();
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for header in headers.keys() {
            if let Some(key) = header.as_str().strip_prefix(EXTRA) {
                let key = decode(key).unwrap_or_else(|| key.to_owned());
                extra.entry(key).or_default().extend(all(header.as_str()));
            }
        }
        let wanted = Self {
            name: first("impersonate-user"),
            uid: first("impersonate-uid"),
            groups: all("impersonate-group"),
            extra,
        };
        if !wanted.name.is_empty() {
            return Ok(Some(wanted));
        }
        if wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty() {
            return Ok(None);
        }
        // The upstream's text shows the other items in Go's syntax.
        Err(ApiError::bad_request("without impersonating a user name"))
    }

    /// The service account that the name is of.
    fn service_account(&self) -> Option<(&str, &str)> {
        self.name.strip_prefix("system:serviceaccount:")?.split_once(':')
    }

    /// What one must be allowed to impersonate.
    fn rights(&self) -> Vec<Attributes> {
        let right = |group: &str, resource: &str, namespace: &str, name: &str| Attributes {
            verb: "impersonate".to_owned(),
            group: group.to_owned(),
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            ..Attributes::default()
        };
        let mut rights = vec![match self.service_account() {
            Some((namespace, name)) => right("", "serviceaccounts", namespace, name),
            None => right("", "users", "", &self.name),
        }];
        rights.extend(self.groups.iter().map(|group| right("", "groups", "", group)));
        for (key, values) in &self.extra {
            rights.extend(values.iter().map(|value| Attributes {
                subresource: key.clone(),
                ..right("authentication.k8s.io", "userextras", "", value)
            }));
        }
        if !self.uid.is_empty() {
            rights.push(right("authentication.k8s.io", "uids", "", &self.uid));
        }
        rights
    }

    /// The groups that are asked for, and those that the name brings with it.
    fn all_groups(&self) -> Vec<String> {
        let mut groups = self.groups.clone();
        if let (Some((namespace, _)), true) = (self.service_account(), groups.is_empty()) {
            groups.push("system:serviceaccounts".to_owned());
            groups.push(format!("system:serviceaccounts:{namespace}"));
        }
        let has = |name: &str| groups.iter().any(|group| group == name);
        let unauthenticated = has(UNAUTHENTICATED);
        if self.name == ANONYMOUS && !unauthenticated {
            groups.push(UNAUTHENTICATED.to_owned());
        } else if self.name != ANONYMOUS && !unauthenticated && !has(AUTHENTICATED) {
            groups.push(AUTHENTICATED.to_owned());
        }
        groups
    }
}
