//! A parser of protobuf's wire format that reports the position of each field, and functions that
//! write lengths.
//!
//! The parser accepts any bytes without panicking and without allocating. The splices of
//! [`crate::splice`] need positions, which decoders of messages do not report.

/// The bytes are not a protobuf message, or not the expected one.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
#[error("not a protobuf message")]
pub struct Malformed;

/// The value of a field, by its wire type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// An integer or boolean.
    Varint(u64),
    /// A string, bytes or message.
    Bytes(&'a [u8]),
    /// Eight or four bytes. Weir reads no such field.
    Fixed,
}

/// One field of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// Its number.
    pub number: u32,
    /// Its value.
    pub value: Value<'a>,
    /// The offset of its tag in the message.
    pub start: usize,
    /// The offset of its value; for [`Value::Bytes`], of the first byte after the length.
    pub value_start: usize,
}

impl<'a> Field<'a> {
    /// Returns the bytes of a string, bytes or message.
    pub fn bytes(&self) -> Result<&'a [u8], Malformed> {
        match self.value {
            Value::Bytes(bytes) => Ok(bytes),
            Value::Varint(_) | Value::Fixed => Err(Malformed),
        }
    }

    /// Returns a string.
    pub fn text(&self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Malformed)
    }

    /// Whether tag and length have the shortest encoding, which is the one that a splice writes.
    pub fn is_minimal(&self) -> bool {
        let Value::Bytes(bytes) = self.value else { return false };
        self.number < 16 && self.value_start - self.start == 1 + length_len(bytes.len())
    }
}

/// An iterator over the fields of a message, in their order. It ends after an error.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    message: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    /// Creates an iterator over the fields of `message`.
    pub fn new(message: &'a [u8]) -> Self {
        Self { message, at: 0 }
    }

    fn read(&mut self) -> Result<Field<'a>, Malformed> {
        let start = self.at;
        let key = self.varint()?;
        let number = u32::try_from(key >> 3).map_err(|_| Malformed)?;
        if number == 0 {
            return Err(Malformed);
        }
        let mut value_start = self.at;
        let value = match key & 7 {
            0 => Value::Varint(self.varint()?),
            1 => self.skip(8)?,
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| Malformed)?;
                value_start = self.at;
                Value::Bytes(self.take(length)?)
            }
            5 => self.skip(4)?,
            // Groups, which Kubernetes never used, and undefined wire types.
            _ => return Err(Malformed),
        };
        Ok(Field { number, value, start, value_start })
    }

    fn skip(&mut self, length: usize) -> Result<Value<'a>, Malformed> {
        self.take(length).map(|_| Value::Fixed)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let end = self.at.checked_add(length).ok_or(Malformed)?;
        let bytes = self.message.get(self.at..end).ok_or(Malformed)?;
        self.at = end;
        Ok(bytes)
    }

    fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = *self.message.get(self.at).ok_or(Malformed)?;
            self.at += 1;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has one significant bit.
            if shift == 63 && bits > 1 {
                return Err(Malformed);
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Malformed)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.message.len() {
            return None;
        }
        let field = self.read();
        if field.is_err() {
            self.at = self.message.len();
        }
        Some(field)
    }
}

/// Returns the number of bytes that encode a length.
pub fn length_len(length: usize) -> usize {
    prost::length_delimiter_len(length)
}

/// Appends the tag (one byte) and the length of a field; its value must follow.
pub fn push_head(out: &mut impl Extend<u8>, tag: u8, length: usize) {
    out.extend([tag]);
    let mut rest = length;
    while rest >= 0x80 {
        out.extend([low_bits(rest) | 0x80]);
        rest >>= 7;
    }
    out.extend([low_bits(rest)]);
}

fn low_bits(length: usize) -> u8 {
    u8::try_from(length & 0x7f).unwrap_or_default()
}

/// Returns the length of a field with a value of this length, including its tag (one byte) and
/// length.
pub fn field_len(length: usize) -> usize {
    1 + length_len(length) + length
}
