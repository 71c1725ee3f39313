//! What a front proxy says about its user (semantics.md §12.1; apiserver `request/headerrequest`).
//!
//! Only a peer whose certificate chains to the CA of front proxies, and has a name that is allowed, is asked here. From anybody else these headers
//! mean nothing, and are removed before a request goes on.

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::auth::cluster::RemoteUserHeaders;
use crate::auth::user::User;
use crate::auth::x509::{Bundle, PresentedChain, add_authenticated, common_name};

/// Who may tell who a user is, and by which headers.
#[derive(Debug)]
pub(crate) struct RequestHeader {
    /// The CA of the front proxies.
    pub(crate) bundle: Bundle,
    /// Their names.
    pub(crate) names: Names,
}

/// The names in a front proxy's rights. What cannot be a header's name is in no request either, and left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Names {
    /// Common names that a front proxy may have; empty for any.
    allowed: Vec<String>,
    username: Vec<HeaderName>,
    uid: Vec<HeaderName>,
    group: Vec<HeaderName>,
    /// In lower case, as names of headers are here.
    extra_prefixes: Vec<String>,
}

/// A header's value is no UTF-8: nobody here can be named so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("what a front proxy says of its user is not UTF-8")]
pub(crate) struct NotText;

impl RequestHeader {
    /// Whether a chain is a front proxy's at a time (seconds since 1970).
    pub(crate) fn allows(&self, chain: &PresentedChain<'_>, now: i64) -> bool {
        self.bundle.trusts(chain, now) && self.names.allow(chain)
    }
}

impl Names {
    pub(crate) fn new(
        allowed: Vec<String>,
        username: &[String],
        uid: &[String],
        group: &[String],
        extra_prefixes: &[String],
    ) -> Self {
        let names = |names: &[String]| {
            once(names.iter().filter_map(|name| name.trim().parse::<HeaderName>().ok()))
        };
        let prefixes = extra_prefixes.iter().map(|prefix| prefix.trim().to_ascii_lowercase());
        Self {
            allowed,
            username: names(username),
            uid: names(uid),
            group: names(group),
            // An empty one would make a field of every header; upstream refuses it.
            extra_prefixes: once(prefixes.filter(|prefix| !prefix.is_empty())),
        }
    }

    fn allow(&self, chain: &PresentedChain<'_>) -> bool {
        self.allowed.is_empty()
            || common_name(chain.leaf()).is_ok_and(|name| self.allowed.contains(&name))
    }

    /// Whether a header is one of them.
    pub(crate) fn contain(&self, name: &HeaderName) -> bool {
        self.username.contains(name)
            || self.uid.contains(name)
            || self.group.contains(name)
            || self.extra_prefixes.iter().any(|prefix| name.as_str().starts_with(prefix.as_str()))
    }

    /// By which a front proxy tells; `None` if no header can carry a user's name, so that it would be believed nothing.
    pub(crate) fn remote_user_headers(&self) -> Option<RemoteUserHeaders<'_>> {
        (!self.username.is_empty()).then_some(RemoteUserHeaders {
            username: &self.username,
            uid: &self.uid,
            group: &self.group,
            extra_prefixes: &self.extra_prefixes,
        })
    }

    /// Whom a front proxy's request is from; `None` if it does not say.
    pub(crate) fn user(&self, headers: &HeaderMap) -> Result<Option<User>, NotText> {
        let Some(name) = first(headers, &self.username)? else { return Ok(None) };
        let uid = first(headers, &self.uid)?.unwrap_or_default();
        let groups = self.group.iter().flat_map(|name| headers.get_all(name));
        let groups = groups.filter(|value| !value.is_empty()).map(text);
        let mut groups = groups.collect::<Result<Vec<_>, _>>()?;
        let extra = self.extra(headers)?;
        add_authenticated(&name, &mut groups);
        Ok(Some(User::new(name, uid, groups, extra)))
    }

    fn extra(&self, headers: &HeaderMap) -> Result<BTreeMap<String, Vec<String>>, NotText> {
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

/// Each once: a list may have one in several spellings.
fn once<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    all.fold(Vec::new(), |mut seen, one| {
        if !seen.contains(&one) {
            seen.push(one);
        }
        seen
    })
}

/// The first value that is not empty among the first values of these headers.
fn first(headers: &HeaderMap, names: &[HeaderName]) -> Result<Option<String>, NotText> {
    let values = names.iter().filter_map(|name| headers.get(name));
    values.filter(|value| !value.is_empty()).map(text).next().transpose()
}

fn text(value: &HeaderValue) -> Result<String, NotText> {
    std::str::from_utf8(value.as_bytes()).map(str::to_owned).map_err(|_| NotText)
}

/// Decodes percent signs; a key with a broken one stays as it is (Go's `url.PathUnescape` and what upstream makes of its error).
fn unescape(key: &str) -> Result<String, NotText> {
    let mut decoded = Vec::with_capacity(key.len());
    let mut rest = key.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let digit = |at: usize| after.get(at).and_then(|&digit| char::from(digit).to_digit(16));
        let (Some(high), Some(low)) = (digit(0), digit(1)) else { return Ok(key.to_owned()) };
        decoded.extend(u8::try_from(high << 4 | low));
        rest = after.get(2..).unwrap_or_default();
    }
    String::from_utf8(decoded).map_err(|_| NotText)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        let list = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        Names::new(
            Vec::new(),
            &list(&["X-Remote-User", " x-other-user "]),
            &list(&["X-Remote-Uid"]),
            &list(&["X-Remote-Group"]),
            &list(&["X-Remote-Extra-", ""]),
        )
    }

    fn headers(all: &[(&str, &[u8])]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in all {
            let name: HeaderName = name.parse().unwrap();
            headers.append(name, HeaderValue::from_bytes(value).unwrap());
        }
        headers
    }

    #[test]
    fn a_user_is_read_as_upstream_reads_it() {
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
    fn without_a_name_it_is_no_such_request() {
        let said = headers(&[("X-Remote-Group", b"system:masters"), ("X-Remote-User", b"")]);
        assert_eq!(names().user(&said), Ok(None));
    }

    #[test]
    fn groups_that_say_it_already_are_left_alone() {
        let said = [("X-Remote-User", &b"a"[..]), ("X-Remote-Group", b"system:unauthenticated")];
        let user = names().user(&headers(&said)).unwrap().unwrap();
        assert_eq!(user.groups, ["system:unauthenticated"]);
        let user = names().user(&headers(&[("X-Remote-User", b"system:anonymous")]));
        assert!(user.unwrap().unwrap().groups.is_empty());
    }

    #[test]
    fn what_is_no_text_names_nobody() {
        for said in [
            [("X-Remote-User", &b"\xff"[..]), ("X-Remote-Uid", b"7")],
            [("X-Remote-User", b"a"), ("X-Remote-Group", b"\xff")],
            [("X-Remote-User", b"a"), ("X-Remote-Extra-%ff", b"b")],
        ] {
            assert_eq!(names().user(&headers(&said)), Err(NotText));
        }
    }
}
