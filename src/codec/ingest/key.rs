//! Checks the names of an object that was read.

use super::error::IngestError;
use weir_api::resource::ApiResource;

/// Checks that the namespace and name of an object can be part of a path and are unambiguous: in
/// JSON, U+FFFD stands for any byte that is not UTF-8 (`docs/semantics.md` §3.6), so that objects
/// with different names seem to have the same. In protobuf it is refused too: both caches of a
/// resource leave out the same objects.
pub(crate) fn check_names(
    (namespace, name): (&str, &str),
    resource: &ApiResource,
) -> Result<(), IngestError> {
    let is_plain = |text: &str| !text.contains(['/', char::REPLACEMENT_CHARACTER]);
    let named = !name.is_empty() && is_plain(name) && is_plain(namespace);
    // Without its namespace, an object of a namespaced resource would have another key than the one
    // that clients request.
    if named && namespace.is_empty() != resource.namespaced {
        Ok(())
    } else {
        Err(IngestError::Name)
    }
}
