//! The forms of a response that Weir serves: encoding, view and indentation.

/// How the bytes of an answer are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// `application/json`.
    #[default]
    Json,
    /// `application/vnd.kubernetes.protobuf` (semantics.md §5.3).
    Protobuf,
}

impl Encoding {
    /// The `Content-Type` of answers, of watches or others (semantics.md §8.3).
    pub fn content_type(self, watch: bool) -> &'static str {
        match (self, watch) {
            (Self::Json, _) => "application/json",
            (Self::Protobuf, false) => "application/vnd.kubernetes.protobuf",
            (Self::Protobuf, true) => "application/vnd.kubernetes.protobuf;stream=watch",
        }
    }
}

/// What of an object an answer shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum View {
    /// All of it.
    Full,
    /// `PartialObjectMetadata` of `meta.k8s.io/v1` (semantics.md §9.2).
    Metadata,
}

/// A form that Weir serves itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// Its bytes.
    pub encoding: Encoding,
    /// What it shows.
    pub view: View,
    /// Whether JSON is indented by two spaces (curl, browsers, `?pretty=`). Never for watches, never for protobuf.
    pub pretty: bool,
}

impl Form {
    /// The whole object in compact JSON.
    pub const JSON: Self = Self { encoding: Encoding::Json, view: View::Full, pretty: false };
}

/// The version of metadata-only objects that Weir asks for.
pub const META_V1: &str = "meta.k8s.io/v1";
/// The kind of metadata-only objects.
pub const PARTIAL_OBJECT_METADATA: &str = "PartialObjectMetadata";
/// The kind of lists of such.
pub const PARTIAL_OBJECT_METADATA_LIST: &str = "PartialObjectMetadataList";
