//! The key of an object that was read.

use super::error::IngestError;
use crate::api::resource::ApiResource;
use crate::codec::object::Key;

/// The key of an object, if it has names that a path can have.
pub(in crate::codec) fn key(
    name: &str,
    namespace: &str,
    resource: &ApiResource,
) -> Result<Key, IngestError> {
    let named = !name.is_empty() && !name.contains('/') && !namespace.contains('/');
    // A namespaced resource's object without a namespace would have another key than a client asks for.
    if named && namespace.is_empty() != resource.namespaced {
        Ok(Key::new(namespace, name))
    } else {
        Err(IngestError::Name)
    }
}
