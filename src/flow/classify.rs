//! Finds the FlowSchema of a request, as kube-apiserver does (`util/flowcontrol/rule.go`).
//!
//! A user sends many requests, so the work is done in two steps. [`Plan::candidates`] collects the
//! rules whose subjects match a user; the server keeps the result with the connection. Then
//! [`Plan::classify`] looks for the first of them that matches a request. Users whom the same
//! policies name share their candidates, so that a thousand schemas do not cost memory for each
//! connection.

use std::sync::Arc;

use crate::candidates::Candidates;
use crate::object::InvalidObject;
use crate::plan::Plan;
use crate::schema::{Distinguisher, FlowSchema, Policy, RawPolicy, Subject};
use weir_api::request_info::RequestInfo;

impl Plan {
    /// Returns the rules that are about a user.
    pub fn candidates(&self, name: &str, groups: &[String]) -> Arc<Candidates> {
        let mut policies = Vec::new();
        for (schema, number) in self.schemas().iter().zip(0..) {
            let about = schema.policies.iter().zip(0..);
            let about = about.filter(|(policy, _)| policy.is_about(name, groups));
            policies.extend(about.map(|(_, policy)| (number, policy)));
        }
        let policies: Box<[(u32, u32)]> = policies.into();
        let mut shared = self.candidates.lock();
        if let Some(candidates) = shared.get(&policies) {
            return Arc::clone(candidates);
        }
        let candidates = Arc::new(Candidates::new(self.schemas(), &policies));
        if shared.len() < SHARED_MAX {
            shared.insert(policies, Arc::clone(&candidates));
        }
        candidates
    }

    /// Returns the place of a request's schema among [`Plan::schemas`]. `candidates` are those of
    /// its user in this plan.
    pub fn classify(&self, candidates: &Candidates, info: &RequestInfo) -> usize {
        let rule = match (&info.resource, &info.non_resource) {
            (Some(request), _) => candidates.find_for_resource(info.verb, request),
            (None, Some(request)) => candidates.find_for_path(request),
            (None, None) => None,
        };
        rule.unwrap_or(self.catch_all())
    }
}

impl FlowSchema {
    /// Returns what distinguishes a request's flow from the schema's others; empty if nothing does.
    pub fn flow<'a>(&self, user: &'a str, info: &'a RequestInfo) -> &'a str {
        match self.distinguisher {
            None => "",
            Some(Distinguisher::ByUser) => user,
            Some(Distinguisher::ByNamespace) => {
                info.resource.as_ref().map_or("", |resource| &resource.namespace)
            }
        }
    }
}

/// The user of a request, if known: the name and the groups.
pub type KnownUser<'a> = Option<(&'a str, &'a [String])>;

/// `spec.rules` of a FlowSchema, matched one by one: operators' rules are few.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policies(Box<[Policy]>);

impl Policies {
    /// Parses and validates the list in JSON, as kube-apiserver does.
    pub fn parse(json: &[u8]) -> Result<Self, InvalidObject> {
        let raw: Vec<RawPolicy> = serde_json::from_slice(json)
            .map_err(|error| InvalidObject::Malformed(error.to_string()))?;
        let compiled = raw.into_iter().map(RawPolicy::compile).collect::<Result<_, _>>()?;
        Ok(Self(compiled))
    }

    /// Whether one of them matches. Only policies about everybody match an unknown user.
    pub fn match_request(&self, user: KnownUser<'_>, info: &RequestInfo) -> bool {
        self.0.iter().any(|policy| {
            let is_about = match user {
                Some((name, groups)) => policy.is_about(name, groups),
                None => policy.subjects.contains(&Subject::Everybody),
            };
            is_about && policy.matches(info)
        })
    }
}

impl Policy {
    fn is_about(&self, name: &str, groups: &[String]) -> bool {
        self.subjects.iter().any(|subject| match subject {
            Subject::Everybody => true,
            Subject::User(user) => **user == *name,
            Subject::Group(group) => groups.iter().any(|member| **group == **member),
            Subject::ServiceAccounts(prefix) => name.starts_with(&**prefix),
        })
    }

    fn matches(&self, info: &RequestInfo) -> bool {
        match (&info.resource, &info.non_resource) {
            (Some(request), _) => self.resources.iter().any(|rule| {
                rule.verbs.any(|verb| verb == info.verb.as_str()) && rule.matches(request)
            }),
            (None, Some(request)) => self.paths.iter().any(|rule| rule.matches(request)),
            (None, None) => false,
        }
    }
}

/// Sets of candidates that a plan keeps. Clusters have few kinds of users.
const SHARED_MAX: usize = 1024;

#[cfg(test)]
mod tests;
