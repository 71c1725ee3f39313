//! The encodings in which a cache can hold the objects of a resource. Metadata-only views of some
//! kinds have their own (`docs/decisions/upstream-bytes.md`).

use crate::media_type::Encoding;

/// The encoding in which a cache holds objects. Each has its own reflector and cache, since both
/// encodings come from the API server as they are (`docs/decisions/upstream-bytes.md`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Representation {
    /// The whole object as `application/json`.
    Json,
    /// The whole object as `application/vnd.kubernetes.protobuf`; built-in resources only.
    Protobuf,
    /// `PartialObjectMetadata` in JSON: for custom resources, in whose metadata the API server
    /// changes the order, and for the few built-in ones whose metadata a version conversion changes
    /// (`docs/semantics.md` §9.2). Views of all other resources are splices of the whole object.
    MetadataJson,
    /// `PartialObjectMetadata` in protobuf.
    MetadataProtobuf,
}

impl Representation {
    /// All representations.
    pub const ALL: [Self; 4] =
        [Self::Json, Self::Protobuf, Self::MetadataJson, Self::MetadataProtobuf];

    /// Returns the encoding of its bytes.
    pub fn encoding(self) -> Encoding {
        match self {
            Self::Json | Self::MetadataJson => Encoding::Json,
            Self::Protobuf | Self::MetadataProtobuf => Encoding::Protobuf,
        }
    }

    /// Returns the word for metrics and logs, such as `json`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Protobuf => "protobuf",
            Self::MetadataJson => "metadata-json",
            Self::MetadataProtobuf => "metadata-protobuf",
        }
    }
}
