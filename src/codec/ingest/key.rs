//! Checks the names of an object that was read.

use super::error::IngestError;
use crate::api::resource::ApiResource;
use crate::codec::object::Key;

/// Returns the key of an object, if its names can be part of a path.
pub(crate) fn key(name: &str, namespace: &str, resource: &ApiResource) -> Result<Key, IngestError> {
    let named = !name.is_empty() && !name.contains('/') && !namespace.contains('/');
    // Without its namespace, an object of a namespaced resource would have another key than the one
    // that clients request.
    if named && namespace.is_empty() != resource.namespaced {
        Ok(Key::new(namespace, name))
    } else {
        Err(IngestError::Name)
    }
}
