//! The identity of a forwarded request: the upstream connections and the headers that carry it
//! (`docs/semantics.md` §12.5).
//!
//! The API server authorizes every request that it gets. It must learn the caller's identity
//! through a channel that the client cannot influence. A [`ForwardedIdentity`] selects both the
//! connection pool and the headers: [`Upstreams`] returns no pool that does not belong to the
//! identity, and a missing pool is an error, never replaced by another one.
//!
//! Invariants, in this order ([`ForwardedIdentity::apply`]): `Connection` may not name an identity
//! header; hop-by-hop headers are removed; then the identity headers that the client may not send;
//! only then are Weir's own added. A request never carries two identities: a client's
//! `Impersonate-*` is authorized by the client's own permissions, or not sent at all
//! (`docs/decisions/authorization.md`).
//!
//! Names with underscores (`X_Remote_User`) pass: neither Go's server nor kube-apiserver treats
//! them as those with dashes.

mod identity_headers;
mod names;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::{HeaderMap, StatusCode};

use crate::api::status::Status;
use crate::auth::user::User;
pub(crate) use crate::server::forward::identity::names::IdentityNames;
use crate::server::http::headers;
use crate::server::http::refusal;
use crate::upstream::Upstream;

/// The identity with which a request is forwarded.
#[derive(Clone, Debug)]
pub(crate) enum ForwardedIdentity {
    /// Weir's own identity (sidecar mode). The client's credential is removed. Its `Impersonate-*`
    /// passes, and is authorized by Weir's permissions.
    Weir,
    /// The client's own credential: its `Authorization`, the token in its WebSocket sub-protocol,
    /// or none. Its `Impersonate-*` is authorized by its own permissions.
    AsIs,
    /// A user in the headers of a front proxy. `Impersonate-*` passes, and is authorized by the
    /// user's permissions.
    FrontProxy(Arc<User>),
    /// A user whom Weir impersonates with its own identity. A request with an `Impersonate-*` of
    /// its own is refused.
    Impersonate(Arc<User>),
}

/// The connections to one upstream, separated by the identity that they authenticate.
pub struct Upstreams {
    /// Connections with Weir's own identity.
    pub own_identity: Upstream,
    /// Connections without an identity ([`Upstream::bare`]).
    pub bare: Option<Upstream>,
    /// Connections with a front proxy's certificate ([`Upstream::front_proxy`]).
    pub front_proxy: Option<Upstream>,
}

impl Upstreams {
    /// Returns Weir's own connections alone.
    pub fn with_own_identity(upstream: Upstream) -> Self {
        Self { own_identity: upstream, bare: None, front_proxy: None }
    }

    /// Returns the connections for `identity`. A missing pool is an error: no other pool may
    /// replace it.
    pub(crate) fn for_identity(&self, identity: &ForwardedIdentity) -> Result<&Upstream, Status> {
        let upstream = match identity {
            ForwardedIdentity::Weir => Some(&self.own_identity),
            // The kubeconfig itself may impersonate. A second impersonation would act as another
            // user than the upstream was configured to allow.
            ForwardedIdentity::Impersonate(_) => {
                Some(&self.own_identity).filter(|upstream| !upstream.impersonates())
            }
            ForwardedIdentity::AsIs => self.bare.as_ref(),
            ForwardedIdentity::FrontProxy(_) => self.front_proxy.as_ref(),
        };
        upstream.ok_or_else(|| {
            let message = "weir has no connections that may carry this client's identity";
            refusal::refusal(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message.to_owned())
        })
    }
}

impl ForwardedIdentity {
    /// Removes the headers that do not pass, and adds those of the identity and the client's
    /// `address`. Errors are Weir's own responses, and then nothing may be sent.
    pub(crate) fn apply(
        &self,
        names: &IdentityNames,
        address: Option<IpAddr>,
        given: &mut HeaderMap,
    ) -> Result<(), Status> {
        let names = names.load();
        if matches!(self, Self::FrontProxy(_) | Self::Impersonate(_)) && !names.are_known() {
            return Err(refusal::settings_unknown());
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
                // Many clients share these connections, so that a token must not enter the tables
                // of their header compression. This iterates because `HeaderMap::entry` panics if
                // the map is full.
                given
                    .iter_mut()
                    .filter(|(name, _)| *name == AUTHORIZATION)
                    .for_each(|(_, token)| token.set_sensitive(true));
            }
            Self::FrontProxy(user) => {
                headers::remove_credentials(given);
                let by =
                    names.remote_user_headers().ok_or_else(identity_headers::no_front_proxy)?;
                identity_headers::append_remote_user(user, by, given)?;
            }
            Self::Impersonate(user) => {
                if headers::impersonates(given) {
                    let message = "weir forwards this client's requests by impersonation, which cannot be combined with impersonation of its own";
                    return Err(refusal::forbidden(message.to_owned()));
                }
                headers::remove_credentials(given);
                identity_headers::append_impersonation(user, given)?;
            }
        }
        if let Some(address) = address {
            headers::append_forwarded_for(given, address);
        }
        Ok(())
    }
}

fn connection_refused(name: &str) -> Status {
    let message = format!("the Connection header must not name {name}");
    refusal::bad_request(message)
}
