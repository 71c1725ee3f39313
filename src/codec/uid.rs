//! Reads an object's uid out of its bytes. Only a relist asks for it, and only of objects that changed, so it is not kept beside them.

use std::borrow::Cow;

use serde::Deserialize;

/// The `metadata.uid` of a body, in JSON or protobuf; `None` if there is none to be found.
pub fn of(body: &[u8]) -> Option<Cow<'_, str>> {
    if body.first() == Some(&b'{') { in_json(body) } else { in_protobuf(body).map(Cow::Borrowed) }
}

fn in_json(body: &[u8]) -> Option<Cow<'_, str>> {
    let object: Object<'_> = serde_json::from_slice(body).ok()?;
    object.metadata.uid
}

/// With the envelope of semantics.md §5.3 or without: field 2 of `Unknown` is the object, whose field 1 is its metadata, whose field 5 is
/// the uid.
fn in_protobuf(body: &[u8]) -> Option<&str> {
    let object = match body.strip_prefix(b"k8s\0") {
        Some(unknown) => member(unknown, 2)?,
        None => body,
    };
    std::str::from_utf8(member(member(object, 1)?, 5)?).ok()
}

/// The first length-delimited field of this number.
fn member(mut message: &[u8], number: u64) -> Option<&[u8]> {
    while !message.is_empty() {
        let (tag, rest) = varint(message)?;
        let length = match tag & 7 {
            0 => {
                message = varint(rest)?.1;
                continue;
            }
            1 => (8, rest),
            2 => varint(rest)?,
            5 => (4, rest),
            _ => return None,
        };
        let (value, rest) = length.1.split_at_checked(usize::try_from(length.0).ok()?)?;
        if tag == number << 3 | 2 {
            return Some(value);
        }
        message = rest;
    }
    None
}

fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0;
    for (index, byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((value, bytes.get(index + 1..)?));
        }
    }
    None
}

#[derive(Deserialize)]
struct Object<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
}

#[derive(Deserialize)]
struct Metadata<'a> {
    #[serde(borrow)]
    uid: Option<Cow<'a, str>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_uid_of_the_object_and_of_nothing_else() {
        let owned = br#"{"kind":"Pod","metadata":{"ownerReferences":[{"uid":"o"}],"uid":"u"}}"#;
        assert_eq!(of(owned).as_deref(), Some("u"));
        assert_eq!(of(br#"{"metadata":{"name":"a"},"uid":"x"}"#), None);
        assert_eq!(of(b"{"), None);
    }

    #[test]
    fn reads_it_from_protobuf() {
        let metadata =
            [b"\x0a\x01a\x12\x00\x1a\x00\x22\x00\x2a\x03uid\x38\x00".as_slice()].concat();
        let object = [&[0x0a, u8::try_from(metadata.len()).unwrap()], metadata.as_slice()].concat();
        assert_eq!(of(&object).as_deref(), Some("uid"));
        let raw = [&[0x12, u8::try_from(object.len()).unwrap()], object.as_slice()].concat();
        let envelope = [b"k8s\0\x0a\x04\x0a\x02v1".as_slice(), &raw, b"\x1a\x00\x22\x00"].concat();
        assert_eq!(of(&envelope).as_deref(), Some("uid"));
        for length in 0..object.len() {
            let _cut_anywhere = of(&object[..length]);
        }
    }
}
