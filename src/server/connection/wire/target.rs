//! Request targets that `http::Uri` would cut, reject or change, written so that it carries them.
//!
//! Go's server takes most bytes of a target as they are (`url.ParseRequestURI`): `#` is part of the
//! path or the query, since a request has no fragment, and so are `"`, `<`, `>`, a backquote and
//! all bytes from 0x80, whether or not they are UTF-8. `http::Uri` cuts the target at `#`, and
//! rejects the others in a path, a query or both. A percent-escape of such a byte means the same to
//! Go: its handlers see `URL.Path`, which is decoded once, and `url.ParseQuery` decodes names and
//! values after it has split them at `&` and `=`, which are not escaped here. An escape that was
//! malformed before such a byte (`%2#`) stays malformed, since `%` is no digit.
//!
//! Everything that Go refuses is refused: control bytes, and strange bytes in the authority of an
//! absolute target. A space is escaped, since HTTP/2 can carry it (`:path`) and Go takes it there;
//! in HTTP/1.1 it ends the target. Malformed escapes in a path are refused later
//! ([`crate::server::request::framing`]), on both protocols alike.

use crate::api::ascii::ByteSet;

/// Why Go's server accepts no such target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadTarget {
    /// A byte below 0x20, or 0x7F.
    #[error("its target has a control byte")]
    ControlByte,
    /// Neither a path nor an absolute URL whose authority is plain.
    #[error("its target is not a path")]
    NotAPath,
}

/// Returns `target` with each byte escaped that `http::Uri` does not carry in a path or a query;
/// `None` if it has no such byte.
pub(crate) fn escape(target: &[u8]) -> Result<Option<Vec<u8>>, BadTarget> {
    if first_foreign(target).is_none() {
        return Ok(None);
    }
    if target.iter().any(u8::is_ascii_control) {
        return Err(BadTarget::ControlByte);
    }
    let path = path_start(target).ok_or(BadTarget::NotAPath)?;
    let foreign = target.iter().filter(|byte| is_foreign(**byte)).count();
    let mut escaped = Vec::with_capacity(target.len() + 2 * foreign);
    for (index, &byte) in target.iter().enumerate() {
        if !is_foreign(byte) {
            escaped.push(byte);
        } else if index < path {
            return Err(BadTarget::NotAPath);
        } else {
            escaped.extend([b'%', hex_digit(byte >> 4), hex_digit(byte & 0xF)]);
        }
    }
    Ok(Some(escaped))
}

/// Returns where the path of a target begins: after the authority of an absolute URL. Go finds the
/// query before the authority, so that `?` ends it as well.
fn path_start(target: &[u8]) -> Option<usize> {
    if target.first() == Some(&b'/') {
        return Some(0);
    }
    let scheme = target.iter().position(|byte| *byte == b':')?;
    let authority = target.get(scheme..)?.strip_prefix(b"://")?;
    let length = authority.iter().position(|byte| matches!(byte, b'/' | b'?'));
    Some(target.len() - authority.len() + length.unwrap_or(authority.len()))
}

pub(super) fn first_foreign(target: &[u8]) -> Option<usize> {
    target.iter().position(|byte| is_foreign(*byte))
}

/// Whether `http::Uri` does not carry a byte in a path or a query as it is.
pub(super) const fn is_foreign(byte: u8) -> bool {
    !CARRIED.contains(byte)
}

const fn hex_digit(nibble: u8) -> u8 {
    if nibble < 10 { b'0' + nibble } else { b'A' + nibble - 10 }
}

/// The limit of `http::Uri`.
pub(crate) const TARGET_BYTES_MAX: usize = u16::MAX as usize - 1;
/// The bytes that `http::Uri` carries in a path and in a query.
static CARRIED: ByteSet = ByteSet::alphanumeric_and(b"!$%&'()*+,-./:;=?@[\\]^_{|}~");

#[cfg(test)]
mod tests {
    use http::Uri;
    use http::uri::PathAndQuery;
    use proptest::prelude::*;

    use super::*;
    use crate::api::query::percent_decode;

    #[test]
    fn bytes_that_a_uri_cannot_carry_are_escaped() {
        let rows: &[(&[u8], Option<&str>)] = &[
            (b"/", None),
            (b"*", None),
            (b"//x", None),
            (b"/api?", None),
            (b"/api/v1/pods?labelSelector=a%20in+(b,c);d&x=[{}]|\\^~'!$*:@", None),
            (b"/%zz%2", None),
            (b"http://localhost:1/api?x", None),
            (b"localhost:443", None),
            (b"#", Some("refused")),
            (b"/#", Some("/%23")),
            (b"/configmaps/#x?dryRun=All", Some("/configmaps/%23x?dryRun=All")),
            (b"/a?dryRun=All#", Some("/a?dryRun=All%23")),
            (b"/a?l=num>10&m=num<9", Some("/a?l=num%3E10&m=num%3C9")),
            (b"/a?\"`\"", Some("/a?%22%60%22")),
            (b"/\"<>`#", Some("/%22%3C%3E%60%23")),
            (b"/%2#?a=%2#", Some("/%2%23?a=%2%23")),
            (b"/a b?c d", Some("/a%20b?c%20d")),
            ("/ü?ü".as_bytes(), Some("/%C3%BC?%C3%BC")),
            (b"/\xFF?\x80", Some("/%FF?%80")),
            (b"http://h/#?#", Some("http://h/%23?%23")),
            (b"http://h?#", Some("http://h?%23")),
            (b"http://h#/", Some("refused")),
            (b"http://u#@h/", Some("refused")),
            (b"http://h<>/", Some("refused")),
            (b"http:/#", Some("refused")),
            (b"opaque:x#", Some("refused")),
            (b"h:443#", Some("refused")),
            (b"?#", Some("refused")),
            (b"a/#", Some("refused")),
            (b"/\0", Some("refused")),
            (b"/a\tb", Some("refused")),
            (b"/\x7F#", Some("refused")),
        ];
        for (target, expected) in rows {
            let escaped = match escape(target) {
                Ok(None) => None,
                Ok(Some(escaped)) => Some(String::from_utf8(escaped).unwrap()),
                Err(_) => Some("refused".to_owned()),
            };
            assert_eq!(escaped.as_deref(), *expected, "{}", target.escape_ascii());
        }
    }

    #[test]
    fn exactly_the_bytes_that_a_uri_does_not_carry_are_escaped() {
        for byte in 0..=u8::MAX {
            let target = [b'/', byte, b'?', byte];
            let path = PathAndQuery::try_from(&target[..]);
            let is_carried = path.is_ok_and(|path| path.as_str().as_bytes() == target);
            assert_eq!(is_foreign(byte), !is_carried, "{}", byte.escape_ascii());
        }
    }

    proptest! {
        /// The meaning is what Go's handlers see: the path and the query split at the first `?`,
        /// the path decoded, and the pairs of the query decoded.
        #[test]
        fn an_escaped_target_means_the_same(
            tail in proptest::collection::vec(
                prop_oneof![any::<u8>(), proptest::sample::select(&b"#%?&=;+<>\"`/ 2fF"[..])],
                0..60,
            )
        ) {
            let mut target = b"/".to_vec();
            target.extend(tail);
            let Ok(escaped) = escape(&target) else {
                prop_assert!(target.iter().any(u8::is_ascii_control));
                return Ok(());
            };
            let escaped = escaped.unwrap_or_else(|| target.clone());
            prop_assert_eq!(meaning(&escaped), meaning(&target));
            let path = PathAndQuery::try_from(&escaped[..]).unwrap();
            prop_assert_eq!(path.as_str().as_bytes(), &escaped[..]);
            let uri = Uri::try_from(&escaped[..]).unwrap();
            let text = uri.to_string();
            prop_assert_eq!(text.as_bytes(), &escaped[..]);
            prop_assert_eq!(escape(&escaped), Ok(None));
        }
    }

    type Pair = (Option<Vec<u8>>, Option<Vec<u8>>);

    fn meaning(target: &[u8]) -> (Option<Vec<u8>>, Option<Vec<Pair>>) {
        let mut parts = target.splitn(2, |byte| *byte == b'?');
        let path = percent_decode(parts.next().unwrap(), false);
        let pairs = parts.next().map(|query| query.split(|byte| *byte == b'&').map(pair).collect());
        (path, pairs)
    }

    fn pair(pair: &[u8]) -> Pair {
        if pair.contains(&b';') {
            return (None, None);
        }
        let mut parts = pair.splitn(2, |byte| *byte == b'=');
        let name = percent_decode(parts.next().unwrap(), true);
        (name, percent_decode(parts.next().unwrap_or_default(), true))
    }
}
