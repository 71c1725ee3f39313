//! Impersonation (`docs/semantics.md` §12.4), by the legacy rules only: each part of the user needs
//! its own permission.
//!
//! The 403 is that of the legacy mode. A real 1.36 server tries the constrained modes first and
//! reports the failure of the first one (`cannot impersonate-on:user-info:list ...`), so that this
//! message differs between the simulator and a real server.

use std::collections::BTreeMap;

use http::HeaderMap;

use super::user::{ANONYMOUS, AUTHENTICATED, Identity, UNAUTHENTICATED, extra_fields, values};
use crate::authorizer::{self, Attributes};
use crate::request::Request;
use crate::shared::Shared;
use crate::status::ApiError;

/// Returns the impersonated user, if the request names one that `requester` may impersonate;
/// otherwise `requester`.
pub(super) fn effective(
    requester: Identity,
    request: &Request,
    shared: &Shared,
) -> Result<Identity, ApiError> {
    let Some(wanted) = ImpersonatedUser::from_headers(&request.headers)? else {
        return Ok(requester);
    };
    for attributes in wanted.required_permissions() {
        let decision = authorizer::authorize(&shared.store, &requester, &attributes);
        if !decision.allowed {
            return Err(authorizer::forbidden(&requester, &attributes, &decision.reason));
        }
    }
    let groups = wanted.all_groups();
    let ImpersonatedUser { name, uid, extra, .. } = wanted;
    let identity = Identity { name, uid, groups, extra, rules: Vec::new() };
    Ok(identity.with_rules_of(&shared.options.users))
}

struct ImpersonatedUser {
    name: String,
    uid: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

impl ImpersonatedUser {
    fn from_headers(headers: &HeaderMap) -> Result<Option<Self>, ApiError> {
        let values = |name: &str| values(headers, name);
        let first = |name: &str| values(name).into_iter().next().unwrap_or_default();
        let wanted = Self {
            name: first("impersonate-user"),
            uid: first("impersonate-uid"),
            groups: values("impersonate-group"),
            extra: extra_fields(headers, "impersonate-extra-"),
        };
        if !wanted.name.is_empty() {
            return Ok(Some(wanted));
        }
        if wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty() {
            return Ok(None);
        }
        // The upstream's message also prints the other parts in Go's syntax.
        Err(ApiError::bad_request("without impersonating a user name"))
    }

    /// Returns the namespace and the name of the service account, if the user is one.
    fn service_account(&self) -> Option<(&str, &str)> {
        self.name.strip_prefix("system:serviceaccount:")?.split_once(':')
    }

    /// Returns the requests that must be allowed for the impersonation.
    fn required_permissions(&self) -> Vec<Attributes> {
        let permission = |group: &str, resource: &str, namespace: &str, name: &str| Attributes {
            verb: "impersonate".to_owned(),
            group: group.to_owned(),
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            ..Attributes::default()
        };
        let mut permissions = vec![match self.service_account() {
            Some((namespace, name)) => permission("", "serviceaccounts", namespace, name),
            None => permission("", "users", "", &self.name),
        }];
        permissions.extend(self.groups.iter().map(|group| permission("", "groups", "", group)));
        for (key, values) in &self.extra {
            permissions.extend(values.iter().map(|value| Attributes {
                subresource: key.clone(),
                ..permission("authentication.k8s.io", "userextras", "", value)
            }));
        }
        if !self.uid.is_empty() {
            permissions.push(permission("authentication.k8s.io", "uids", "", &self.uid));
        }
        permissions
    }

    /// Returns the groups of the headers, and those that the name implies.
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
