//! Bookmark objects: typed zero objects that differ by resource and upstream version, and so are learnt from
//! the upstream (semantics.md §5.6, Appendix A).

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::api::resource_version::ResourceVersion;
use crate::codec::frame;
use crate::codec::json::offset_in;

/// A bookmark of one resource with a gap for the resourceVersion, in both forms.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BookmarkTemplate {
    /// A periodic bookmark.
    plain: Halves,
    /// The bookmark that ends the initial events.
    initial_events_end: Halves,
}

/// What stands before and after the digits of the resourceVersion.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Halves {
    before: Box<[u8]>,
    after: Box<[u8]>,
}

impl BookmarkTemplate {
    /// Learns from a bookmark object of the upstream, which may carry the initial-events-end annotation or not; the
    /// other form is derived (typed objects put `annotations` after `resourceVersion`, custom resources sort their keys;
    /// DaemonSets carry another annotation). `None` if it can't be understood.
    pub fn learn(object: &[u8]) -> Option<Self> {
        let read = read_bookmark(object)?;
        let (plain, end) = if read.initial_events_end {
            (without_annotation(object)?, object.to_vec())
        } else {
            (object.to_vec(), with_annotation(object)?)
        };
        Some(Self { plain: split(&plain)?, initial_events_end: split(&end)? })
    }

    /// The whole BOOKMARK frame with its newline.
    pub fn frame(&self, resource_version: ResourceVersion, initial_events_end: bool) -> Bytes {
        let Halves { before, after } =
            if initial_events_end { &self.initial_events_end } else { &self.plain };
        let digits = resource_version.to_string();
        frame::frame("BOOKMARK", &[before, digits.as_bytes(), after].concat())
    }
}

/// What is read out of a bookmark: its resourceVersion and whether it ends the initial events.
pub fn read(object: &[u8]) -> Option<(ResourceVersion, bool)> {
    let read = read_bookmark(object)?;
    Some((read.resource_version, read.initial_events_end))
}

struct Read {
    resource_version: ResourceVersion,
    /// Where its digits stand in the object.
    digits: std::ops::Range<usize>,
    initial_events_end: bool,
}

fn read_bookmark(object: &[u8]) -> Option<Read> {
    #[derive(Deserialize)]
    struct Bookmark<'a> {
        #[serde(borrow)]
        metadata: Metadata<'a>,
    }
    #[derive(Deserialize)]
    struct Metadata<'a> {
        #[serde(borrow, rename = "resourceVersion")]
        resource_version: &'a RawValue,
        #[serde(default)]
        annotations: BTreeMap<String, String>,
    }
    let bookmark: Bookmark<'_> = serde_json::from_slice(object).ok()?;
    let quoted = bookmark.metadata.resource_version.get();
    let digits = quoted.strip_prefix('"')?.strip_suffix('"')?;
    let start = offset_in(object, digits)?;
    Some(Read {
        resource_version: ResourceVersion::parse(digits)?,
        digits: start..start + digits.len(),
        initial_events_end: bookmark.metadata.annotations.get(ANNOTATION).map(String::as_str)
            == Some("true"),
    })
}

fn split(object: &[u8]) -> Option<Halves> {
    let digits = read_bookmark(object)?.digits;
    let (before, after) = (object.get(..digits.start)?, object.get(digits.end..)?);
    Some(Halves { before: before.into(), after: after.into() })
}

/// Takes the annotation out, and with it the whole `annotations` if nothing else was in it.
fn without_annotation(object: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(object).ok()?;
    let lone = format!(r#""annotations":{{{ANNOTATION_PAIR}}}"#);
    let plain = [format!(",{lone}"), format!("{lone},"), lone]
        .into_iter()
        .chain([format!(",{ANNOTATION_PAIR}"), format!("{ANNOTATION_PAIR},")])
        .find(|part| text.contains(part.as_str()))
        .map(|part| text.replacen(&part, "", 1))?;
    // It must still be a bookmark, and no longer one that ends the initial events.
    let read = read_bookmark(plain.as_bytes())?;
    (!read.initial_events_end).then(|| plain.into_bytes())
}

/// Puts the annotation in where the upstream's encoder would.
fn with_annotation(object: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(object).ok()?;
    let end = if let Some((before, after)) = text.split_once(r#""annotations":{"#) {
        // Keys of a map are sorted; the annotations a zero object carries are few.
        let (pairs, rest) = after.split_once('}')?;
        let mut pairs: Vec<_> = pairs.split(',').filter(|pair| !pair.is_empty()).collect();
        pairs.push(ANNOTATION_PAIR);
        pairs.sort_unstable();
        format!(r#"{before}"annotations":{{{}}}{rest}"#, pairs.join(","))
    } else {
        let read = read_bookmark(object)?;
        let custom = text.starts_with(r#"{"apiVersion":"#);
        let annotations = format!(r#""annotations":{{{ANNOTATION_PAIR}}}"#);
        if custom {
            text.replacen(r#""metadata":{"#, &format!(r#""metadata":{{{annotations},"#), 1)
        } else {
            // The closing quote of the digits is at `digits.end`.
            let (before, after) = text.split_at_checked(read.digits.end + 1)?;
            format!("{before},{annotations}{after}")
        }
    };
    let read = read_bookmark(end.as_bytes())?;
    read.initial_events_end.then(|| end.into_bytes())
}

const ANNOTATION: &str = "k8s.io/initial-events-end";
const ANNOTATION_PAIR: &str = r#""k8s.io/initial-events-end":"true""#;

#[cfg(test)]
mod tests {
    use super::*;

    /// Both forms of bookmarks as kube-apiserver 1.36 writes them (semantics.md, Appendix A).
    const PAIRS: [(&str, &str); 4] = [
        (
            r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"365"}}"#,
            r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"365","annotations":{"k8s.io/initial-events-end":"true"}}}"#,
        ),
        (
            r#"{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"365"},"spec":{"containers":null},"status":{}}"#,
            r#"{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"365","annotations":{"k8s.io/initial-events-end":"true"}},"spec":{"containers":null},"status":{}}"#,
        ),
        (
            r#"{"kind":"DaemonSet","apiVersion":"apps/v1","metadata":{"resourceVersion":"365","annotations":{"deprecated.daemonset.template.generation":"0"}},"spec":{"selector":null}}"#,
            r#"{"kind":"DaemonSet","apiVersion":"apps/v1","metadata":{"resourceVersion":"365","annotations":{"deprecated.daemonset.template.generation":"0","k8s.io/initial-events-end":"true"}},"spec":{"selector":null}}"#,
        ),
        (
            r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"resourceVersion":"365"}}"#,
            r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"annotations":{"k8s.io/initial-events-end":"true"},"resourceVersion":"365"}}"#,
        ),
    ];

    #[test]
    fn either_form_teaches_both() {
        for (plain, end) in PAIRS {
            let template = BookmarkTemplate::learn(end.as_bytes()).unwrap();
            assert_eq!(
                Some(&template),
                BookmarkTemplate::learn(plain.as_bytes()).as_ref(),
                "{plain}"
            );
            let frame = |object: &str| {
                format!("{{\"type\":\"BOOKMARK\",\"object\":{}}}\n", object.replace("365", "10000"))
            };
            assert_eq!(template.frame(ResourceVersion(10_000), false), frame(plain));
            assert_eq!(template.frame(ResourceVersion(10_000), true), frame(end));
        }
    }

    #[test]
    fn bookmarks_are_read() {
        for (plain, end) in PAIRS {
            assert_eq!(read(plain.as_bytes()), Some((ResourceVersion(365), false)));
            assert_eq!(read(end.as_bytes()), Some((ResourceVersion(365), true)));
        }
        assert_eq!(read(b"{}"), None);
        assert_eq!(read(br#"{"metadata":{"resourceVersion":"x"}}"#), None);
    }
}
