//! Why RBAC allows an action, in the API server's words (kube-apiserver,
//! `plugin/pkg/auth/authorizer/rbac/rbac.go`, `pkg/registry/rbac/validation/rule.go`).

use std::sync::Arc;

use crate::auth::rbac::policy::{RoleRef, Subject};
use crate::auth::user::User;

/// A binding that gives a role.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Source {
    pub(super) name: Arc<str>,
    pub(super) subjects: Arc<[Subject]>,
}

/// Returns the reason if the binding `source` gives `role` to the user. `namespace` is that of the
/// binding; empty for the cluster. `None` if a name cannot be quoted.
pub(super) fn allowed_by(
    source: &Source,
    namespace: &str,
    role: &RoleRef,
    user: &User,
) -> Option<String> {
    let subject = source.subjects.iter().find(|subject| subject.applies_to(user))?;
    let binding = match namespace {
        "" => format!("ClusterRoleBinding {}", quote(&source.name)?),
        _ => format!("RoleBinding {}", quote(&format!("{}/{namespace}", source.name))?),
    };
    let role = match role {
        RoleRef::Role(name) => format!("Role {}", quote(name)?),
        RoleRef::ClusterRole(name) => format!("ClusterRole {}", quote(name)?),
    };
    let subject = match subject {
        Subject::User(name) => format!("User {}", quote(name)?),
        Subject::Group(name) => format!("Group {}", quote(name)?),
        Subject::ServiceAccount(user) => {
            let (namespace, name) = user.strip_prefix(SERVICE_ACCOUNT)?.rsplit_once(':')?;
            format!("ServiceAccount {}", quote(&format!("{name}/{namespace}"))?)
        }
    };
    Some(format!("RBAC: allowed by {binding} of {role} to {subject}"))
}

/// Quotes a text like Go's `%q`. `None` if the text has other characters than printable ASCII,
/// whose escapes depend on tables of Go's.
fn quote(text: &str) -> Option<String> {
    let is_plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    is_plain.then(|| format!("\"{}\"", text.replace('\\', r"\\").replace('"', "\\\"")))
}

/// The user names of service accounts begin with it.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";
