//! Kubernetes' protobuf (semantics.md §5.3): the envelope around every object, and the few messages that Weir
//! decodes or writes itself.
//!
//! The messages are declared as the upstream's encoder treats them: of proto2, where a field that is no pointer in Go is written
//! even if it is empty. So each is `optional` here, and `Some` of an empty value where Weir writes one. Objects are never decoded into
//! messages: [`object`] finds the few fields that the cache needs with the reader in [`wire`].

mod envelope;
mod messages;
pub mod object;
mod status;
pub mod wire;

pub use self::envelope::{
    MAGIC, TypeMeta, UNKNOWN_RAW_TAG, UNKNOWN_TAIL, Unknown, decode_envelope, envelope_head,
    is_protobuf,
};
pub use self::messages::{ListMeta, Status, StatusCause, StatusDetails};
pub use self::status::{decode_status, encode_status};

#[cfg(test)]
pub(crate) mod tests;
