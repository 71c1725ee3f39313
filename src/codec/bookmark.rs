//! Bookmark objects. They are typed zero objects that differ by resource and API server release, so
//! Weir learns them from the API server (`docs/semantics.md` §5.6, Appendix A). Until it has seen
//! one, it writes the metadata alone, which Go reads as the same object.

mod annotation;

use bytes::Bytes;

use self::annotation::parse_bookmark;
use crate::object::Layout;
use crate::protobuf::wire::push_head;
use crate::{frame, protobuf};
use weir_api::media_type::View;
use weir_api::resource::{ApiResource, Representation, Shape};
use weir_api::resource_version::ResourceVersion;

/// The template of a resource's bookmarks, in both forms. Only the resourceVersion is replaced.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BookmarkTemplate {
    /// A periodic bookmark.
    plain: Template,
    initial_events_end: Template,
    /// The same for a watch of metadata alone, where it is another one.
    metadata_end: Option<Template>,
}

/// A bookmark object with its original resourceVersion.
#[derive(Clone, Debug)]
struct Template {
    object: Box<[u8]>,
    layout: Layout,
}

impl BookmarkTemplate {
    /// Creates a template from a bookmark object of the API server in either encoding, with or
    /// without the initial-events-end annotation. The other form is derived: typed objects have
    /// `annotations` after `resourceVersion`, custom resources sort their keys, and DaemonSets have
    /// another annotation. `None` if the object cannot be understood.
    pub fn from_bookmark(object: &[u8]) -> Option<Self> {
        let read = parse_bookmark(object)?;
        let (plain, end) = if read.initial_events_end {
            (annotation::remove(object)?, object.to_vec())
        } else {
            (object.to_vec(), annotation::add(object)?)
        };
        let (plain, plain_ends) = Template::new(plain)?;
        let (end, end_ends) = Template::new(end)?;
        let metadata_end = annotation::for_metadata(&end.object).and_then(Template::new);
        (!plain_ends && end_ends).then_some(Self {
            plain,
            initial_events_end: end,
            metadata_end: metadata_end.map(|(end, _)| end),
        })
    }

    /// Returns the template after a bookmark of the API server, `None` if it stays as it is. A
    /// form that is only derived from a periodic bookmark replaces none that was seen: 1.32 and
    /// 1.33 add to the bookmark that ends the initial events.
    pub fn learned(template: Option<&Self>, object: &[u8]) -> Option<Self> {
        let newer = Self::from_bookmark(object)?;
        let is_periodic = !read(object)?.1;
        let is_same =
            |template: &Self| *template == newer || (is_periodic && template.plain == newer.plain);
        (!template.is_some_and(is_same)).then_some(newer)
    }

    /// Creates the template of a resource of which no bookmark was seen yet: the metadata without
    /// the other fields of a zero object.
    pub fn minimal(resource: &ApiResource, representation: Representation) -> Option<Self> {
        let (group_version, kind) = match representation {
            Representation::Json | Representation::Protobuf => {
                (resource.gvr.api_version(), &*resource.kind)
            }
            Representation::MetadataJson | Representation::MetadataProtobuf => {
                ("meta.k8s.io/v1".to_owned(), "PartialObjectMetadata")
            }
        };
        let is_whole = representation == Representation::Json;
        let object = match representation {
            Representation::Json | Representation::MetadataJson => {
                let kind = format!(r#""kind":{}"#, serde_json::to_string(kind).ok()?);
                let version =
                    format!(r#""apiVersion":{}"#, serde_json::to_string(&group_version).ok()?);
                let is_sorted = is_whole && resource.shape == Shape::Custom;
                let [first, second] = if is_sorted { [version, kind] } else { [kind, version] };
                format!(r#"{{{first},{second},"metadata":{{"resourceVersion":"0"}}}}"#).into_bytes()
            }
            Representation::Protobuf | Representation::MetadataProtobuf => {
                let mut object = protobuf::envelope_head(&group_version, kind);
                push_head(&mut object, protobuf::UNKNOWN_RAW_TAG, ZERO_METADATA.len());
                [&object, ZERO_METADATA, protobuf::UNKNOWN_TAIL].concat()
            }
        };
        Self::from_bookmark(&object)
    }

    /// Returns a BOOKMARK frame, in JSON with its newline.
    pub fn frame(
        &self,
        resource_version: ResourceVersion,
        initial_events_end: bool,
        view: View,
    ) -> Bytes {
        let of_metadata = self.metadata_end.as_ref().filter(|_| view.is_metadata());
        let Template { object, layout } = match initial_events_end {
            true => of_metadata.unwrap_or(&self.initial_events_end),
            false => &self.plain,
        };
        frame::with_resource_version("BOOKMARK", object, *layout, resource_version, view)
    }
}

impl Template {
    /// Also returns whether the bookmark ends the initial events.
    fn new(object: Vec<u8>) -> Option<(Self, bool)> {
        let read = parse_bookmark(&object)?;
        Some((Self { layout: read.layout, object: object.into() }, read.initial_events_end))
    }

    /// Returns the object with a fixed resourceVersion, for comparison.
    fn canonical(&self) -> Vec<u8> {
        let none = ResourceVersion(0);
        crate::splice::with_resource_version(&self.object, self.layout, none).0
    }
}

/// Ignores the resourceVersions.
impl PartialEq for Template {
    fn eq(&self, other: &Self) -> bool {
        self.canonical() == other.canonical()
    }
}

impl Eq for Template {}

/// The metadata of a bookmark at `0` in protobuf, field 1 of every object, as kube-apiserver writes
/// them.
const ZERO_METADATA: &[u8] = b"\x0a\x11\x0a\0\x12\0\x1a\0\x22\0*\0\x32\x010\x38\0B\0";

/// Reads a bookmark: its resourceVersion, and whether it ends the initial events.
pub fn read(object: &[u8]) -> Option<(ResourceVersion, bool)> {
    let read = parse_bookmark(object)?;
    Some((read.resource_version, read.initial_events_end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_api::media_type::Encoding;
    use weir_api::resource::{GroupVersionResource, built_in};

    /// Both forms of bookmarks as kube-apiserver 1.36 writes them (`docs/semantics.md` Appendix A).
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
    fn a_template_has_both_forms_from_either() {
        for (plain, end) in PAIRS {
            let template = BookmarkTemplate::from_bookmark(end.as_bytes()).unwrap();
            assert_eq!(
                Some(&template),
                BookmarkTemplate::from_bookmark(plain.as_bytes()).as_ref(),
                "{plain}"
            );
            let frame = |object: &str| {
                format!("{{\"type\":\"BOOKMARK\",\"object\":{}}}\n", object.replace("365", "10000"))
            };
            assert_eq!(template.frame(ResourceVersion(10_000), false, View::Full), frame(plain));
            assert_eq!(template.frame(ResourceVersion(10_000), true, View::Full), frame(end));
        }
    }

    /// As 1.32 writes them, where zero times and an empty list are there.
    #[test]
    fn what_older_releases_add_to_the_end_bookmark_is_kept() {
        let pod = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"365","creationTimestamp":null},"status":{}}"#;
        let annotated = |annotations: &str| {
            let time = r#""creationTimestamp":null"#;
            let annotations = format!(r#"{time},"annotations":{{{annotations}}}"#);
            pod.replace(time, &annotations)
        };
        let derived = annotated(r#""k8s.io/initial-events-end":"true""#);
        let end = annotated(
            r#""k8s.io/initial-events-end":"true","kubernetes.io/initial-events-list-blueprint":"eyJr=""#,
        );
        let frame = |template: &BookmarkTemplate, ends| {
            let frame = template.frame(ResourceVersion(365), ends, View::Full);
            let text = String::from_utf8(frame.to_vec()).unwrap();
            text.trim_end().trim_start_matches(r#"{"type":"BOOKMARK","object":"#).to_owned()
        };
        let first = BookmarkTemplate::learned(None, pod.as_bytes()).unwrap();
        assert_eq!(
            [false, true].map(|ends| frame(&first, ends)),
            [pod, &derived].map(|text| format!("{text}}}"))
        );
        let seen = BookmarkTemplate::learned(Some(&first), end.as_bytes()).unwrap();
        assert_eq!(
            [false, true].map(|ends| frame(&seen, ends)),
            [pod, &end].map(|text| format!("{text}}}"))
        );
        assert_eq!(BookmarkTemplate::learned(Some(&seen), pod.as_bytes()), None);
        let of_metadata = seen.frame(ResourceVersion(365), true, View::Metadata);
        let frame: serde_json::Value = serde_json::from_slice(&of_metadata).unwrap();
        let annotations = &frame["object"]["metadata"]["annotations"];
        assert_eq!(
            annotations["kubernetes.io/initial-events-list-blueprint"],
            "eyJraW5kIjoiUGFydGlhbE9iamVjdE1ldGFkYXRhTGlzdCIsImFwaVZlcnNpb24iOiJtZXRhLms4cy5pby92MSIsIm1ldGFkYXRhIjp7fSwiaXRlbXMiOm51bGx9Cg=="
        );
    }

    #[test]
    fn metadata_only_bookmarks_are_spliced() {
        for (plain, end) in PAIRS {
            let template = BookmarkTemplate::from_bookmark(plain.as_bytes()).unwrap();
            for (object, ends) in [(plain, false), (end, true)] {
                let value: serde_json::Value = serde_json::from_str(object).unwrap();
                let expected = format!(
                    "{{\"type\":\"BOOKMARK\",\"object\":{{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":{}}}}}\n",
                    value["metadata"]
                );
                assert_eq!(template.frame(ResourceVersion(365), ends, View::Metadata), expected);
            }
        }
    }

    /// Both forms of a pod's bookmark as kube-apiserver 1.36 writes them, and of a kind that has
    /// its own annotation.
    #[test]
    fn a_template_in_protobuf_has_both_forms_from_either() {
        let end = b"\x0a\x36\x0a\0\x12\0\x1a\0\x22\0*\0\x32\x03219\x38\0B\0b!\x0a\x19k8s.io/initial-events-end\x12\x04true";
        let plain = b"\x0a\x13\x0a\0\x12\0\x1a\0\x22\0*\0\x32\x03219\x38\0B\0";
        let other = b"b-\x0a(deprecated.daemonset.template.generation\x12\x010";
        let spec = b"\x12\x1c\x1a\x002\0B\0J\0R\0X\0`\0h\0\x82\x01\0\x8a\x01\0\x9a\x01\0\xc2\x01\0\x1a\x02\x0a\0";
        let with_other = |metadata: &[u8], at: usize| {
            let length = metadata[1] + u8::try_from(other.len()).unwrap();
            [&[0x0a, length][..], &metadata[2..at], other, &metadata[at..]].concat()
        };
        for (plain, end) in [
            (plain.to_vec(), end.to_vec()),
            (with_other(plain, plain.len()), with_other(end, plain.len())),
        ] {
            let whole = |metadata: &[u8]| {
                let raw = [metadata, spec].concat();
                let mut body = protobuf::envelope_head("v1", "Pod");
                push_head(&mut body, protobuf::UNKNOWN_RAW_TAG, raw.len());
                [&body, &raw[..], protobuf::UNKNOWN_TAIL].concat()
            };
            let (plain, end) = (whole(&plain), whole(&end));
            let template = BookmarkTemplate::from_bookmark(&plain).unwrap();
            assert_eq!(Some(&template), BookmarkTemplate::from_bookmark(&end).as_ref());
            assert_eq!(read(&plain), Some((ResourceVersion(219), false)));
            assert_eq!(read(&end), Some((ResourceVersion(219), true)));
            for (object, ends) in [(plain, false), (end, true)] {
                let frame = template.frame(ResourceVersion(219), ends, View::Full);
                assert!(frame.ends_with(&object), "{ends}");
                let mut frames = Vec::new();
                let mut splitter = frame::FrameSplitter::new(Encoding::Protobuf, 1024);
                let longer = template.frame(ResourceVersion(10_000), ends, View::Full);
                splitter.push(longer, &mut frames).unwrap();
                assert_eq!(read(&frames[0].object), Some((ResourceVersion(10_000), ends)));
            }
        }
    }

    /// The metadata of a minimal template are those of the API server's bookmarks.
    #[test]
    fn a_minimal_template_has_the_metadata_alone() {
        let gvr = |text: (&str, &str)| GroupVersionResource::new(text.0, text.1, "things");
        let config_map = built_in(gvr(("", "v1")), "ConfigMap");
        let widget =
            ApiResource { shape: Shape::Custom, ..built_in(gvr(("example.com", "v1")), "Widget") };
        for (resource, (plain, _)) in [(&config_map, PAIRS[0]), (&widget, PAIRS[3])] {
            let template = BookmarkTemplate::minimal(resource, Representation::Json).unwrap();
            assert_eq!(Some(template), BookmarkTemplate::from_bookmark(plain.as_bytes()));
        }
        for (representation, view) in
            [(Representation::Json, View::Metadata), (Representation::MetadataJson, View::Full)]
        {
            let template = BookmarkTemplate::minimal(&config_map, representation).unwrap();
            let expected = r#"{"type":"BOOKMARK","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"12"}}}"#;
            assert_eq!(template.frame(ResourceVersion(12), false, view), format!("{expected}\n"));
        }
        for representation in [Representation::Protobuf, Representation::MetadataProtobuf] {
            let template = BookmarkTemplate::minimal(&config_map, representation).unwrap();
            let mut frames = Vec::new();
            let mut splitter = frame::FrameSplitter::new(Encoding::Protobuf, 1024);
            let end = template.frame(ResourceVersion(10_000), true, View::Full);
            splitter.push(end, &mut frames).unwrap();
            assert_eq!(read(&frames[0].object), Some((ResourceVersion(10_000), true)));
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
