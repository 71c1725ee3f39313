//! FlowSchemas of `flowcontrol.apiserver.k8s.io/v1`, parsed and validated.
//!
//! The checks are those of kube-apiserver (`pkg/apis/flowcontrol/validation/validation.go`), but
//! for the syntax of names, which decides nothing here. The API server accepts no other object; one
//! that comes from elsewhere must not be understood in two ways.

use std::sync::Arc;

use serde::Deserialize;

pub use crate::object::InvalidObject;
use crate::object::{Names, ObjectId, RawObject, check, list};

/// A FlowSchema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowSchema {
    /// Its name.
    pub name: Arc<str>,
    /// Its uid; empty if it is built in.
    pub uid: Arc<str>,
    /// `matchingPrecedence`: the lowest that matches counts.
    pub precedence: i32,
    /// The name of its priority level.
    pub level: Arc<str>,
    /// The distinguisher that divides its requests into flows; `None` if all are one flow.
    pub distinguisher: Option<Distinguisher>,
    pub(super) policies: Box<[Policy]>,
}

/// The attribute of a request that divides the requests of a FlowSchema into flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distinguisher {
    /// The name of the user.
    ByUser,
    /// The namespace of the request, empty if it has none.
    ByNamespace,
}

/// `PolicyRulesWithSubjects`: matches if a subject and a rule do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Policy {
    pub(super) subjects: Box<[Subject]>,
    pub(super) resources: Box<[ResourceRule]>,
    pub(super) paths: Box<[PathRule]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    /// Every user: the user `*`, or the group `*`.
    Everybody,
    /// A user, by name. A service account is the user of its tokens.
    User(Box<str>),
    Group(Box<str>),
    /// All service accounts of a namespace, by what their user names begin with.
    ServiceAccounts(Box<str>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ResourceRule {
    pub(super) verbs: Names,
    pub(super) groups: Names,
    /// Each is `resource` or `resource/subresource`.
    pub(super) resources: Names,
    pub(super) namespaces: Names,
    /// Whether it matches requests without a namespace.
    pub(super) cluster_scope: bool,
}

/// `NonResourcePolicyRule`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PathRule {
    pub(super) verbs: Names,
    pub(super) paths: Names,
}

impl FlowSchema {
    /// Parses and validates an object in JSON.
    pub fn parse(json: &[u8]) -> Result<Self, InvalidObject> {
        let (ObjectId { name, uid }, spec) = RawObject::<RawSpec>::parse(json)?;
        let precedence = match spec.matching_precedence {
            0 => PRECEDENCE_DEFAULT,
            precedence => precedence,
        };
        let field = "spec.matchingPrecedence";
        check((1..=PRECEDENCE_MAX).contains(&precedence), field, "is not within 1 to 10000")?;
        let is_free = precedence != 1 || &*name == EXEMPT;
        check(is_free, field, "1 is for the schema \"exempt\" only")?;
        let level = spec.priority_level_configuration.name;
        check(!level.is_empty(), "spec.priorityLevelConfiguration.name", "is empty")?;
        let distinguisher = spec.distinguisher_method.map(|method| match &*method.kind {
            "ByUser" => Ok(Distinguisher::ByUser),
            "ByNamespace" => Ok(Distinguisher::ByNamespace),
            _ => Err(rejected("spec.distinguisherMethod.type", "is unknown")),
        });
        let policies = spec.rules.into_iter().map(RawPolicy::compile).collect::<Result<_, _>>()?;
        let distinguisher = distinguisher.transpose()?;
        Ok(Self { name, uid, precedence, level, distinguisher, policies })
    }
}

fn rejected(field: &'static str, problem: &'static str) -> InvalidObject {
    InvalidObject::Rejected { field, problem }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawSpec {
    #[serde(default)]
    priority_level_configuration: RawName<Arc<str>>,
    #[serde(default)]
    matching_precedence: i32,
    distinguisher_method: Option<RawDistinguisher>,
    #[serde(default, deserialize_with = "list")]
    rules: Vec<RawPolicy>,
}

#[derive(Default, Deserialize)]
struct RawName<T> {
    #[serde(default)]
    name: T,
}

#[derive(Deserialize)]
struct RawDistinguisher {
    #[serde(default, rename = "type")]
    kind: Box<str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RawPolicy {
    #[serde(default, deserialize_with = "list")]
    subjects: Vec<RawSubject>,
    #[serde(default, deserialize_with = "list")]
    resource_rules: Vec<RawResourceRule>,
    #[serde(default, deserialize_with = "list")]
    non_resource_rules: Vec<RawPathRule>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawSubject {
    #[serde(default)]
    kind: Box<str>,
    user: Option<RawName<Box<str>>>,
    group: Option<RawName<Box<str>>>,
    service_account: Option<RawServiceAccount>,
}

#[derive(Deserialize)]
struct RawServiceAccount {
    #[serde(default)]
    namespace: Box<str>,
    #[serde(default)]
    name: Box<str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawResourceRule {
    #[serde(default, deserialize_with = "list")]
    verbs: Vec<Box<str>>,
    #[serde(default, deserialize_with = "list")]
    api_groups: Vec<Box<str>>,
    #[serde(default, deserialize_with = "list")]
    resources: Vec<Box<str>>,
    #[serde(default, deserialize_with = "list")]
    namespaces: Vec<Box<str>>,
    #[serde(default)]
    cluster_scope: bool,
}

#[derive(Deserialize)]
struct RawPathRule {
    #[serde(default, deserialize_with = "list")]
    verbs: Vec<Box<str>>,
    #[serde(default, deserialize_with = "list", rename = "nonResourceURLs")]
    non_resource_urls: Vec<Box<str>>,
}

impl RawPolicy {
    pub(super) fn compile(self) -> Result<Policy, InvalidObject> {
        let rules = self.resource_rules.len() + self.non_resource_rules.len();
        check(rules > 0, "spec.rules", "has a member without rules")?;
        check(!self.subjects.is_empty(), "spec.rules.subjects", "is empty")?;
        let resources = self.resource_rules.into_iter().map(RawResourceRule::compile);
        let paths = self.non_resource_rules.into_iter().map(RawPathRule::compile);
        Ok(Policy {
            subjects: self
                .subjects
                .into_iter()
                .map(RawSubject::compile)
                .collect::<Result<_, _>>()?,
            resources: resources.collect::<Result<_, _>>()?,
            paths: paths.collect::<Result<_, _>>()?,
        })
    }
}

impl RawSubject {
    fn compile(self) -> Result<Subject, InvalidObject> {
        let field = "spec.rules.subjects";
        match (&*self.kind, self.user, self.group, self.service_account) {
            ("User", Some(RawName { name }), None, None) => {
                check(!name.is_empty(), field, "has a user without a name")?;
                Ok(if &*name == "*" { Subject::Everybody } else { Subject::User(name) })
            }
            ("Group", None, Some(RawName { name }), None) => {
                check(!name.is_empty(), field, "has a group without a name")?;
                Ok(if &*name == "*" { Subject::Everybody } else { Subject::Group(name) })
            }
            ("ServiceAccount", None, None, Some(RawServiceAccount { namespace, name })) => {
                let is_whole = !namespace.is_empty() && !name.is_empty();
                check(is_whole, field, "has a service account without a name or namespace")?;
                let prefix = format!("system:serviceaccount:{namespace}:");
                Ok(match &*name {
                    "*" => Subject::ServiceAccounts(prefix.into()),
                    name => Subject::User((prefix + name).into()),
                })
            }
            _ => {
                Err(rejected(field, "has a member that is not one user, group or service account"))
            }
        }
    }
}

impl RawResourceRule {
    fn compile(self) -> Result<ResourceRule, InvalidObject> {
        let names = |list, field| Names::parse(list, field)?.not_empty(field);
        let namespaces = "spec.rules.resourceRules.namespaces";
        let has_scope = self.cluster_scope || !self.namespaces.is_empty();
        check(has_scope, namespaces, "is empty without clusterScope")?;
        Ok(ResourceRule {
            verbs: verbs(self.verbs, "spec.rules.resourceRules.verbs")?,
            groups: names(self.api_groups, "spec.rules.resourceRules.apiGroups")?,
            resources: names(self.resources, "spec.rules.resourceRules.resources")?,
            namespaces: Names::parse(self.namespaces, namespaces)?,
            cluster_scope: self.cluster_scope,
        })
    }
}

impl RawPathRule {
    fn compile(self) -> Result<PathRule, InvalidObject> {
        let field = "spec.rules.nonResourceRules.nonResourceURLs";
        let paths = Names::parse(self.non_resource_urls, field)?.not_empty(field)?;
        check(paths.all_match(is_path), field, "has a member that is no path")?;
        Ok(PathRule { verbs: verbs(self.verbs, "spec.rules.nonResourceRules.verbs")?, paths })
    }
}

fn verbs(list: Vec<Box<str>>, field: &'static str) -> Result<Names, InvalidObject> {
    let verbs = Names::parse(list, field)?.not_empty(field)?;
    check(verbs.all_match(|verb| VERBS.contains(&verb)), field, "has an unknown verb")?;
    Ok(verbs)
}

/// `ValidateNonResourceURLPath`: `*` is only valid at the end, after a slash.
fn is_path(path: &str) -> bool {
    let rest = path.strip_suffix('*').unwrap_or(path);
    let star_follows_slash = rest.len() == path.len() || rest.ends_with('/');
    path.starts_with('/')
        && !path.contains(' ')
        && !path.contains("//")
        && !rest.contains('*')
        && star_follows_slash
}

/// The schema, and the level, of requests that are never limited.
pub(super) const EXEMPT: &str = "exempt";
const PRECEDENCE_DEFAULT: i32 = 1_000;
const PRECEDENCE_MAX: i32 = 10_000;

const VERBS: [&str; 9] =
    ["get", "list", "create", "update", "delete", "deletecollection", "patch", "watch", "proxy"];

#[cfg(test)]
mod tests;
