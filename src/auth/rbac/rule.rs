//! What a rule of a role allows (kube-apiserver, `pkg/apis/rbac/v1/evaluation_helpers.go`).
//!
//! Every comparison is of whole texts, in their case; `*` stands for everything only where it is all of a text, or leads `*/subresource`, or ends a
//! non-resource URL. A rule that names no resources matches no resource, one that names no URLs no path; one with both counts for either.

use crate::auth::attributes::Attributes;

/// What is asked. Borrowed, since it is asked for every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question<'a> {
    /// About a resource.
    Resource {
        /// The verb, such as `list`.
        verb: &'a str,
        /// The API group; empty for the core one.
        group: &'a str,
        /// The plural word.
        resource: &'a str,
        /// The subresource; empty for none.
        subresource: &'a str,
        /// The namespace; empty for the cluster.
        namespace: &'a str,
        /// The object's name; empty for none.
        name: &'a str,
    },
    /// About a path that belongs to no resource.
    NonResource {
        /// The method in small letters, such as `get`.
        verb: &'a str,
        /// The path.
        path: &'a str,
    },
}

impl<'a> Question<'a> {
    /// That of a request; `None` for one without a path, which nobody can send. RBAC knows no versions and no selectors.
    pub fn of(attributes: &'a Attributes) -> Option<Self> {
        match attributes {
            Attributes::Resource(attributes) => Some(Self::Resource {
                verb: attributes.verb,
                group: &attributes.gvr.group,
                resource: &attributes.gvr.resource,
                subresource: &attributes.subresource,
                namespace: &attributes.namespace,
                name: &attributes.name,
            }),
            Attributes::NonResource(attributes) => {
                let question = Self::NonResource { verb: &attributes.verb, path: &attributes.path };
                (!attributes.path.is_empty()).then_some(question)
            }
        }
    }

    /// The namespace in which it is asked; empty for the cluster.
    pub fn namespace(&self) -> &'a str {
        match self {
            Self::Resource { namespace, .. } => namespace,
            Self::NonResource { .. } => "",
        }
    }
}

/// A PolicyRule. Lists that are left out are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    pub(super) verbs: Words,
    pub(super) groups: Words,
    pub(super) resources: Words,
    pub(super) names: Box<[Box<str>]>,
    pub(super) urls: Words,
}

/// A list in which `*` stands for everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Words {
    any: bool,
    words: Box<[Box<str>]>,
}

impl Rule {
    /// Whether it allows what is asked (`RuleAllows`).
    pub fn allows(&self, question: &Question<'_>) -> bool {
        match question {
            Question::Resource { verb, group, resource, subresource, name, namespace: _ } => {
                self.verbs.have(verb)
                    && self.groups.have(group)
                    && self.has_resource(resource, subresource)
                    && self.has_name(name)
            }
            Question::NonResource { verb, path } => self.verbs.have(verb) && self.has_url(path),
        }
    }

    /// `ResourceMatches`.
    fn has_resource(&self, resource: &str, subresource: &str) -> bool {
        let matches = |word: &str| {
            if subresource.is_empty() {
                return word == resource;
            }
            let rest = word.strip_suffix(subresource).and_then(|rest| rest.strip_suffix('/'));
            rest.is_some_and(|rest| rest == resource || rest == ALL)
        };
        self.resources.any || self.resources.words.iter().any(|word| matches(word))
    }

    /// `ResourceNameMatches`: what has no name, such as a list, is not what a rule for names is about.
    fn has_name(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|own| **own == *name)
    }

    /// `NonResourceURLMatches`.
    fn has_url(&self, path: &str) -> bool {
        let matches = |url: &str| {
            url == path || (url.ends_with('*') && path.starts_with(url.trim_end_matches('*')))
        };
        self.urls.any || self.urls.words.iter().any(|url| matches(url))
    }
}

impl Words {
    /// `VerbMatches`, `APIGroupMatches`.
    fn have(&self, word: &str) -> bool {
        self.any || self.words.iter().any(|own| **own == *word)
    }
}

impl From<Vec<Box<str>>> for Words {
    fn from(words: Vec<Box<str>>) -> Self {
        // Where everything matches the other words add nothing.
        if words.iter().any(|word| &**word == ALL) {
            return Self { any: true, words: Box::default() };
        }
        Self { any: false, words: words.into() }
    }
}

/// `VerbAll`, `APIGroupAll`, `ResourceAll`, `NonResourceAll`.
const ALL: &str = "*";
