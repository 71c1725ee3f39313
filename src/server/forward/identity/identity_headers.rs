//! A user as headers tell it: those of a front proxy, and those of impersonation. The same bytes as client-go's
//! (`transport/round_trippers.go`), since they are read back by its counterpart.
//!
//! What would be read back as somebody else is refused: an empty name (to a front proxy's request the API server would then answer as to the
//! proxy itself, to one without `Impersonate-User` as to Weir), control characters, and blanks at an end, which every HTTP server takes off.

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::api::status::Status;
use crate::auth::request_header::RemoteUserHeaders;
use crate::auth::user::{AUTHENTICATED, User};
use crate::server::http::refusal;
use crate::upstream::credentials::escape_extra_key;

/// Sets the headers that the upstream listens to, `X-Remote-*` in most clusters. All groups are told: the API server adds `system:authenticated` to
/// those of a front proxy's user unless it is there. A uid and extra fields for which it has no header are left out: RBAC asks for neither. But
/// without its groups a user would be another.
pub(super) fn append_remote_user(
    user: &User,
    by: RemoteUserHeaders<'_>,
    headers: &mut HeaderMap,
) -> Result<(), Status> {
    if by.group.is_empty() && user.groups.iter().any(|group| group != AUTHENTICATED) {
        return Err(unrepresentable("groups have no header that the API server listens to"));
    }
    append_user(user, user.groups.iter(), by, headers)
}

/// Sets `Impersonate-*`. `system:authenticated` is left out, since the API server adds it itself and would ask whether Weir may impersonate
/// that group; but not for service accounts, to which it would give their usual groups if they are told without any.
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
    // An empty value tells nothing.
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
                .map_err(|_| unrepresentable("extra field's name cannot be a header's"))?;
            for value in values {
                add(headers, name.clone(), value)?;
            }
        }
    }
    Ok(())
}

/// Bytes from 0x80 on pass as they are, as Go has it.
fn add(headers: &mut HeaderMap, name: HeaderName, value: &str) -> Result<(), Status> {
    let blank = [' ', '\t'];
    if value.starts_with(blank) || value.ends_with(blank) {
        return Err(unrepresentable("name, group or field begins or ends with a blank"));
    }
    let value = HeaderValue::from_bytes(value.as_bytes())
        .map_err(|_| unrepresentable("name, group or field has control characters"))?;
    match headers.try_append(name, value) {
        Ok(_) => Ok(()),
        Err(_) => Err(unrepresentable("groups and fields are too many")),
    }
}

/// The cluster's settings name no front proxy, or no header for a user's name: without one the API server would take Weir's certificate for
/// the user's.
pub(super) fn no_front_proxy() -> Status {
    refusal::forbidden(
        "weir cannot tell the API server who this user is: its settings know no front proxy"
            .to_owned(),
    )
}

/// Without the value: what it holds is not for a log or a terminal.
fn unrepresentable(why: &str) -> Status {
    refusal::forbidden(format!("weir cannot tell the API server who this user is: its {why}"))
}
