//! The rules of a role (kube-apiserver, `pkg/apis/rbac/v1/evaluation_helpers.go`).
//!
//! All comparisons are case-sensitive and of whole strings. `*` is a wildcard only if it is the
//! whole string, in `*/subresource`, or at the end of a non-resource URL. A rule without resources
//! matches no resource, and one without URLs no path. A rule with both applies to either.

use crate::auth::attributes::Attributes;

/// The action that a request needs permission for. It borrows the attributes, because every request
/// is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action<'a> {
    /// A verb on a resource.
    Resource {
        /// The verb, such as `list`.
        verb: &'a str,
        /// The API group; empty for the core one.
        group: &'a str,
        /// The plural name of the resource.
        resource: &'a str,
        /// The subresource; empty for none.
        subresource: &'a str,
        /// The namespace; empty for the cluster.
        namespace: &'a str,
        /// The object's name; empty for none.
        name: &'a str,
    },
    /// A method on a path that belongs to no resource.
    NonResource {
        /// The method in lower case, such as `get`.
        verb: &'a str,
        /// The path.
        path: &'a str,
    },
}

impl<'a> Action<'a> {
    /// Returns the action of a request; `None` if it has neither a resource nor a path, which no
    /// client can send. RBAC ignores versions and selectors.
    pub fn from_attributes(attributes: &'a Attributes) -> Option<Self> {
        match attributes {
            Attributes::Resource(attributes) => Some(Self::Resource {
                verb: &attributes.verb,
                group: &attributes.gvr.group,
                resource: &attributes.gvr.resource,
                subresource: &attributes.subresource,
                namespace: &attributes.namespace,
                name: &attributes.name,
            }),
            Attributes::NonResource(attributes) => {
                let action = Self::NonResource { verb: &attributes.verb, path: &attributes.path };
                (!attributes.path.is_empty()).then_some(action)
            }
        }
    }

    /// Returns the namespace; empty for the cluster.
    pub fn namespace(&self) -> &'a str {
        match self {
            Self::Resource { namespace, .. } => namespace,
            Self::NonResource { .. } => "",
        }
    }
}

/// A PolicyRule. Absent lists are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    pub(super) verbs: Patterns,
    pub(super) groups: Patterns,
    pub(super) resources: Patterns,
    pub(super) names: Box<[Box<str>]>,
    pub(super) urls: Patterns,
}

/// A list of strings in which `*` matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Patterns {
    matches_all: bool,
    patterns: Box<[Box<str>]>,
}

impl Rule {
    /// Returns whether the rule allows the action (`RuleAllows`).
    pub fn allows(&self, action: &Action<'_>) -> bool {
        match action {
            Action::Resource { name, .. } => {
                self.allows_for_a_name(action) && self.matches_name(name)
            }
            Action::NonResource { verb, path } => {
                self.verbs.contains(verb) && self.matches_url(path)
            }
        }
    }

    /// Whether the rule allows the action for some name, whatever the action's own is.
    pub(super) fn allows_for_a_name(&self, action: &Action<'_>) -> bool {
        let Action::Resource { verb, group, resource, subresource, .. } = action else {
            return false;
        };
        self.verbs.contains(verb)
            && self.groups.contains(group)
            && self.matches_resource(resource, subresource)
    }

    /// `ResourceMatches`.
    fn matches_resource(&self, resource: &str, subresource: &str) -> bool {
        let matches = |pattern: &str| {
            if subresource.is_empty() {
                return pattern == resource;
            }
            let rest = pattern.strip_suffix(subresource).and_then(|rest| rest.strip_suffix('/'));
            rest.is_some_and(|rest| rest == resource || rest == ALL)
        };
        self.resources.matches_all || self.resources.patterns.iter().any(|pattern| matches(pattern))
    }

    /// `ResourceNameMatches`. A rule with names does not match a request without one, such as a
    /// list.
    fn matches_name(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|allowed| **allowed == *name)
    }

    /// `NonResourceURLMatches`.
    fn matches_url(&self, path: &str) -> bool {
        let matches = |url: &str| {
            url == path || (url.ends_with('*') && path.starts_with(url.trim_end_matches('*')))
        };
        self.urls.matches_all || self.urls.patterns.iter().any(|url| matches(url))
    }
}

impl Patterns {
    /// `VerbMatches`, `APIGroupMatches`.
    fn contains(&self, value: &str) -> bool {
        self.matches_all || self.patterns.iter().any(|pattern| **pattern == *value)
    }
}

impl From<Vec<Box<str>>> for Patterns {
    fn from(patterns: Vec<Box<str>>) -> Self {
        // Beside a wildcard the other patterns have no effect.
        if patterns.iter().any(|pattern| &**pattern == ALL) {
            return Self { matches_all: true, patterns: Box::default() };
        }
        Self { matches_all: false, patterns: patterns.into() }
    }
}

/// `VerbAll`, `APIGroupAll`, `ResourceAll`, `NonResourceAll`.
const ALL: &str = "*";
