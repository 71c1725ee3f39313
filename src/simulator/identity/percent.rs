//! Percent-escapes in the names of header fields.

/// Decodes percent-escapes; `None` if one is malformed.
pub(super) fn decode(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut out = Vec::new();
    let digit = |bytes: &mut std::str::Bytes<'_>| char::from(bytes.next()?).to_digit(16);
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let value = digit(&mut bytes)? * 16 + digit(&mut bytes)?;
            out.push(u8::try_from(value).ok()?);
        } else {
            out.push(byte);
        }
    }
    String::from_utf8(out).ok()
}
