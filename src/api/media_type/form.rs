//! The forms of a response that Weir serves: encoding, view and indentation.

/// The encoding of a response body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// `application/json`.
    #[default]
    Json,
    /// `application/vnd.kubernetes.protobuf` (`docs/semantics.md` §5.3).
    Protobuf,
}

impl Encoding {
    /// Returns the `Content-Type` of a response (`docs/semantics.md` §8.3).
    pub fn content_type(self, watch: bool) -> &'static str {
        match (self, watch) {
            (Self::Json, _) => "application/json",
            (Self::Protobuf, false) => "application/vnd.kubernetes.protobuf",
            (Self::Protobuf, true) => "application/vnd.kubernetes.protobuf;stream=watch",
        }
    }
}

/// Which part of an object a response shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum View {
    /// The whole object.
    Full,
    /// `PartialObjectMetadata` of `meta.k8s.io/v1` (`docs/semantics.md` §9.2).
    Metadata,
    /// The whole object without `metadata.managedFields` (`docs/decisions/managed-fields.md`).
    FullWithoutManagers,
    /// `PartialObjectMetadata` without `metadata.managedFields`.
    MetadataWithoutManagers,
}

impl View {
    /// Whether it shows only the metadata.
    pub fn is_metadata(self) -> bool {
        matches!(self, Self::Metadata | Self::MetadataWithoutManagers)
    }

    /// Whether it lacks `metadata.managedFields`.
    pub fn drops_managed_fields(self) -> bool {
        matches!(self, Self::FullWithoutManagers | Self::MetadataWithoutManagers)
    }

    /// Returns the view of the same part without `metadata.managedFields`.
    pub fn without_managed_fields(self) -> Self {
        match self {
            Self::Full | Self::FullWithoutManagers => Self::FullWithoutManagers,
            Self::Metadata | Self::MetadataWithoutManagers => Self::MetadataWithoutManagers,
        }
    }

    /// Returns the view of the same part with `metadata.managedFields`, if the object has them.
    pub fn with_managed_fields(self) -> Self {
        match self {
            Self::Full | Self::FullWithoutManagers => Self::Full,
            Self::Metadata | Self::MetadataWithoutManagers => Self::Metadata,
        }
    }
}

/// The form of a response that Weir serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// The encoding of the body.
    pub encoding: Encoding,
    /// The part of each object that it shows.
    pub view: View,
    /// Whether JSON is indented by two spaces (for curl, browsers and `?pretty=`). Always false for
    /// watches and for protobuf.
    pub pretty: bool,
}

/// The form of an error (`docs/semantics.md` §8.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorForm {
    /// `application/json`.
    Json {
        /// Whether it is indented.
        pretty: bool,
    },
    /// `application/yaml`, in place of which Weir writes indented JSON.
    Yaml,
    /// `application/vnd.kubernetes.protobuf`.
    Protobuf,
}

impl ErrorForm {
    /// Returns the `Content-Type` of the response.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Json { .. } | Self::Yaml => Encoding::Json.content_type(false),
            Self::Protobuf => Encoding::Protobuf.content_type(false),
        }
    }
}

impl Form {
    /// The whole object in compact JSON.
    pub const JSON: Self = Self { encoding: Encoding::Json, view: View::Full, pretty: false };
}

/// The version of metadata-only objects that Weir requests and serves.
pub const META_V1: &str = "meta.k8s.io/v1";
/// The kind of metadata-only objects.
pub const PARTIAL_OBJECT_METADATA: &str = "PartialObjectMetadata";
/// The kind of lists of metadata-only objects.
pub const PARTIAL_OBJECT_METADATA_LIST: &str = "PartialObjectMetadataList";
/// The field that the parameter `drop` of a media type can leave out of a response (KEP-5958;
/// `docs/decisions/managed-fields.md`). API servers that do not know the parameter ignore it.
pub const MANAGED_FIELDS: &str = "metadata.managedFields";
