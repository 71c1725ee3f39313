//! Kubernetes' protobuf (`docs/semantics.md` §5.3): the envelope around every object, and the few
//! messages that Weir decodes or writes.
//!
//! The messages are declared as the API server's encoder treats them, as proto2: it writes a field
//! that is not a pointer in Go even if it is empty. So each field is `optional` here, and Weir
//! writes `Some` of an empty value. Objects are never decoded into messages: [`object`] finds the
//! few fields that the cache needs with the parser in [`wire`].

mod envelope;
mod messages;
pub mod object;
pub mod wire;

pub use self::envelope::{
    MAGIC, TypeMeta, UNKNOWN_RAW_TAG, UNKNOWN_TAIL, Unknown, decode_envelope, decode_status,
    encode_status, envelope_head, is_protobuf,
};
pub use self::messages::{ListMeta, ShardInfo, Status, StatusCause, StatusDetails};

#[cfg(test)]
pub(crate) mod tests;
