//! The kinds of reviews that Weir answers.

use crate::api::request_info::ResourceRequest;
use crate::server::reviews::messages::{ExtraValue, Spec, is_empty};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReviewKind {
    /// A question about the permissions of its sender.
    SelfSubjectAccess,
    /// A question about the permissions of a user.
    SubjectAccess,
    /// A question about the permissions of a user in the namespace of the request.
    LocalSubjectAccess,
    SelfSubject,
}

impl ReviewKind {
    pub(super) fn from_request(request: &ResourceRequest) -> Option<Self> {
        let gvr = &request.gvr;
        let path = [&gvr.group, &gvr.version, &gvr.resource].map(|text| &**text);
        let kind = match path {
            [AUTHORIZATION, "v1", "selfsubjectaccessreviews"] => Self::SelfSubjectAccess,
            [AUTHORIZATION, "v1", "subjectaccessreviews"] => Self::SubjectAccess,
            [AUTHORIZATION, "v1", "localsubjectaccessreviews"] => Self::LocalSubjectAccess,
            [AUTHENTICATION, "v1", "selfsubjectreviews"] => Self::SelfSubject,
            _ => return None,
        };
        let is_plain = request.name.is_empty() && request.subresource.is_empty();
        let is_local = kind == Self::LocalSubjectAccess;
        (is_plain && request.namespace.is_empty() != is_local).then_some(kind)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::SelfSubjectAccess => "SelfSubjectAccessReview",
            Self::SubjectAccess => "SubjectAccessReview",
            Self::LocalSubjectAccess => "LocalSubjectAccessReview",
            Self::SelfSubject => "SelfSubjectReview",
        }
    }

    pub(super) fn api_version(self) -> &'static str {
        match self {
            Self::SelfSubject => "authentication.k8s.io/v1",
            _ => "authorization.k8s.io/v1",
        }
    }

    /// Whether the API server accepts the spec (`pkg/apis/authorization/validation`), and Weir
    /// writes its fields like the API server.
    pub(super) fn is_valid(self, spec: &Spec, namespace: &str) -> bool {
        let Spec { resource_attributes, non_resource_attributes, user, groups, extra, uid } = spec;
        let has_user = (!is_empty(user) || !groups.is_empty()) && groups.len() <= GROUPS_MAX;
        let has_one_target = resource_attributes.is_some() != non_resource_attributes.is_some();
        let is_writable = |(key, value): (&String, &ExtraValue)| {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte);
            key.bytes().all(is_plain) && !key.is_empty() && !value.items.is_empty()
        };
        match self {
            Self::SelfSubject => *spec == Spec::default(),
            // In protobuf a body may have fields that this spec does not have.
            Self::SelfSubjectAccess => {
                has_one_target
                    && user.is_none()
                    && uid.is_none()
                    && groups.is_empty()
                    && extra.is_empty()
            }
            Self::SubjectAccess => has_one_target && has_user && extra.iter().all(is_writable),
            Self::LocalSubjectAccess => {
                let is_in_namespace = resource_attributes
                    .as_ref()
                    .is_some_and(|attributes| attributes.namespace.as_deref() == Some(namespace));
                has_one_target && is_in_namespace && has_user && extra.iter().all(is_writable)
            }
        }
    }
}

/// The most groups of a user in a review: the roles of each are looked at.
const GROUPS_MAX: usize = 32;
const AUTHORIZATION: &str = "authorization.k8s.io";
const AUTHENTICATION: &str = "authentication.k8s.io";
