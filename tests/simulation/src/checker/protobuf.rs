//! The fields of protobuf messages, as far as the checks read them.

/// A field of a protobuf message.
pub(super) enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Returns the fields of a message with their numbers, up to the first one that cannot be read.
pub(super) fn fields(mut message: &[u8]) -> impl Iterator<Item = (u64, Field<'_>)> {
    std::iter::from_fn(move || {
        let tag = number(&mut message)?;
        let value = number(&mut message)?;
        match tag & 7 {
            0 => Some((tag >> 3, Field::Number(value))),
            2 => {
                let (bytes, rest) = message.split_at_checked(usize::try_from(value).ok()?)?;
                message = rest;
                Some((tag >> 3, Field::Bytes(bytes)))
            }
            _ => None,
        }
    })
}

pub(super) fn bytes_of(message: &[u8], wanted: u64) -> Option<&[u8]> {
    fields(message).find_map(|field| match field {
        (number, Field::Bytes(bytes)) if number == wanted => Some(bytes),
        _ => None,
    })
}

pub(super) fn text_of(message: &[u8], wanted: u64) -> Option<String> {
    String::from_utf8(bytes_of(message, wanted)?.to_vec()).ok()
}

/// Reads a number of variable length.
fn number(message: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = message.split_first()?;
        *message = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Returns the number in a field.
pub(super) fn number_of(message: &[u8], wanted: u64) -> Option<u64> {
    fields(message).find_map(|field| match field {
        (number, Field::Number(value)) if number == wanted => Some(value),
        _ => None,
    })
}

/// Returns the kind, the version and the message in the envelope of Kubernetes.
pub(super) fn unwrapped(body: &[u8]) -> Option<(String, String, &[u8])> {
    let unknown = body.strip_prefix(b"k8s\0")?;
    let kind = bytes_of(unknown, 1)?;
    Some((text_of(kind, 2)?, text_of(kind, 1)?, bytes_of(unknown, 2)?))
}
