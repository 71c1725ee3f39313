//! The sender of a request, as far as it is known for accounting. It grants nothing, but whether
//! the context of the sender's trace counts (`docs/decisions/tracing.md`).

use std::borrow::Cow;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, LazyLock};

use http::HeaderValue;

use crate::api::request_info::RequestInfo;
use crate::auth::standing::Standing;
use crate::auth::user::User;

/// The sender of a request. A user who impersonates another one counts as himself.
#[derive(Clone, Debug, Default)]
pub(crate) enum Requester {
    /// Unknown: the credential is wrong, or only the upstream can read it.
    #[default]
    Unidentified,
    /// The holder of a token that no review has named yet, by a part of the token's keyed hash.
    Token(u32),
    User(Arc<User>),
    /// Any client of a sidecar.
    Sidecar,
}

impl Requester {
    /// Returns the sender of requests without a credential.
    pub(crate) fn anonymous() -> Self {
        static ANONYMOUS: LazyLock<Arc<User>> = LazyLock::new(|| Arc::new(User::anonymous()));
        Self::User(Arc::clone(&ANONYMOUS))
    }

    /// Returns the sender of a request with a token; `None` if it has none.
    pub(crate) fn from_token(standing: &Standing) -> Option<Self> {
        Some(match standing.token_user()? {
            Ok(user) => Self::User(Arc::clone(user)),
            Err(hash) => Self::Token(hash),
        })
    }

    pub(crate) fn user(&self) -> Option<&User> {
        match self {
            Self::User(user) => Some(user),
            Self::Unidentified | Self::Token(_) | Self::Sidecar => None,
        }
    }

    pub(crate) fn is_user(&self, other: &Arc<User>) -> bool {
        matches!(self, Self::User(user) if Arc::ptr_eq(user, other) || user.key() == other.key())
    }

    pub(super) fn name(&self) -> Cow<'_, str> {
        match self {
            Self::Unidentified => "unidentified".into(),
            Self::Token(hash) => format!("token #{hash:08x}").into(),
            Self::User(user) => (&*user.name).into(),
            Self::Sidecar => "".into(),
        }
    }
}

impl Hash for Requester {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Self::Unidentified => state.write_u8(0),
            Self::Token(hash) => (1_u8, hash).hash(state),
            Self::User(user) => user.name.hash(state),
            Self::Sidecar => state.write_u8(2),
        }
    }
}

/// Returns the text of a User-Agent; empty if there is none that is text.
pub(super) fn agent(agent: Option<&HeaderValue>) -> &str {
    agent.and_then(|agent| agent.to_str().ok()).unwrap_or_default()
}

/// Returns the requested resource with its group and subresource, or the first part of the path.
pub(super) fn resource(info: &RequestInfo) -> String {
    let Some(request) = &info.resource else { return path(info).to_owned() };
    let (group, resource) = (&request.gvr.group, &request.gvr.resource);
    let mut text = resource.to_string();
    if !request.subresource.is_empty() {
        text = format!("{text}/{}", request.subresource);
    }
    if group.is_empty() { text } else { format!("{text}.{group}") }
}

/// Returns the first part of a path that is not a resource's.
pub(super) fn path(info: &RequestInfo) -> &str {
    let path = info.non_resource.as_ref().map_or("", |request| &request.path);
    let end = path.char_indices().skip(1).find(|(_, letter)| *letter == '/');
    end.and_then(|(end, _)| path.get(..end)).unwrap_or(path)
}
