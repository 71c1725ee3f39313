//! The encodings in which a cache can hold the objects of a resource. Metadata-only views of some
//! kinds have their own (`docs/decisions/upstream-bytes.md`).

use crate::media_type::Encoding;

crate::labels! {
    /// The encoding in which a cache holds objects. Each has its own reflector and cache, since
    /// both encodings come from the API server as they are (`docs/decisions/upstream-bytes.md`).
    pub enum Representation {
        /// The whole object as `application/json`.
        Json = "json",
        /// The whole object as `application/vnd.kubernetes.protobuf`; built-in resources only.
        Protobuf = "protobuf",
        /// `PartialObjectMetadata` in JSON: for custom resources, in whose metadata the API server
        /// changes the order, and for the few built-in ones whose metadata a version conversion
        /// changes (`docs/semantics.md` §9.2). Views of all other resources are splices of the
        /// whole object.
        MetadataJson = "metadata-json",
        /// `PartialObjectMetadata` in protobuf.
        MetadataProtobuf = "metadata-protobuf",
    }
}

impl Representation {
    /// Returns the encoding of its bytes.
    pub fn encoding(self) -> Encoding {
        match self {
            Self::Json | Self::MetadataJson => Encoding::Json,
            Self::Protobuf | Self::MetadataProtobuf => Encoding::Protobuf,
        }
    }
}
