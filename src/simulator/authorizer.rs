//! What a user may do (semantics.md §12.3): everything, for a member of `system:masters`; else what the configuration's own
//! rules allow, and what stored roles and bindings grant.

mod attributes;
mod decision;
mod rbac;

use super::identity::Identity;
use super::options::Rule;
use super::status::{ApiError, qualified};
use super::store::Store;

pub(super) use self::attributes::Attributes;
pub(super) use self::decision::Decision;
pub(super) use self::rbac::rules;

/// Whether a user may do something.
pub(super) fn authorize(store: &Store, who: &Identity, what: &Attributes) -> Decision {
    if who.groups.iter().any(|group| group == "system:masters") {
        return Decision { allowed: true, reason: String::new() };
    }
    if who.rules.iter().any(|rule| allows(rule, what)) {
        return Decision { allowed: true, reason: "allowed by the simulator's rules".to_owned() };
    }
    rbac::authorize(store, who, what)
}

/// Whether a configured rule covers this.
fn allows(rule: &Rule, what: &Attributes) -> bool {
    let has = |list: &[String], word: &str| list.iter().any(|known| known == "*" || known == word);
    let verb = match what.verb.as_str() {
        "impersonate" => rule.verbs.contains(&what.verb),
        verb => has(&rule.verbs, verb),
    };
    what.path.is_none()
        && verb
        && has(&rule.groups, &what.group)
        && has(&rule.resources, &what.combined())
        && has(&rule.namespaces, &what.namespace)
}

/// The 403 of what the user may not do.
pub(super) fn forbidden(who: &Identity, what: &Attributes, reason: &str) -> ApiError {
    let quote = |text: &str| format!("{text:?}");
    let cannot = match &what.path {
        Some(path) => {
            format!("User {} cannot {} path {}", quote(&who.name), what.verb, quote(path))
        }
        None => {
            let place = match what.namespace.as_str() {
                "" => "at the cluster scope".to_owned(),
                namespace => format!("in the namespace {}", quote(namespace)),
            };
            format!(
                "User {} cannot {} resource {} in API group {} {place}",
                quote(&who.name),
                what.verb,
                quote(&what.combined()),
                quote(&what.group),
            )
        }
    };
    // Only this part is made safe for a browser.
    let mut cannot = cannot.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    if !reason.is_empty() {
        cannot = format!("{cannot}: {reason}");
    }
    let resource = qualified(&what.group, &what.resource);
    let message = match (what.resource.as_str(), what.name.as_str()) {
        ("", _) => format!("forbidden: {cannot}"),
        (_, "") => format!("{resource} is forbidden: {cannot}"),
        (_, name) => format!("{resource} {} is forbidden: {cannot}", quote(name)),
    };
    ApiError::new(403, "Forbidden", message).about(&what.group, &what.resource, &what.name)
}
