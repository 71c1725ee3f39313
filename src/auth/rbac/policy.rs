//! Roles and bindings, read out of their JSON.
//!
//! Fields that are not known are passed over, and `null` is an empty list, as in kube-apiserver. What cannot be read for all that grants
//! nothing. Of a subject and a roleRef the `apiGroup` is not looked at, since kube-apiserver's authorizer does not either.
//!
//! `aggregationRule` is not evaluated: a controller of the upstream writes what it collects into `rules`, and only those count for the
//! API server's authorizer. Whoever evaluated it here would allow sooner than the API server does.

use std::sync::Arc;

use serde::{Deserialize, Deserializer};

use crate::auth::rbac::resource::RbacResource;
use crate::auth::rbac::rule::Rule;

/// What one object says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    /// A role's rules.
    Role(Arc<[Rule]>),
    /// Who is given which role.
    Binding(Binding),
    /// Nothing that can be read.
    Unreadable,
}

/// Who is given which role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Binding {
    /// The role; `None` for a reference that leads nowhere.
    pub(super) role: Option<RoleRef>,
    /// To whom; sorted, each once.
    pub(super) subjects: Box<[Subject]>,
}

/// A role as a binding names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RoleRef {
    /// One of the binding's namespace.
    Role(Arc<str>),
    /// One of the cluster.
    ClusterRole(Arc<str>),
}

/// Somebody as authentication names them; a service account is the user that its tokens stand for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Subject {
    /// A user's name.
    User(Arc<str>),
    /// A group's name.
    Group(Arc<str>),
}

impl Policy {
    /// Whether `other` in its place takes nothing from anybody.
    pub(super) fn is_within(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Unreadable, _) => true,
            (Self::Role(rules), Self::Role(others)) => {
                rules.iter().all(|rule| others.contains(rule))
            }
            (Self::Binding(binding), Self::Binding(other)) => {
                binding.role == other.role
                    && binding.subjects.iter().all(|subject| other.subjects.contains(subject))
            }
            _ => false,
        }
    }

    /// Reads an object of this resource, in this namespace (empty for the cluster).
    pub(super) fn read(resource: RbacResource, namespace: &str, json: &[u8]) -> Self {
        let read = match resource {
            RbacResource::Roles | RbacResource::ClusterRoles => {
                serde_json::from_slice(json).map(|role: RawRole| {
                    Self::Role(role.rules.into_iter().map(RawRule::compile).collect())
                })
            }
            RbacResource::RoleBindings | RbacResource::ClusterRoleBindings => {
                serde_json::from_slice(json)
                    .map(|binding: RawBinding| Self::Binding(binding.compile(namespace)))
            }
        };
        read.unwrap_or(Self::Unreadable)
    }
}

#[derive(Deserialize)]
struct RawRole {
    #[serde(default, deserialize_with = "list")]
    rules: Vec<RawRule>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawRule {
    #[serde(default, deserialize_with = "list")]
    verbs: Vec<Box<str>>,
    #[serde(default, deserialize_with = "list")]
    api_groups: Vec<Box<str>>,
    #[serde(default, deserialize_with = "list")]
    resources: Vec<Box<str>>,
    #[serde(default, deserialize_with = "list")]
    resource_names: Vec<Box<str>>,
    #[serde(default, deserialize_with = "list", rename = "nonResourceURLs")]
    non_resource_urls: Vec<Box<str>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawBinding {
    #[serde(default, deserialize_with = "list")]
    subjects: Vec<RawSubject>,
    role_ref: RawRoleRef,
}

#[derive(Deserialize)]
struct RawRoleRef {
    #[serde(default)]
    kind: Box<str>,
    #[serde(default)]
    name: Arc<str>,
}

#[derive(Deserialize)]
struct RawSubject {
    #[serde(default)]
    kind: Box<str>,
    #[serde(default)]
    name: Arc<str>,
    #[serde(default)]
    namespace: Box<str>,
}

impl RawRule {
    fn compile(self) -> Rule {
        Rule {
            verbs: self.verbs.into(),
            groups: self.api_groups.into(),
            resources: self.resources.into(),
            names: self.resource_names.into(),
            urls: self.non_resource_urls.into(),
        }
    }
}

impl RawBinding {
    fn compile(self, namespace: &str) -> Binding {
        let name = self.role_ref.name;
        let role = match &*self.role_ref.kind {
            // One of a namespace, which a binding of the cluster has none of.
            "Role" if namespace.is_empty() => None,
            "Role" => Some(RoleRef::Role(name)),
            "ClusterRole" => Some(RoleRef::ClusterRole(name)),
            _ => None,
        };
        let subjects = self.subjects.into_iter();
        let mut subjects: Vec<_> =
            subjects.filter_map(|subject| subject.compile(namespace)).collect();
        subjects.sort_unstable();
        subjects.dedup();
        Binding { role, subjects: subjects.into() }
    }
}

impl RawSubject {
    /// `appliesToUser`, turned round; `None` for a subject that nobody is.
    fn compile(self, namespace: &str) -> Option<Subject> {
        match &*self.kind {
            "User" => Some(Subject::User(self.name)),
            "Group" => Some(Subject::Group(self.name)),
            "ServiceAccount" => {
                let own = if self.namespace.is_empty() { namespace } else { &self.namespace };
                let user = || format!("system:serviceaccount:{own}:{}", self.name).into();
                (!own.is_empty()).then(|| Subject::User(user()))
            }
            _ => None,
        }
    }
}

/// A list that may be `null`.
fn list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}
