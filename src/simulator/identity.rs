//! Authentication (`docs/semantics.md` §12.1): by the headers of a front proxy, by a client
//! certificate, by a bearer token, by the token of a WebSocket, or anonymous; in this order. A
//! wrong credential makes a request 401 only if no other credential is valid.
//!
//! It shares no code with `auth`, because the tests compare that module with this one. `authorizer`
//! decides about requests, and `identity::impersonation` evaluates impersonation headers.

mod certificate;
mod impersonation;
mod user;

use http::{HeaderMap, header};

use self::user::{ANONYMOUS, UNAUTHENTICATED};
use super::request::Request;
use super::shared::Shared;
use super::status::ApiError;
use super::websocket;

pub(super) use self::certificate::ClientCas;
pub(super) use self::user::{API_AUDIENCE, Identity};

/// Returns the user of a request. Every user of an open simulator is an administrator.
pub(super) fn authenticate(request: &Request, shared: &Shared) -> Result<Identity, ApiError> {
    let identity = authenticated(request, shared)?;
    impersonation::effective(identity, request, shared)
}

/// Whether the request has no valid credential: it is anonymous, or gets 401.
pub(super) fn is_unauthenticated(request: &Request, shared: &Shared) -> bool {
    authenticated(request, shared).map_or(true, |identity| identity.name == ANONYMOUS)
}

fn authenticated(request: &Request, shared: &Shared) -> Result<Identity, ApiError> {
    if shared.options.open() {
        return Ok(Identity::administrator());
    }
    let mut wrong = false;
    if let (Some(cas), Some(chain)) = (&shared.client_cas, &request.certificates) {
        match cas.user(chain, &request.headers) {
            Some(identity) => {
                return Ok(identity.authenticated_group().with_rules_of(&shared.options.users));
            }
            None => wrong = true,
        }
    }
    for token in [bearer(&request.headers), websocket::token(&request.headers)] {
        let Some(token) = token else { continue };
        match by_token(&token, shared, &[]) {
            Some((identity, _)) => return Ok(identity),
            None => wrong = true,
        }
    }
    if wrong || !shared.options.anonymous {
        return Err(ApiError::new(401, "Unauthorized", "Unauthorized"));
    }
    Ok(Identity {
        name: ANONYMOUS.to_owned(),
        groups: vec![UNAUTHENTICATED.to_owned()],
        ..Identity::default()
    })
}

/// Returns the user of a token that is valid for one of `audiences`, and the audiences it is valid
/// for. An empty list means the API's own audience.
pub(super) fn by_token(
    token: &str,
    shared: &Shared,
    audiences: &[String],
) -> Option<(Identity, Vec<String>)> {
    if token.is_empty() {
        return None;
    }
    let default_audience = [API_AUDIENCE.to_owned()];
    let wanted = if audiences.is_empty() { &default_audience } else { audiences };
    if let Some(user) = shared.options.users.iter().find(|user| user.token == token) {
        // A static token is valid for every audience.
        return Some((Identity::from_user(user), wanted.to_vec()));
    }
    let (identity, token_audiences) = shared.tokens.user(&shared.store, token)?;
    let fitting: Vec<String> =
        wanted.iter().filter(|audience| token_audiences.contains(audience)).cloned().collect();
    let identity = identity.authenticated_group().with_rules_of(&shared.options.users);
    (!fitting.is_empty()).then_some((identity, fitting))
}

/// Returns the token of an `Authorization: Bearer` header; `None` for any other header, and for an
/// empty token.
fn bearer(headers: &HeaderMap) -> Option<String> {
    let given = headers.get(header::AUTHORIZATION)?.to_str().ok()?.trim();
    let mut words = given.splitn(3, ' ');
    let scheme = words.next()?;
    let token = words.next()?;
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then(|| token.to_owned())
}

/// Returns the warning for a bearer token that is ignored because it has extra space before it.
pub(super) fn bearer_warning(headers: &HeaderMap) -> Option<&'static str> {
    const TEXT: &str = "the provided Authorization header contains extra space before the bearer token, and is ignored";
    let given = headers.get(header::AUTHORIZATION)?.to_str().ok()?.trim();
    let words: Vec<&str> = given.splitn(3, ' ').collect();
    let blank = matches!(*words, [scheme, "", _] if scheme.eq_ignore_ascii_case("bearer"));
    blank.then_some(TEXT)
}
