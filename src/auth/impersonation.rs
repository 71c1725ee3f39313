//! Impersonation: the user that a request acts as, and what its sender must be allowed for that
//! (`docs/semantics.md` §12.4, apiserver/pkg/endpoints/filters/impersonation).
//!
//! The sender needs the permission to impersonate each part of the user: the name, each group, the
//! uid and each value of an extra field. Newer API servers have constrained modes as well, which
//! they try first and which ask for other permissions. A sender that has all of these acts as the
//! same user in each mode, unless that user is a node. So a node is forwarded, and so is a request
//! without these permissions, whose denial the API server writes, and any header that is not plain.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::api::query::percent_decode;
use crate::api::resource::GroupVersionResource;
use crate::auth::attributes::{Attributes, ResourceAttributes};
use crate::auth::user::{ANONYMOUS, UNAUTHENTICATED, User};
use crate::auth::x509::add_authenticated;

/// The user that a request acts as in place of its sender.
#[derive(Clone, Debug)]
pub struct Impersonation {
    /// The user.
    pub user: Arc<User>,
    /// The permissions that the sender needs, each by itself.
    pub permissions: Arc<[Attributes]>,
}

impl Impersonation {
    /// Returns the impersonation that the headers ask for. `None` if the API server must decide.
    pub fn from_headers(headers: &HeaderMap) -> Option<Self> {
        let is_part = |name: &HeaderName| name.as_str().starts_with(PREFIX);
        let parts = headers.iter().filter(|(name, _)| is_part(name));
        if parts.map(|(name, value)| name.as_str().len() + value.len()).sum::<usize>() > BYTES_MAX {
            return None;
        }
        let (mut name, mut uid) = (None, None);
        let mut groups = Vec::new();
        let mut extra = BTreeMap::<String, Vec<String>>::new();
        for header in headers.keys() {
            let Some(part) = header.as_str().strip_prefix(PREFIX) else { continue };
            let values = headers.get_all(header).iter().map(text);
            let values = values.collect::<Option<Vec<String>>>()?;
            match (part, &values[..]) {
                ("user", [only]) => name = Some(only.clone()),
                ("uid", [only]) => uid = Some(only.clone()),
                ("group", _) => groups = values,
                (part, _) => {
                    // The keys of two headers may be equal once they are decoded.
                    let key = extra_key(part.strip_prefix("extra-")?)?;
                    if extra.insert(key, values).is_some() {
                        return None;
                    }
                }
            }
        }
        Self::of_parts(name?, uid.unwrap_or_default(), groups, extra)
    }

    fn of_parts(
        name: String,
        uid: String,
        mut groups: Vec<String>,
        extra: BTreeMap<String, Vec<String>>,
    ) -> Option<Self> {
        let extras = extra.values().map(Vec::len).sum::<usize>();
        // The constrained modes give a node other groups.
        if name.starts_with("system:node:") || groups.len() + extras > PARTS_MAX {
            return None;
        }
        let account = match name.strip_prefix("system:serviceaccount:") {
            Some(account) => Some(account.split_once(':').filter(|(namespace, name)| {
                [namespace, name].into_iter().all(|name| is_plain_name(name))
            })?),
            None => None,
        };
        let mut permissions = vec![match account {
            Some((namespace, name)) => permission("", "serviceaccounts", "", namespace, name),
            None => permission("", "users", "", "", &name),
        }];
        permissions.extend(groups.iter().map(|group| permission("", "groups", "", "", group)));
        for (key, values) in &extra {
            let of_value = |value: &String| permission(GROUP, "userextras", key, "", value);
            permissions.extend(values.iter().map(of_value));
        }
        if !uid.is_empty() {
            permissions.push(permission(GROUP, "uids", "", "", &uid));
        }
        if let (Some((namespace, _)), true) = (account, groups.is_empty()) {
            groups.push("system:serviceaccounts".to_owned());
            groups.push(format!("system:serviceaccounts:{namespace}"));
        }
        if name == ANONYMOUS && !groups.iter().any(|group| group == UNAUTHENTICATED) {
            groups.push(UNAUTHENTICATED.to_owned());
        }
        add_authenticated(&name, &mut groups);
        let user = Arc::new(User::new(name, uid, groups, extra));
        Some(Self { user, permissions: permissions.into() })
    }
}

/// Returns a value that the API server reads in the same way: text that is not empty, without
/// blanks at its ends.
fn text(value: &HeaderValue) -> Option<String> {
    let text = std::str::from_utf8(value.as_bytes()).ok()?;
    (!text.is_empty() && text.trim() == text).then(|| text.to_owned())
}

/// Returns the key of an extra field. Clients percent-encode what a header name cannot contain. The
/// constrained modes refuse upper case, which only an encoding can bring here.
fn extra_key(encoded: &str) -> Option<String> {
    let key = String::from_utf8(percent_decode(encoded.as_bytes(), false)?).ok()?;
    (!key.is_empty() && !key.bytes().any(|byte| byte.is_ascii_uppercase())).then_some(key)
}

/// Whether it is the name of a namespace or an account beyond doubt: letters, digits, dashes.
fn is_plain_name(name: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&name.len())
        && name.bytes().all(is_inner)
        && !name.starts_with('-')
        && !name.ends_with('-')
}

fn permission(
    group: &str,
    resource: &str,
    subresource: &str,
    namespace: &str,
    name: &str,
) -> Attributes {
    Attributes::Resource(Arc::new(ResourceAttributes {
        verb: Cow::Borrowed("impersonate"),
        gvr: GroupVersionResource::new(group, "v1", resource),
        subresource: subresource.to_owned(),
        namespace: namespace.into(),
        name: name.into(),
        fields: Vec::new(),
        labels: Vec::new(),
    }))
}

const PREFIX: &str = "impersonate-";
const GROUP: &str = "authentication.k8s.io";
/// The most groups and extra values.
const PARTS_MAX: usize = 16;
/// The most bytes of names and values: an open watch keeps them.
const BYTES_MAX: usize = 8 * 1024;

#[cfg(test)]
mod tests;
