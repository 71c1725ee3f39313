//! Authorization (`docs/semantics.md` §12.3). A member of `system:masters` may do everything. Other
//! users may do what their configured rules and the stored roles and bindings allow.

mod attributes;
mod rbac;

use super::identity::Identity;
use super::options::Rule;
use super::status::{ApiError, qualified};
use super::store::Store;

pub(super) use self::attributes::{Attributes, Decision};
pub(super) use self::rbac::rules;

/// Whether a user may do everything.
pub(super) fn is_master(user: &Identity) -> bool {
    user.groups.iter().any(|group| group == "system:masters")
}

/// Decides whether a user may send a request.
pub(super) fn authorize(store: &Store, user: &Identity, attributes: &Attributes) -> Decision {
    if is_master(user) {
        return Decision { allowed: true, reason: String::new() };
    }
    if user.rules.iter().any(|rule| allows(rule, attributes)) {
        return Decision { allowed: true, reason: "allowed by the simulator's rules".to_owned() };
    }
    rbac::authorize(store, user, attributes)
}

/// Returns whether a configured rule covers a request.
fn allows(rule: &Rule, attributes: &Attributes) -> bool {
    let has = |list: &[String], word: &str| list.iter().any(|entry| entry == "*" || entry == word);
    let verb = match attributes.verb.as_str() {
        "impersonate" => rule.verbs.contains(&attributes.verb),
        verb => has(&rule.verbs, verb),
    };
    attributes.path.is_none()
        && verb
        && has(&rule.groups, &attributes.group)
        && has(&rule.resources, &attributes.combined())
        && has(&rule.namespaces, &attributes.namespace)
}

/// Returns the 403 of a request that is not allowed.
pub(super) fn forbidden(user: &Identity, attributes: &Attributes, reason: &str) -> ApiError {
    let quote = |text: &str| format!("{text:?}");
    let cannot = match &attributes.path {
        Some(path) => {
            format!("User {} cannot {} path {}", quote(&user.name), attributes.verb, quote(path))
        }
        None => {
            let place = match attributes.namespace.as_str() {
                "" => "at the cluster scope".to_owned(),
                namespace => format!("in the namespace {}", quote(namespace)),
            };
            format!(
                "User {} cannot {} resource {} in API group {} {place}",
                quote(&user.name),
                attributes.verb,
                quote(&attributes.combined()),
                quote(&attributes.group),
            )
        }
    };
    // The upstream escapes only this part for HTML.
    let mut cannot = cannot.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    if !reason.is_empty() {
        cannot = format!("{cannot}: {reason}");
    }
    let resource = qualified(&attributes.group, &attributes.resource);
    let message = match (attributes.resource.as_str(), attributes.name.as_str()) {
        ("", _) => format!("forbidden: {cannot}"),
        (_, "") => format!("{resource} is forbidden: {cannot}"),
        (_, name) => format!("{resource} {} is forbidden: {cannot}", quote(name)),
    };
    ApiError::new(403, "Forbidden", message).about(
        &attributes.group,
        &attributes.resource,
        &attributes.name,
    )
}
