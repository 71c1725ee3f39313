//! Creates an [`Object`] from the API server's bytes in any representation.

pub(super) mod error;
pub(super) mod key;

pub use self::error::IngestError;
use crate::api::resource::{ApiResource, Representation};
use crate::codec::object::Object;
use crate::codec::{json, protobuf};

/// Reads an object in the form of GET and WATCH. Copies the bytes into their own allocation.
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

/// Reads an object in the form of a LIST, and adds the parts that list items lack.
pub fn list_item(
    bytes: &[u8],
    resource: &ApiResource,
    representation: Representation,
) -> Result<Object, IngestError> {
    match representation {
        Representation::Json => json::list_item(bytes, resource),
        // The items of a metadata-only list are complete objects.
        Representation::MetadataJson => json::partial_object(bytes, resource),
        Representation::Protobuf | Representation::MetadataProtobuf => {
            protobuf::object::list_item(bytes, resource, representation)
        }
    }
}
