//! Access reviews of clients, answered by the roles that Weir knows: which requests are such
//! reviews, what they ask, and the answers' bytes.
//!
//! Only what RBAC allows is answered (`docs/decisions/authorization.md`). A review that is not
//! read exactly is forwarded, and so the API server writes all errors and warnings. The sender
//! needs the permission to create the review, as at the API server;
//! [`router`](mod@crate::server::router) asks for it.

mod decode;
mod encode;
mod kind;
mod messages;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, USER_AGENT};
use http::{HeaderMap, Method, StatusCode};
use jiff::Timestamp;

use crate::api::media_type::{self, Encoding, Form, View};
use crate::api::request_info::Verb;
use crate::api::resource::{GroupVersionResource, Shape};
use crate::auth::attributes::{Attributes, NonResourceAttributes, ResourceAttributes};
use crate::auth::user::{Credential, Identity, User};
use crate::codec::pretty;
use crate::server::delegate::Reason;
use crate::server::http::headers;
use crate::server::request::context::RequestContext;
use crate::server::reviews::encode::AnswerContext;
use crate::server::reviews::kind::ReviewKind;
use crate::server::reviews::messages::Spec;

/// A request for a review, whose body is not read yet.
#[derive(Debug)]
pub(crate) struct ReviewRequest {
    kind: ReviewKind,
    /// The encoding of the body.
    encoding: Encoding,
    /// The length of the body.
    pub(crate) length: usize,
    /// The form of the answer.
    pub(crate) form: Form,
    /// The namespace of the path.
    namespace: Arc<str>,
    /// The manager of the fields: the client's name.
    manager: String,
}

/// The question of a review.
#[derive(Debug)]
pub(crate) enum Review {
    /// The question whether a user may do something.
    Access {
        spec: Box<Spec>,
        /// `None` for its sender.
        user: Option<Arc<User>>,
        attributes: Attributes,
    },
    /// The question who its sender is.
    SelfSubject,
}

impl ReviewRequest {
    /// Returns the review that a request is, unless its headers or its query say something that
    /// only the API server understands.
    pub(crate) fn parse(context: &RequestContext<'_>) -> Option<Self> {
        let (parts, info) = (&context.parts, &context.info);
        if context.decision.as_ref().err() != Some(&Reason::Write) || info.verb != Verb::Create {
            return None;
        }
        let request = info.resource.as_ref()?;
        let kind = ReviewKind::from_request(request)?;
        let (uri, given) = (&parts.uri, &parts.headers);
        let is_plain = parts.method == Method::POST
            && info.plain_path
            && !uri.path().ends_with('/')
            && uri.query().is_none_or(str::is_empty)
            && ![EXPECT, CONTENT_ENCODING].iter().any(|name| given.contains_key(name))
            && headers::upgrade(given).is_none()
            && !headers::bypasses_cache(given)
            && !headers::is_cross_origin(given)
            && !headers::impersonates(given);
        if !is_plain {
            return None;
        }
        let form = media_type::negotiate(given, &info.query, Shape::BuiltIn, Verb::Get)?;
        let length = only(given, CONTENT_LENGTH.as_str())?.parse().ok()?;
        let encoding = match only(given, CONTENT_TYPE.as_str())? {
            "application/json" => Encoding::Json,
            "application/vnd.kubernetes.protobuf" => Encoding::Protobuf,
            _ => return None,
        };
        let is_read = form.view == View::Full && length <= BODY_BYTES_MAX;
        let (namespace, manager) = (Arc::clone(&request.namespace), manager(given)?);
        is_read.then_some(Self { kind, encoding, length, form, namespace, manager })
    }

    /// Reads what a body asks; `None` if only the API server can.
    pub(crate) fn read(&self, body: &Bytes) -> Option<Review> {
        let spec = decode::decode(self.kind, self.encoding, &self.namespace, body)?;
        if self.kind == ReviewKind::SelfSubject {
            return Some(Review::SelfSubject);
        }
        let attributes = attributes(&spec)?;
        let user = (self.kind != ReviewKind::SelfSubjectAccess).then(|| Arc::new(user(&spec)));
        Some(Review::Access { spec: Box::new(spec), user, attributes })
    }

    /// Returns the body of the answer to a review that is allowed for `reason`.
    pub(crate) fn allowed(
        &self,
        spec: &Spec,
        reason: &str,
        omits_zero_times: bool,
    ) -> Option<Bytes> {
        let context = self.context(omits_zero_times);
        self.finish(encode::allowed(&context, spec, reason)?)
    }

    /// Returns the body of the answer that names its sender. Only of a token's user Weir knows all
    /// that the API server does: it is the API server's own answer.
    pub(crate) fn self_subject(
        &self,
        identity: &Identity,
        omits_zero_times: bool,
    ) -> Option<Bytes> {
        let Identity { user, credential, .. } = identity;
        let is_known = *credential == Credential::Token
            && user.extra.values().all(|values| !values.is_empty());
        let answer = || encode::self_subject(&self.context(omits_zero_times), user);
        self.finish(is_known.then(answer)??)
    }

    fn context(&self, omits_zero_times: bool) -> AnswerContext<'_> {
        AnswerContext {
            kind: self.kind,
            encoding: self.form.encoding,
            namespace: &self.namespace,
            manager: &self.manager,
            now: Timestamp::now().as_second(),
            omits_zero_times,
        }
    }

    fn finish(&self, mut body: Vec<u8>) -> Option<Bytes> {
        match self.form {
            Form { encoding: Encoding::Protobuf, .. } => {}
            Form { pretty: true, .. } => body = pretty::indent(&body),
            Form { .. } => body.push(b'\n'),
        }
        Some(body.into())
    }
}

/// Returns the text of a header that is there once.
fn only<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// Returns the manager of the fields: the user agent up to its first slash
/// (`prefixFromUserAgent`). `None` for one with other characters than printable ASCII.
fn manager(headers: &HeaderMap) -> Option<String> {
    let agent = match headers.contains_key(USER_AGENT) {
        true => only(headers, USER_AGENT.as_str())?,
        false => "",
    };
    let name = agent.split('/').next().unwrap_or_default();
    let is_printable = name.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    let name = name.get(..MANAGER_BYTES_MAX).unwrap_or(name);
    is_printable.then(|| if name.is_empty() { UNKNOWN_MANAGER } else { name }.to_owned())
}

/// Returns the attributes that a review is about (`pkg/registry/authorization/util`).
fn attributes(spec: &Spec) -> Option<Attributes> {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    if let Some(attributes) = &spec.resource_attributes {
        let [group, version, resource] =
            [&attributes.group, &attributes.version, &attributes.resource]
                .map(|text| text.as_deref().unwrap_or_default());
        return Some(Attributes::Resource(Arc::new(ResourceAttributes {
            verb: text(&attributes.verb).into(),
            gvr: GroupVersionResource::new(group, version, resource),
            subresource: text(&attributes.subresource),
            namespace: text(&attributes.namespace).into(),
            name: text(&attributes.name).into(),
            fields: Vec::new(),
            labels: Vec::new(),
        })));
    }
    let attributes = spec.non_resource_attributes.as_ref()?;
    let (path, verb) = (text(&attributes.path), text(&attributes.verb));
    Some(Attributes::NonResource(Arc::new(NonResourceAttributes { path, verb })))
}

/// Returns the user that a review names.
fn user(spec: &Spec) -> User {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let extra = spec.extra.iter().map(|(key, value)| (key.clone(), value.items.clone()));
    User::new(text(&spec.user), text(&spec.uid), spec.groups.clone(), extra.collect())
}

/// The code of an answer.
pub(crate) const CODE: StatusCode = StatusCode::CREATED;
/// Longer than any sensible review.
const BODY_BYTES_MAX: usize = 16 * 1024;
/// `FieldManagerMaxLength`.
const MANAGER_BYTES_MAX: usize = 128;
/// The manager of the fields of a client without a name.
const UNKNOWN_MANAGER: &str = "unknown";
