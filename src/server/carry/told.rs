//! A user as headers tell it: those of a front proxy, and those of impersonation. The same bytes as client-go's
//! (`transport/round_trippers.go`), since they are read back by its counterpart.
//!
//! What would be read back as somebody else is refused: an empty name (to a front proxy's request the API server would then answer as to the
//! proxy itself, to one without `Impersonate-User` as to Weir), control characters, and blanks at an end, which every HTTP server takes off.

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use crate::api::status::Status;
use crate::auth::user::User;
use crate::server::response;
use crate::upstream::credentials::escape_extra_key;

/// Sets `X-Remote-*`. All groups are told: the API server adds `system:authenticated` to those of a front proxy's user unless it is there.
pub(super) fn as_front_proxy(user: &User, headers: &mut HeaderMap) -> Result<(), Status> {
    let groups = user.groups.iter();
    tell(
        user,
        groups,
        ["x-remote-user", "x-remote-uid", "x-remote-group", "x-remote-extra-"],
        headers,
    )
}

/// Sets `Impersonate-*`. `system:authenticated` is left out, since the API server adds it itself and would ask whether Weir may impersonate
/// that group; but not for service accounts, to which it would give their usual groups if they are told without any.
pub(super) fn as_impersonated(user: &User, headers: &mut HeaderMap) -> Result<(), Status> {
    let added = !user.name.starts_with("system:serviceaccount:")
        && user.name != "system:anonymous"
        && !user.groups.iter().any(|group| group == "system:unauthenticated");
    let groups =
        user.groups.iter().filter(|group| !(added && group.as_str() == "system:authenticated"));
    let names = ["impersonate-user", "impersonate-uid", "impersonate-group", "impersonate-extra-"];
    tell(user, groups, names, headers)
}

fn tell<'a>(
    user: &User,
    groups: impl Iterator<Item = &'a String>,
    [name, uid, group, extra]: [&'static str; 4],
    headers: &mut HeaderMap,
) -> Result<(), Status> {
    if user.name.is_empty() {
        return Err(untellable("name is empty"));
    }
    add(headers, HeaderName::from_static(name), &user.name)?;
    // An empty value tells nothing.
    if !user.uid.is_empty() {
        add(headers, HeaderName::from_static(uid), &user.uid)?;
    }
    for value in groups.filter(|group| !group.is_empty()) {
        add(headers, HeaderName::from_static(group), value)?;
    }
    for (key, values) in &user.extra {
        let name = HeaderName::try_from(format!("{extra}{}", escape_extra_key(key)))
            .map_err(|_| untellable("extra field's name cannot be a header's"))?;
        for value in values {
            add(headers, name.clone(), value)?;
        }
    }
    Ok(())
}

/// Bytes from 0x80 on pass as they are, as Go has it.
fn add(headers: &mut HeaderMap, name: HeaderName, value: &str) -> Result<(), Status> {
    let blank = [' ', '\t'];
    if value.starts_with(blank) || value.ends_with(blank) {
        return Err(untellable("name, group or field begins or ends with a blank"));
    }
    let value = HeaderValue::from_bytes(value.as_bytes())
        .map_err(|_| untellable("name, group or field has control characters"))?;
    match headers.try_append(name, value) {
        Ok(_) => Ok(()),
        Err(_) => Err(untellable("groups and fields are too many")),
    }
}

/// Without the value: what it holds is not for a log or a terminal.
fn untellable(why: &str) -> Status {
    forbidden(&format!("weir cannot tell the API server who this user is: its {why}"))
}

/// A refusal of Weir's own.
pub(super) fn forbidden(message: &str) -> Status {
    response::refusal(StatusCode::FORBIDDEN, "Forbidden", message.to_owned())
}
