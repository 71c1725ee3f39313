//! Who asks (semantics.md §12.1): a front proxy's word, a client certificate, a bearer token, a WebSocket's token, or nobody; in
//! this order, and a wrong credential is only then nobody's if another one is right.
//!
//! Written apart from `auth`, which is what the tests hold against it. What the user may do is in `authorizer`, and as whom
//! a user acts who impersonates in `identity::impersonation`.

mod certificate;
mod impersonation;
mod percent;
mod user;

use http::{HeaderMap, header};

use self::user::{ANONYMOUS, UNAUTHENTICATED};
use super::request::Request;
use super::shared::Shared;
use super::status::ApiError;
use super::websocket;

pub(super) use self::certificate::ClientCas;
pub(super) use self::user::{API_AUDIENCE, Identity};

/// The user of a request; of an open simulator everybody is an administrator.
pub(super) fn authenticate(request: &Request, shared: &Shared) -> Result<Identity, ApiError> {
    let own = authenticated(request, shared)?;
    impersonation::effective(own, request, shared)
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

/// The user of a token that is for one of these audiences (for none: the API's own), and the audiences that it is for.
pub(super) fn by_token(
    token: &str,
    shared: &Shared,
    audiences: &[String],
) -> Option<(Identity, Vec<String>)> {
    if token.is_empty() {
        return None;
    }
    let own = [API_AUDIENCE.to_owned()];
    let wanted = if audiences.is_empty() { &own } else { audiences };
    if let Some(user) = shared.options.users.iter().find(|user| user.token == token) {
        // A static token is for whatever audience is asked for.
        return Some((Identity::from_user(user), wanted.to_vec()));
    }
    let (identity, all) = shared.tokens.user(&shared.store, token)?;
    let fitting: Vec<String> = wanted.iter().filter(|one| all.contains(one)).cloned().collect();
    let identity = identity.authenticated_group().with_rules_of(&shared.options.users);
    (!fitting.is_empty()).then_some((identity, fitting))
}

/// The word of an `Authorization: Bearer`; `None` for any other, and for one that says nothing.
fn bearer(headers: &HeaderMap) -> Option<String> {
    let given = headers.get(header::AUTHORIZATION)?.to_str().ok()?.trim();
    let mut words = given.splitn(3, ' ');
    let scheme = words.next()?;
    let token = words.next()?;
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then(|| token.to_owned())
}

/// What a client is told whose token is not read, since a blank too many is before it.
pub(super) fn bearer_warning(headers: &HeaderMap) -> Option<&'static str> {
    const TEXT: &str = "the provided Authorization header contains extra space before the bearer token, and is ignored";
    let given = headers.get(header::AUTHORIZATION)?.to_str().ok()?.trim();
    let words: Vec<&str> = given.splitn(3, ' ').collect();
    let blank = matches!(*words, [scheme, "", _] if scheme.eq_ignore_ascii_case("bearer"));
    blank.then_some(TEXT)
}
