//! Roles and bindings, parsed from JSON.
//!
//! Unknown fields are ignored and `null` is an empty list, as in kube-apiserver. An object that
//! cannot be read grants nothing. The `apiGroup` of a subject or roleRef is ignored, because
//! kube-apiserver's authorizer ignores it too.
//!
//! `aggregationRule` is not evaluated: a controller of the upstream writes the aggregated rules
//! into `rules`, and the API server's authorizer uses only those. Evaluating it here would allow
//! requests earlier than the API server does.

use std::sync::Arc;

use serde::{Deserialize, Deserializer};

use crate::auth::rbac::resource::RbacResource;
use crate::auth::rbac::rule::Rule;
use crate::auth::user::User;

/// A role or binding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    /// A role's rules.
    Role(Arc<[Rule]>),
    /// A role given to subjects.
    Binding(Binding),
    /// An object that cannot be read.
    Unreadable,
}

/// A role given to subjects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Binding {
    /// The role; `None` if the reference is invalid.
    pub(super) role: Option<RoleRef>,
    /// The subjects, in the order of the object.
    pub(super) subjects: Arc<[Subject]>,
}

/// A reference to a role.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RoleRef {
    /// A role in the namespace of the binding.
    Role(Arc<str>),
    /// A cluster role.
    ClusterRole(Arc<str>),
}

/// Users to whom a binding gives its role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    /// The name of a user.
    User(Arc<str>),
    /// The name of a group.
    Group(Arc<str>),
    /// The user name of a service account's tokens.
    ServiceAccount(Arc<str>),
}

impl Subject {
    /// Whether the user is one of them (`appliesToUser`).
    pub(super) fn applies_to(&self, user: &User) -> bool {
        match self {
            Self::User(name) | Self::ServiceAccount(name) => user.name == **name,
            Self::Group(name) => user.groups.iter().any(|group| *group == **name),
        }
    }
}

impl Policy {
    /// Returns whether replacing this by `other` revokes no permission.
    pub(super) fn is_within(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Unreadable, _) => true,
            (Self::Role(rules), Self::Role(other_rules)) => {
                rules.iter().all(|rule| other_rules.contains(rule))
            }
            (Self::Binding(binding), Self::Binding(other)) => {
                binding.role == other.role
                    && binding.subjects.iter().all(|subject| other.subjects.contains(subject))
            }
            _ => false,
        }
    }

    /// Parses an object of a resource. `namespace` is empty for a cluster-scoped one.
    pub(super) fn parse(resource: RbacResource, namespace: &str, json: &[u8]) -> Self {
        let parsed = match resource {
            RbacResource::Roles | RbacResource::ClusterRoles => {
                serde_json::from_slice(json).map(|role: RawRole| {
                    let rules = role.rules.into_iter().filter(RawRule::is_unambiguous);
                    Self::Role(rules.map(RawRule::compile).collect())
                })
            }
            RbacResource::RoleBindings | RbacResource::ClusterRoleBindings => {
                serde_json::from_slice(json)
                    .map(|binding: RawBinding| Self::Binding(binding.compile(namespace)))
            }
        };
        parsed.unwrap_or(Self::Unreadable)
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
    /// Whether nothing of it stands for several texts. A part must not be left out alone: without
    /// names, a rule is for all of them.
    fn is_unambiguous(&self) -> bool {
        let Self { verbs, api_groups, resources, resource_names, non_resource_urls } = self;
        let lists = [verbs, api_groups, resources, resource_names, non_resource_urls];
        lists.into_iter().flatten().all(|text| is_unambiguous(text))
    }

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
            // A cluster role binding has no namespace in which the role could be.
            _ if !is_unambiguous(&name) => None,
            "Role" if namespace.is_empty() => None,
            "Role" => Some(RoleRef::Role(name)),
            "ClusterRole" => Some(RoleRef::ClusterRole(name)),
            _ => None,
        };
        let subjects = self.subjects.into_iter();
        let subjects = subjects.filter_map(|subject| subject.compile(namespace)).collect();
        Binding { role, subjects }
    }
}

impl RawSubject {
    /// Returns the users and groups to whom a subject applies (`appliesToUser`, reversed); `None`
    /// if it applies to no one.
    fn compile(self, namespace: &str) -> Option<Subject> {
        if !is_unambiguous(&self.name) || !is_unambiguous(&self.namespace) {
            return None;
        }
        match &*self.kind {
            "User" => Some(Subject::User(self.name)),
            "Group" => Some(Subject::Group(self.name)),
            "ServiceAccount" => {
                let namespace_name =
                    if self.namespace.is_empty() { namespace } else { &self.namespace };
                let user =
                    || format!("system:serviceaccount:{namespace_name}:{}", self.name).into();
                (!namespace_name.is_empty()).then(|| Subject::ServiceAccount(user()))
            }
            _ => None,
        }
    }
}

/// Whether a text is the one that the API server has. In JSON, U+FFFD stands for any byte that is
/// not UTF-8 (`docs/semantics.md` §3.6), so that two names may seem to be one. What has it grants
/// nothing here: an access review decides.
fn is_unambiguous(text: &str) -> bool {
    !text.contains(char::REPLACEMENT_CHARACTER)
}

/// A list that may be `null`.
fn list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}
