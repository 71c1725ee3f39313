//! The encodings in which a cache can hold the objects of a resource.

use crate::api::media_type::Encoding;

/// Which of its encodings of an object a cache holds. Each has its own reflector and its own cache,
/// since both encodings come from the upstream as they are (design, section 4).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Representation {
    /// `application/json`, the full object.
    Json,
    /// `application/vnd.kubernetes.protobuf`, the full object; built-in resources only.
    Protobuf,
    /// `PartialObjectMetadata` in JSON: of custom resources, whose metadata it re-orders (semantics.md §9.2), and of the few built-in
    /// ones whose metadata their version changes. That of all others is a splice of the full object.
    MetadataJson,
    /// The same in protobuf.
    MetadataProtobuf,
}

impl Representation {
    /// How its bytes are made.
    pub fn encoding(self) -> Encoding {
        match self {
            Self::Json | Self::MetadataJson => Encoding::Json,
            Self::Protobuf | Self::MetadataProtobuf => Encoding::Protobuf,
        }
    }

    /// The word in metrics and logs, such as `json`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Protobuf => "protobuf",
            Self::MetadataJson => "metadata-json",
            Self::MetadataProtobuf => "metadata-protobuf",
        }
    }
}
