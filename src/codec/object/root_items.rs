//! Finds a root field `items`, which makes kube-apiserver take a custom resource for a list
//! (`docs/semantics.md` §4.1).

use memchr::memmem;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::object::Layout;
use weir_api::media_type::Encoding;

/// Returns whether the root field `items` of an object is an array.
pub(super) fn is_array(body: &[u8], layout: Layout) -> bool {
    #[derive(Deserialize)]
    struct Root<'a> {
        #[serde(borrow)]
        items: Option<&'a RawValue>,
    }
    // The keys of a custom resource are in order, so that the field is before the metadata.
    let before_metadata = body.get(..layout.metadata.start as usize).unwrap_or_default();
    if layout.encoding != Encoding::Json || memmem::find(before_metadata, KEY).is_none() {
        return false;
    }
    match serde_json::from_slice::<Root<'_>>(body) {
        Ok(root) => root.items.is_some_and(|items| items.get().starts_with('[')),
        Err(_) => true,
    }
}

const KEY: &[u8] = br#""items":["#;
