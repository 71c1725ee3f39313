//! Authenticates users by the headers of a front proxy (`docs/semantics.md` §12.1; apiserver
//! `request/headerrequest`).
//!
//! The headers count only if the peer's certificate chains to the CA of front proxies and has an
//! allowed name. From any other peer they have no meaning, and are removed before the request is
//! forwarded.

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::api::query::percent_decode;
use crate::auth::user::User;
use crate::auth::x509::{Bundle, PresentedChain, add_authenticated, common_name};

/// The rules by which peers are front proxies, and the headers by which these name a user.
#[derive(Debug)]
pub(crate) struct RequestHeaderRules {
    /// The CA of the front proxies.
    pub(crate) ca: Bundle,
    /// The allowed common names, and the names of the headers.
    pub(crate) names: RequestHeaderNames,
}

/// The names in the rules for front proxies. Strings that are not valid header names are left out:
/// they cannot occur in a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestHeaderNames {
    /// The common names that a front proxy may have; empty if any name is allowed.
    allowed_names: Vec<String>,
    username: Vec<HeaderName>,
    uid: Vec<HeaderName>,
    group: Vec<HeaderName>,
    /// The prefixes of the headers of extra fields, in lower case, as header names are in `http`.
    extra_prefixes: Vec<String>,
}

/// A header's value is not UTF-8, so it cannot be the name of a user in Weir.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a header of the front proxy is not UTF-8")]
pub(crate) struct NotUtf8;

/// All headers that are listed for each part of a user. Not only the first of each part:
/// kube-apiserver adds its own headers to those in the config map and removes none, so the first
/// may be one that no API server reads any more. An API server that reads several gets groups and
/// extra fields more than once, which grants nothing more.
#[derive(Clone, Copy, Debug)]
pub struct RemoteUserHeaders<'a> {
    /// The headers for the user's name.
    pub username: &'a [HeaderName],
    /// The headers for the uid.
    pub uid: &'a [HeaderName],
    /// The headers for each group.
    pub group: &'a [HeaderName],
    /// The prefixes of the headers for extra fields, in lower case.
    pub extra_prefixes: &'a [String],
}

impl RequestHeaderRules {
    /// Returns whether the chain belongs to a front proxy at `now` (seconds since 1970).
    pub(crate) fn allows(&self, chain: &PresentedChain<'_>, now: i64) -> bool {
        self.ca.trusts(chain, now) && self.names.allows(chain)
    }
}

impl RequestHeaderNames {
    /// Creates the names from those in the settings.
    pub(crate) fn new(
        allowed_names: Vec<String>,
        username: &[String],
        uid: &[String],
        group: &[String],
        extra_prefixes: &[String],
    ) -> Self {
        let names = |names: &[String]| {
            distinct(names.iter().filter_map(|name| name.trim().parse::<HeaderName>().ok()))
        };
        let prefixes = extra_prefixes.iter().map(|prefix| prefix.trim().to_ascii_lowercase());
        Self {
            allowed_names,
            username: names(username),
            uid: names(uid),
            group: names(group),
            // An empty prefix would turn every header into an extra field; upstream refuses it.
            extra_prefixes: distinct(prefixes.filter(|prefix| !prefix.is_empty())),
        }
    }

    fn allows(&self, chain: &PresentedChain<'_>) -> bool {
        self.allowed_names.is_empty()
            || common_name(chain.leaf()).is_ok_and(|name| self.allowed_names.contains(&name))
    }

    /// Returns whether a header is one by which a front proxy names a user.
    pub(crate) fn contains(&self, name: &HeaderName) -> bool {
        self.username.contains(name)
            || self.uid.contains(name)
            || self.group.contains(name)
            || self.extra_prefixes.iter().any(|prefix| name.as_str().starts_with(prefix.as_str()))
    }

    /// Returns the headers by which a front proxy names a user; `None` if there is none for the
    /// user's name, in which case upstream ignores the others.
    pub(crate) fn remote_user_headers(&self) -> Option<RemoteUserHeaders<'_>> {
        (!self.username.is_empty()).then_some(RemoteUserHeaders {
            username: &self.username,
            uid: &self.uid,
            group: &self.group,
            extra_prefixes: &self.extra_prefixes,
        })
    }

    /// Returns the user that a front proxy's request names, if any.
    pub(crate) fn user(&self, headers: &HeaderMap) -> Result<Option<User>, NotUtf8> {
        let Some(name) = first(headers, &self.username)? else { return Ok(None) };
        let uid = first(headers, &self.uid)?.unwrap_or_default();
        let groups = self.group.iter().flat_map(|name| headers.get_all(name));
        let groups = groups.filter(|value| !value.is_empty()).map(text);
        let mut groups = groups.collect::<Result<Vec<_>, _>>()?;
        let extra = self.extra(headers)?;
        add_authenticated(&name, &mut groups);
        Ok(Some(User::new(name, uid, groups, extra)))
    }

    fn extra(&self, headers: &HeaderMap) -> Result<BTreeMap<String, Vec<String>>, NotUtf8> {
        let mut extra = BTreeMap::<String, Vec<String>>::new();
        for prefix in &self.extra_prefixes {
            for (name, value) in headers {
                if let Some(key) = name.as_str().strip_prefix(prefix) {
                    extra.entry(unescape(key)?).or_default().push(text(value)?);
                }
            }
        }
        Ok(extra)
    }
}

/// Removes duplicates: a list may contain a header in several spellings.
fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    values.fold(Vec::new(), |mut distinct, value| {
        if !distinct.contains(&value) {
            distinct.push(value);
        }
        distinct
    })
}

/// Returns the first non-empty value among the first values of these headers.
fn first(headers: &HeaderMap, names: &[HeaderName]) -> Result<Option<String>, NotUtf8> {
    let values = names.iter().filter_map(|name| headers.get(name));
    values.filter(|value| !value.is_empty()).map(text).next().transpose()
}

fn text(value: &HeaderValue) -> Result<String, NotUtf8> {
    std::str::from_utf8(value.as_bytes()).map(str::to_owned).map_err(|_| NotUtf8)
}

/// Decodes percent escapes. A key with an invalid one is returned unchanged (Go's
/// `url.PathUnescape`, and upstream's handling of its error).
fn unescape(key: &str) -> Result<String, NotUtf8> {
    match percent_decode(key.as_bytes(), false) {
        Some(decoded) => String::from_utf8(decoded).map_err(|_| NotUtf8),
        None => Ok(key.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> RequestHeaderNames {
        let list = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        RequestHeaderNames::new(
            Vec::new(),
            &list(&["X-Remote-User", " x-other-user "]),
            &list(&["X-Remote-Uid"]),
            &list(&["X-Remote-Group"]),
            &list(&["X-Remote-Extra-", ""]),
        )
    }

    fn headers(fields: &[(&str, &[u8])]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            let name: HeaderName = name.parse().unwrap();
            headers.append(name, HeaderValue::from_bytes(value).unwrap());
        }
        headers
    }

    #[test]
    fn a_user_is_read_as_upstream() {
        let user = names()
            .user(&headers(&[
                ("X-Remote-User", b""),
                ("x-other-user", b"j\xc3\xb6rg"),
                ("X-Other-User", b"second"),
                ("X-Remote-Uid", b"7"),
                ("X-Remote-Group", b"a,b"),
                ("X-Remote-Group", b""),
                ("X-Remote-Group", b"c"),
                ("X-Remote-Extra-Acme.COM%2FScopes", b"view"),
                ("X-Remote-Extra-Acme.com%2fscopes", b""),
                ("X-Remote-Extra-%zz", b"kept"),
                ("X-Remote-Extra-%4", b"kept"),
                ("Accept", b"text/plain"),
            ]))
            .unwrap()
            .unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("j\u{f6}rg", "7"));
        assert_eq!(user.groups, ["a,b", "c", "system:authenticated"]);
        let extra: Vec<_> = user.extra.iter().map(|(key, values)| (key.as_str(), values)).collect();
        let list = |values: &[&str]| values.iter().map(|&value| value.to_owned()).collect();
        let (kept, scopes): (Vec<_>, Vec<_>) = (list(&["kept"]), list(&["view", ""]));
        assert_eq!(extra, [("%4", &kept), ("%zz", &kept), ("acme.com/scopes", &scopes)]);
    }

    #[test]
    fn without_a_username_there_is_no_user() {
        let sent = headers(&[("X-Remote-Group", b"system:masters"), ("X-Remote-User", b"")]);
        assert_eq!(names().user(&sent), Ok(None));
    }

    #[test]
    fn the_authenticated_group_is_not_added_twice() {
        let sent = [("X-Remote-User", &b"a"[..]), ("X-Remote-Group", b"system:unauthenticated")];
        let user = names().user(&headers(&sent)).unwrap().unwrap();
        assert_eq!(user.groups, ["system:unauthenticated"]);
        let user = names().user(&headers(&[("X-Remote-User", b"system:anonymous")]));
        assert!(user.unwrap().unwrap().groups.is_empty());
    }

    #[test]
    fn a_value_that_is_not_utf8_is_an_error() {
        for sent in [
            [("X-Remote-User", &b"\xff"[..]), ("X-Remote-Uid", b"7")],
            [("X-Remote-User", b"a"), ("X-Remote-Group", b"\xff")],
            [("X-Remote-User", b"a"), ("X-Remote-Extra-%ff", b"b")],
        ] {
            assert_eq!(names().user(&headers(&sent)), Err(NotUtf8));
        }
    }
}
