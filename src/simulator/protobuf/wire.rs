//! The wire format: varints, and length-delimited fields. Fixed-width fields are only ever skipped.

/// A field on the wire.
pub(super) struct WireField<'a> {
    pub(super) number: u64,
    /// The value of a varint.
    pub(super) value: u64,
    /// The value of a length-delimited field.
    pub(super) bytes: &'a [u8],
}

/// Parses the fields of a message; `None` if it is malformed.
pub(super) fn fields(mut bytes: &[u8]) -> Option<Vec<WireField<'_>>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes)?;
        let mut field = WireField { number: tag >> 3, value: 0, bytes: &[] };
        match tag & 7 {
            0 => field.value = varint(&mut bytes)?,
            1 => bytes = bytes.split_at_checked(8)?.1,
            2 => {
                let length = usize::try_from(varint(&mut bytes)?).ok()?;
                (field.bytes, bytes) = bytes.split_at_checked(length)?;
            }
            5 => bytes = bytes.split_at_checked(4)?.1,
            _ => return None,
        }
        fields.push(field);
    }
    Some(fields)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Appends a varint field.
pub(super) fn put_number(out: &mut Vec<u8>, number: u64, value: u64) {
    put_varint(out, number << 3);
    put_varint(out, value);
}

/// Appends a length-delimited field.
pub(super) fn put_bytes(out: &mut Vec<u8>, number: u64, bytes: &[u8]) {
    put_varint(out, number << 3 | 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}
