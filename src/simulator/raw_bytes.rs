//! Bytes that are not UTF-8, in strings of stored objects.
//!
//! An API server takes them in protobuf, and does not check them (`docs/semantics.md` §5.3). The
//! simulator stores text, in which a character of a private range stands for such a byte. Protobuf
//! has the byte again. In JSON it becomes U+FFFD, as Go's encoder writes it, except for a byte
//! within raw JSON of a client, such as managed fields, which Go copies (§3.6).

use std::borrow::Cow;

use bytes::Bytes;
use memchr::memmem;

/// Returns the character that stands for a byte from 0x80 on in a string.
pub fn string_byte(byte: u8) -> char {
    stand_in(STRING, byte)
}

/// Returns the character that stands for a byte from 0x80 on within raw JSON.
pub fn json_byte(byte: u8) -> char {
    stand_in(RAW_JSON, byte)
}

fn stand_in(base: u32, byte: u8) -> char {
    char::from_u32(base + u32::from(byte)).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// Reads a string of protobuf.
pub(super) fn from_protobuf(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|byte| string_byte(*byte)));
    }
    text
}

pub(super) fn in_protobuf(text: &[u8]) -> Cow<'_, [u8]> {
    replaced(text, |_, byte, out| out.push(byte))
}

/// Returns encoded JSON as an API server sends it.
pub(super) fn in_json(encoded: Bytes) -> Bytes {
    let sent = replaced(&encoded, |base, byte, out| match base {
        RAW_JSON => out.push(byte),
        _ => out.extend_from_slice("\u{fffd}".as_bytes()),
    });
    match sent {
        Cow::Borrowed(_) => encoded,
        Cow::Owned(sent) => sent.into(),
    }
}

/// Replaces each stand-in by what `put` appends for its range and byte.
fn replaced(text: &[u8], put: impl Fn(u32, u8, &mut Vec<u8>)) -> Cow<'_, [u8]> {
    if memmem::find(text, LEAD).is_none() {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(text.len());
    for chunk in text.utf8_chunks() {
        for character in chunk.valid().chars() {
            let code = u32::from(character);
            let byte = |base: u32| code.checked_sub(base).and_then(|byte| u8::try_from(byte).ok());
            match (byte(STRING), byte(RAW_JSON)) {
                (Some(byte @ 0x80..), _) => put(STRING, byte, &mut out),
                (_, Some(byte @ 0x80..)) => put(RAW_JSON, byte, &mut out),
                _ => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        out.extend_from_slice(chunk.invalid());
    }
    Cow::Owned(out)
}

/// Stand-ins are these plus a byte. They are in the last private use area.
const STRING: u32 = 0x10_ff00;
const RAW_JSON: u32 = 0x10_fe00;
/// The first bytes of all characters of both ranges.
const LEAD: &[u8] = b"\xf4\x8f";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_is_what_an_api_server_makes_of_it() {
        let text = format!("ä{}{}{}", string_byte(0xff), string_byte(0x80), json_byte(0xfe));
        assert_eq!(&*in_protobuf(text.as_bytes()), b"\xc3\xa4\xff\x80\xfe");
        assert_eq!(in_json(text.into()), &b"\xc3\xa4\xef\xbf\xbd\xef\xbf\xbd\xfe"[..]);
        assert_eq!(from_protobuf(b"a\xff"), format!("a{}", string_byte(0xff)));
        assert_eq!(&*in_protobuf("ä\u{10fffd}".as_bytes()), b"\xc3\xa4\xfd");
    }
}
