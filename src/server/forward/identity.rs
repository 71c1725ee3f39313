//! Whose name is on what is forwarded (design, section 8; semantics.md §12.5).
//!
//! The upstream judges every request that it gets, so all that matters is that it is told who asks, by a way on which nothing else can be told.
//! A [`Carry`] chooses both at once, the pool and the headers: [`Upstreams`] gives no pool to a carry that is not for it, and what is missing is
//! an error, never another pool.
//!
//! Invariants, in this order ([`Carry::apply`]): `Connection` may not name a header that tells an identity; hop-by-hop headers are removed;
//! then what the client may not say of itself; only then is what Weir says added. Two ways to tell who asks are never on one request: a client's
//! `Impersonate-*` is judged by the client's own rights or not sent at all.
//!
//! Names with underscores (`X_Remote_User`) are left alone: neither Go's server nor kube-apiserver takes them for those with dashes.

mod identity_headers;
mod names;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::{HeaderMap, StatusCode};

use crate::api::status::Status;
use crate::auth::user::User;
use crate::server::connection::Client;
pub(crate) use crate::server::forward::identity::names::IdentityNames;
use crate::server::http::headers;
use crate::server::http::response;
use crate::upstream::Upstream;

/// How a request tells the upstream who asks.
#[derive(Clone, Debug)]
pub(crate) enum Carry {
    /// Everybody is Weir (sidecar mode). A client's own credential is dropped; its `Impersonate-*` passes, and is judged by Weir's rights.
    Weir,
    /// As the client told it: its `Authorization` or the token in its WebSocket sub-protocol, or nothing; its `Impersonate-*` is judged by its
    /// own rights.
    AsIs,
    /// By the headers of a front proxy. `Impersonate-*` passes, and is judged by the user's rights.
    FrontProxy(Arc<User>),
    /// By impersonation with Weir's own identity. With an `Impersonate-*` of its own a request is refused.
    Impersonate(Arc<User>),
}

/// The connections to one upstream, apart by what they show of who sends.
pub struct Upstreams {
    /// With Weir's own identity.
    pub own: Upstream,
    /// With nothing ([`Upstream::bare`]).
    pub bare: Option<Upstream>,
    /// With a front proxy's certificate ([`Upstream::front_proxy`]).
    pub front_proxy: Option<Upstream>,
}

impl Upstreams {
    /// Weir's own connections alone.
    pub fn own(own: Upstream) -> Self {
        Self { own, bare: None, front_proxy: None }
    }

    /// The connections for what is carried so. There is no substitute for those that are not there.
    pub(crate) fn of(&self, carry: &Carry) -> Result<&Upstream, Status> {
        let found = match carry {
            Carry::Weir => Some(&self.own),
            // On top of the one in the kubeconfig it would act as somebody else than the upstream was told to allow.
            Carry::Impersonate(_) => Some(&self.own).filter(|own| !own.impersonates()),
            Carry::AsIs => self.bare.as_ref(),
            Carry::FrontProxy(_) => self.front_proxy.as_ref(),
        };
        found.ok_or_else(|| {
            let message = "weir has no connections that may carry this client's identity";
            response::refusal(
                StatusCode::INTERNAL_SERVER_ERROR,
                "InternalError",
                message.to_owned(),
            )
        })
    }
}

impl Carry {
    /// Takes from a request's headers what does not pass, and adds who asks and where it came from. Errors are Weir's own answers, and then
    /// nothing may be sent.
    pub(crate) fn apply(
        &self,
        names: &IdentityNames,
        client: &Client,
        given: &mut HeaderMap,
    ) -> Result<(), Status> {
        let names = names.load();
        if matches!(self, Self::FrontProxy(_) | Self::Impersonate(_)) && !names.are_known() {
            return Err(response::not_known_yet());
        }
        if let Some(name) = headers::connection_names(given).find(|name| names.contain(name)) {
            return Err(connection_refused(name.as_str()));
        }
        headers::remove_hop_by_hop(given)
            .map_err(|headers::IdentityNamed(name)| connection_refused(&name))?;
        names.remove_from(given);
        match self {
            Self::Weir => headers::remove_credentials(given),
            Self::AsIs => {
                headers::remove_proxy_credentials(given);
                // Many clients share these connections; a token must not be in the tables of their header compression.
                // Not by an entry: looking for one panics in a map that is full.
                given
                    .iter_mut()
                    .filter(|(name, _)| *name == AUTHORIZATION)
                    .for_each(|(_, token)| token.set_sensitive(true));
            }
            Self::FrontProxy(user) => {
                headers::remove_credentials(given);
                let by =
                    names.remote_user_headers().ok_or_else(identity_headers::nobody_listens)?;
                identity_headers::as_front_proxy(user, by, given)?;
            }
            Self::Impersonate(user) => {
                if headers::impersonates(given) {
                    let message = "weir forwards this client's requests by impersonation, which cannot be combined with impersonation of its own";
                    return Err(identity_headers::forbidden(message));
                }
                headers::remove_credentials(given);
                identity_headers::as_impersonated(user, given)?;
            }
        }
        if let Some(address) = client.address {
            headers::append_forwarded_for(given, address);
        }
        Ok(())
    }
}

fn connection_refused(name: &str) -> Status {
    let message = format!("the Connection header must not name {name}");
    response::refusal(StatusCode::BAD_REQUEST, "BadRequest", message)
}
