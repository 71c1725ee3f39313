//! From the upstream's bytes to an [`Object`], whatever their encoding.

pub(super) mod error;
pub(super) mod key;

pub use self::error::IngestError;
use crate::api::resource::{ApiResource, Representation};
use crate::codec::object::Object;
use crate::codec::{json, protobuf};

/// Takes an object as GET and WATCH show it in this representation, copying the bytes into an allocation of its own.
pub fn object(
    bytes: &[u8],
    resource: &ApiResource,
    representation: Representation,
) -> Result<Object, IngestError> {
    match representation {
        Representation::Json => json::object(bytes, resource),
        Representation::MetadataJson => json::partial_object(bytes, resource),
        Representation::Protobuf | Representation::MetadataProtobuf => {
            protobuf::object::object(bytes, resource, representation)
        }
    }
}

/// Takes an object as a LIST shows it, giving it back what list items lack.
pub fn list_item(
    bytes: &[u8],
    resource: &ApiResource,
    representation: Representation,
) -> Result<Object, IngestError> {
    match representation {
        Representation::Json => json::list_item(bytes, resource),
        // The items of a metadata-only list are whole.
        Representation::MetadataJson => json::partial_object(bytes, resource),
        Representation::Protobuf | Representation::MetadataProtobuf => {
            protobuf::object::list_item(bytes, resource, representation)
        }
    }
}
