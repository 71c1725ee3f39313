//! Creates an [`Object`] from the API server's bytes in any representation.

pub(super) mod error;
pub(super) mod key;

pub use self::error::IngestError;
use crate::object::Object;
use crate::unreadable::UnreadableObject;
use crate::{json, protobuf};
use weir_api::resource::{ApiResource, Representation};

/// An object of the API server as a cache takes it.
#[derive(Debug)]
pub enum Ingested {
    /// An object that the cache holds.
    Object(Object),
    /// One that it leaves to the API server.
    Unreadable(UnreadableObject),
}

/// Reads an object in the form of GET and WATCH. Fails only if the bytes are no object that could
/// be followed.
pub fn any_object(
    bytes: &[u8],
    resource: &ApiResource,
    representation: Representation,
) -> Result<Ingested, IngestError> {
    or_unreadable(object(bytes, resource, representation), bytes, representation)
}

/// Reads an object in the form of a LIST. Fails only if the bytes are no object that could be
/// followed.
pub fn any_list_item(
    bytes: &[u8],
    resource: &ApiResource,
    representation: Representation,
) -> Result<Ingested, IngestError> {
    or_unreadable(list_item(bytes, resource, representation), bytes, representation)
}

fn or_unreadable(
    read: Result<Object, IngestError>,
    bytes: &[u8],
    representation: Representation,
) -> Result<Ingested, IngestError> {
    let described = |error| {
        UnreadableObject::describe(bytes, representation.encoding())
            .map(Ingested::Unreadable)
            .ok_or(error)
    };
    read.map(Ingested::Object).or_else(described)
}

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
