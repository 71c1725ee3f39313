//! The form of a response, negotiated from a request's `Accept` header (`docs/semantics.md` §8.1,
//! §8.2, §8.6).

mod accept;
mod form;
mod negotiation;

pub use self::form::{
    Encoding, ErrorForm, Form, MANAGED_FIELDS, META_V1, PARTIAL_OBJECT_METADATA,
    PARTIAL_OBJECT_METADATA_LIST, View,
};
pub use self::negotiation::{accepts_gzip, error_form, is_interactive_client, negotiate};
