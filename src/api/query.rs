//! Query strings, parsed as Go's `url.ParseQuery` does (`docs/semantics.md` §1.2).
//!
//! A general URL library would drop other pairs than Go does, and Weir would decide by a parameter
//! that the API server never saw.

use std::borrow::Cow;

use smallvec::SmallVec;

use crate::ascii::ByteSet;

/// The pairs of a query in their order. A pair with a bad percent-escape or a literal `;` is
/// dropped. Names are case-sensitive, and the first value of a repeated name counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// All decoded names and values, concatenated: one allocation, and none for an empty query.
    text: String,
    /// The end of each pair's name and value in `text`. A pair begins where the previous one ends.
    ends: SmallVec<[(u32, u32); PAIRS_USUAL]>,
    lossy: bool,
    /// Whether a name is `pretty` in an escaped spelling, and the raw query does not contain the
    /// word anywhere else.
    hides_pretty: bool,
}

impl Query {
    /// Parses a raw query, without its `?`. Never fails. A pair that is not UTF-8 after decoding
    /// makes the query [`lossy`](Self::is_lossy), and so do more than [`MAX_PAIRS`] pairs.
    pub fn parse(raw: &str) -> Self {
        let mut query = Self { text: String::with_capacity(raw.len()), ..Self::default() };
        let (mut start, mut equals, mut is_escaped, mut is_dropped) = (0, None, false, false);
        let mut count = 0;
        for (at, byte) in raw.bytes().chain([b'&']).enumerate() {
            match byte {
                _ if ORDINARY.contains(byte) => {}
                b'=' if equals.is_none() => equals = Some(at),
                b'%' | b'+' => is_escaped = true,
                b';' => is_dropped = true,
                b'&' if count == MAX_PAIRS => query.lossy = true,
                b'&' => {
                    let name = raw.get(start..equals.unwrap_or(at)).unwrap_or_default();
                    let value = raw.get(equals.map_or(at, |sign| sign + 1)..at).unwrap_or_default();
                    let before = query.text.len();
                    let is_kept = !is_dropped && start < at;
                    if is_kept && query.push(name, value, is_escaped).is_none() {
                        query.text.truncate(before);
                    }
                    (start, equals, is_escaped, is_dropped) = (at + 1, None, false, false);
                    count += 1;
                }
                _ => {}
            }
        }
        query.hides_pretty = query.hides_pretty && !raw.contains("pretty");
        query
    }

    /// Returns the value of `pretty`. The API server looks for it only if the raw query contains
    /// the word, anywhere (`docs/semantics.md` §8.6): `p%72etty=1` does not count.
    pub fn pretty(&self) -> Option<&str> {
        if self.hides_pretty { None } else { self.first("pretty") }
    }

    /// Returns the first value of a name, as Go's `Values.Get` does.
    pub fn first(&self, name: &str) -> Option<&str> {
        self.pairs().find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    /// Whether the query has no other names than `names`, and each at most once.
    pub fn has_only(&self, names: &[&str]) -> bool {
        let count = |name: &str| self.pairs().filter(|(key, _)| *key == name).count();
        self.pairs().all(|(key, _)| names.contains(&key) && count(key) == 1)
    }

    /// Returns the decoded names of all pairs.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.pairs().map(|(name, _)| name)
    }

    /// Whether Go could read the query differently; such a request is forwarded.
    pub fn is_lossy(&self) -> bool {
        self.lossy
    }

    fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        let text =
            |start: u32, end: u32| self.text.get(start as usize..end as usize).unwrap_or_default();
        self.ends.iter().scan(0, move |start, &(name, value)| {
            let begin = std::mem::replace(start, value);
            Some((text(begin, name), text(name, value)))
        })
    }

    /// Appends a pair. Returns `None` if the pair must be dropped; `text` may be longer then.
    fn push(&mut self, name: &str, value: &str, is_escaped: bool) -> Option<()> {
        let start = self.text.len();
        let odd_name = decode_onto(&mut self.text, name, is_escaped)?;
        let end = self.text.len();
        // An escape makes the text shorter.
        self.hides_pretty |= end - start < name.len() && self.text.get(start..) == Some("pretty");
        let odd_value = decode_onto(&mut self.text, value, is_escaped)?;
        self.lossy |= odd_name || odd_value;
        match (u32::try_from(end), u32::try_from(self.text.len())) {
            (Ok(name), Ok(value)) => self.ends.push((name, value)),
            // No request is larger than 4 GiB.
            _ => self.lossy = true,
        }
        Some(())
    }
}

/// Appends the decoded text; without `is_escaped` it has no escape. Returns whether a part was
/// replaced because it was not UTF-8; `None` for a bad escape.
fn decode_onto(text: &mut String, raw: &str, is_escaped: bool) -> Option<bool> {
    if !is_escaped {
        text.push_str(raw);
        return Some(false);
    }
    let decoded = percent_decode(raw.as_bytes(), true)?;
    let decoded = String::from_utf8_lossy(&decoded);
    text.push_str(&decoded);
    Some(matches!(decoded, Cow::Owned(_)))
}

/// Most bytes of a query. The others are compared with those that separate or escape.
static ORDINARY: ByteSet = ByteSet::alphanumeric_and(b"-._~/,:");

/// How many pairs are stored inline: as many as nearly all queries have.
const PAIRS_USUAL: usize = 8;

/// How many pairs are read. Go releases before January 2026 read any number; later ones reject a
/// query of more than ten thousand. Weir cannot know which one the API server has; real clients
/// send far fewer.
pub const MAX_PAIRS: usize = 10_000;

/// Decodes percent-escapes, and `+` as a space if `plus_is_space`, as Go's `QueryUnescape` and
/// `PathUnescape` do; `None` if a `%` is not followed by two hexadecimal digits.
pub fn percent_decode(text: &[u8], plus_is_space: bool) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => hex_digit(bytes.next()?)? << 4 | hex_digit(bytes.next()?)?,
            b'+' if plus_is_space => b' ',
            other => other,
        });
    }
    Some(decoded)
}

fn hex_digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_pairs_as_go_does() {
        let rows: &[(&str, &[(&str, &str)])] = &[
            ("", &[]),
            ("&&", &[]),
            ("a", &[("a", "")]),
            ("a=", &[("a", "")]),
            ("=b", &[("", "b")]),
            ("a=b=c", &[("a", "b=c")]),
            ("a=b&a=c", &[("a", "b"), ("a", "c")]),
            ("a+b=c+d", &[("a b", "c d")]),
            ("a%3Db=%26%2b", &[("a=b", "&+")]),
            ("limit=1;x=y", &[]),
            ("limit=1;x=y&b=c", &[("b", "c")]),
            ("a=%3B", &[("a", ";")]),
            ("continue=%%%", &[]),
            ("a=%4", &[]),
            ("a=%zz&b=1", &[("b", "1")]),
            ("%zz=a&b=1", &[("b", "1")]),
            ("a=1&b%20=%zz&c=+", &[("a", "1"), ("c", " ")]),
            ("a=é", &[("a", "é")]),
            ("a=%C3%A9", &[("a", "é")]),
        ];
        for (raw, expected) in rows {
            let query = Query::parse(raw);
            let pairs: Vec<_> = query.pairs().collect();
            assert_eq!(pairs, *expected, "{raw}");
            assert!(!query.is_lossy(), "{raw}");
        }
    }

    #[test]
    fn the_first_value_counts_and_names_are_case_sensitive() {
        let query = Query::parse("Watch=1&watch=0&watch=1");
        assert_eq!(query.first("watch"), Some("0"));
        assert_eq!(query.first("Watch"), Some("1"));
        assert_eq!(query.first("WATCH"), None);
    }

    #[test]
    fn pairs_that_go_might_read_differently_are_lossy() {
        assert!(Query::parse("a=%ff").is_lossy());
        assert!(Query::parse("%c3=a").is_lossy());
        for dropped in ["a=%ff%zz", "%ff=%zz", "%ff%zz=a", "a=%ff;"] {
            assert!(!Query::parse(dropped).is_lossy(), "a dropped pair cannot be misread");
        }
        assert!(!Query::parse(&"a&".repeat(MAX_PAIRS - 1)).is_lossy());
        assert!(Query::parse(&"a&".repeat(MAX_PAIRS)).is_lossy());
        assert!(!Query::parse(&vec!["a"; MAX_PAIRS].join("&")).is_lossy());
        assert!(Query::parse(&"a&".repeat(MAX_PAIRS + 1)).is_lossy());
    }

    #[test]
    fn pretty_counts_only_where_the_raw_query_has_the_word() {
        let rows = [
            ("pretty=1", Some("1")),
            ("pretty", Some("")),
            ("p%72etty=1", None),
            ("%70%72%65%74%74%79=1&limit=5", None),
            ("p%72etty=1&x=pretty", Some("1")),
            ("p%72etty=1&unpretty;=", Some("1")),
            ("p%72etty=1&pretty=0", Some("1")),
            ("pretty=0&p%72etty=1", Some("0")),
            ("p%72etty=%zz", None),
            ("limit=5", None),
        ];
        for (raw, expected) in rows {
            assert_eq!(Query::parse(raw).pretty(), expected, "{raw}");
        }
    }

    proptest! {
        #[test]
        fn pairs_are_those_of_a_query_that_is_split(raw in "[a%2+&=;é]{0,24}") {
            let decode = |text: &str| percent_decode(text.as_bytes(), true);
            let pairs = raw.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';'));
            let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
            let pairs = pairs.filter_map(|(name, value)| Some((decode(name)?, decode(value)?)));
            let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
            let pairs: Vec<_> = pairs.collect();
            let is_text = |bytes: &Vec<u8>| std::str::from_utf8(bytes).is_ok();
            let is_lossy = pairs.iter().any(|(name, value)| !is_text(name) || !is_text(value));
            let pairs = pairs.into_iter().map(|(name, value)| (text(name), text(value)));
            let expected: Vec<_> = pairs.collect();
            let query = Query::parse(&raw);
            prop_assert_eq!(query.is_lossy(), is_lossy);
            let read = query.pairs().map(|(name, value)| (name.to_owned(), value.to_owned()));
            prop_assert_eq!(read.collect::<Vec<_>>(), expected);
        }

        #[test]
        fn any_text_is_read_without_panic(raw in "[ -~é%&=;+]{0,64}") {
            let query = Query::parse(&raw);
            prop_assert!(query.pairs().count() <= raw.matches('&').count() + 1);
        }

        #[test]
        fn an_escaped_value_is_decoded(value in any::<String>()) {
            let escaped: String = value.bytes().map(|byte| format!("%{byte:02X}")).collect();
            let query = Query::parse(&format!("x={escaped}"));
            prop_assert_eq!(query.first("x"), Some(value.as_str()));
        }
    }
}
