//! From the upstream's bytes to an [`Object`], whatever their encoding.

use crate::api::resource::{ApiResource, Representation};
use crate::codec::object::{Key, Object};
use crate::codec::{json, protobuf};

/// Why bytes from the upstream could not be taken for an object. Never carries any of the bytes.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum IngestError {
    /// Not of the encoding, or not of the expected shape.
    #[error("the upstream sent an object that cannot be read")]
    Malformed,
    /// `metadata.resourceVersion` is missing or not a `u64`: such a resource is never cached.
    #[error("the upstream sent an object whose resourceVersion is not a number")]
    ResourceVersion,
    /// `metadata.name` is missing, or contains a `/`.
    #[error("the upstream sent an object without a usable name")]
    Name,
}

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

/// The key of an object, if it has names that a path can have.
pub(super) fn key(name: &str, namespace: &str, resource: &ApiResource) -> Result<Key, IngestError> {
    let named = !name.is_empty() && !name.contains('/') && !namespace.contains('/');
    // A namespaced resource's object without a namespace would have another key than a client asks for.
    if named && namespace.is_empty() != resource.namespaced {
        Ok(Key::new(namespace, name))
    } else {
        Err(IngestError::Name)
    }
}
