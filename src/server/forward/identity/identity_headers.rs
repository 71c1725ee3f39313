//! A user as request headers: those of a front proxy, and those of impersonation. The bytes are the
//! same as client-go's (`transport/round_trippers.go`), since its counterpart in the API server
//! reads them.
//!
//! A user whose headers would be read as another user is refused. An empty name is: in a front
//! proxy's request the API server would authenticate the proxy itself, and without
//! `Impersonate-User` it would authenticate Weir. So are control characters, and blanks at an end,
//! which every HTTP server removes.

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::api::status::Status;
use crate::auth::request_header::RemoteUserHeaders;
use crate::auth::user::{AUTHENTICATED, User};
use crate::server::http::refusal;
use crate::upstream::credentials::escape_extra_key;

/// Appends the headers that the upstream reads, `X-Remote-*` in most clusters. All groups are sent;
/// the API server adds `system:authenticated` if it is absent. A uid and extra fields for which the
/// upstream has no header are omitted, since RBAC uses neither. Groups without a header are an
/// error, since the user's permissions depend on them.
pub(super) fn append_remote_user(
    user: &User,
    by: RemoteUserHeaders<'_>,
    headers: &mut HeaderMap,
) -> Result<(), Status> {
    if by.group.is_empty() && user.groups.iter().any(|group| group != AUTHENTICATED) {
        return Err(unrepresentable("groups have no header that the API server reads"));
    }
    append_user(user, user.groups.iter(), by, headers)
}

/// Appends `Impersonate-*`. `system:authenticated` is omitted, since the API server adds it itself
/// and would otherwise check whether Weir may impersonate that group. It is kept for service
/// accounts: the API server gives an account without groups its usual ones.
pub(super) fn append_impersonation(user: &User, headers: &mut HeaderMap) -> Result<(), Status> {
    let added = !user.name.starts_with("system:serviceaccount:")
        && user.name != "system:anonymous"
        && !user.groups.iter().any(|group| group == "system:unauthenticated");
    let groups = user.groups.iter().filter(|group| !(added && group.as_str() == AUTHENTICATED));
    let [username, uid, group] =
        ["impersonate-user", "impersonate-uid", "impersonate-group"].map(HeaderName::from_static);
    let by = RemoteUserHeaders {
        username: &[username],
        uid: &[uid],
        group: &[group],
        extra_prefixes: &["impersonate-extra-".to_owned()],
    };
    append_user(user, groups, by, headers)
}

fn append_user<'a>(
    user: &User,
    groups: impl Iterator<Item = &'a String> + Clone,
    by: RemoteUserHeaders<'_>,
    headers: &mut HeaderMap,
) -> Result<(), Status> {
    if user.name.is_empty() {
        return Err(unrepresentable("name is empty"));
    }
    for name in by.username {
        add(headers, name.clone(), &user.name)?;
    }
    // An empty value has no meaning.
    for name in by.uid.iter().filter(|_| !user.uid.is_empty()) {
        add(headers, name.clone(), &user.uid)?;
    }
    for name in by.group {
        for group in groups.clone().filter(|group| !group.is_empty()) {
            add(headers, name.clone(), group)?;
        }
    }
    for prefix in by.extra_prefixes {
        for (key, values) in &user.extra {
            let name = HeaderName::try_from(format!("{prefix}{}", escape_extra_key(key)))
                .map_err(|_| unrepresentable("extra field has a name that a header cannot have"))?;
            for value in values {
                add(headers, name.clone(), value)?;
            }
        }
    }
    Ok(())
}

/// Appends a header. Bytes from 0x80 on pass unchanged, as in Go.
fn add(headers: &mut HeaderMap, name: HeaderName, value: &str) -> Result<(), Status> {
    let blank = [' ', '\t'];
    if value.starts_with(blank) || value.ends_with(blank) {
        return Err(unrepresentable("name, group or field begins or ends with a blank"));
    }
    let value = HeaderValue::from_bytes(value.as_bytes())
        .map_err(|_| unrepresentable("name, group or field has control characters"))?;
    match headers.try_append(name, value) {
        Ok(_) => Ok(()),
        Err(_) => Err(unrepresentable("groups and extra fields need too many headers")),
    }
}

/// Returns the error for a cluster whose settings name no front proxy, or no header for a user's
/// name. Without that header the API server would authenticate Weir's certificate instead of the
/// user.
pub(super) fn no_front_proxy() -> Status {
    refusal::forbidden(
        "weir cannot name this user to the API server: the cluster configures no front proxy"
            .to_owned(),
    )
}

/// Returns the error for a user who cannot be represented in headers. It omits the value, which
/// could be unsafe in a log or a terminal.
fn unrepresentable(why: &str) -> Status {
    refusal::forbidden(format!("weir cannot name this user to the API server: the user's {why}"))
}
