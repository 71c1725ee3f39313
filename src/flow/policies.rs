//! Rules in the form of `spec.rules` of a FlowSchema, matched one by one.
//!
//! A plan's schemas are matched by [`candidates`](crate::candidates), which prepares them for
//! each user. Operators' rules are few.

use crate::object::InvalidObject;
use crate::schema::{Policy, RawPolicy, Subject};
use weir_api::request_info::RequestInfo;

/// The user of a request, if known: the name and the groups.
pub type KnownUser<'a> = Option<(&'a str, &'a [String])>;

/// `spec.rules` of a FlowSchema.
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
