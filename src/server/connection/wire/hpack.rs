//! Reading HPACK (RFC 7541), as far as a client's header blocks have to be understood before h2
//! reads them ([`super::header_block`]).
//!
//! There are crates that decode HPACK, h2 among them, whose decoder is private. All of them copy
//! every field, and know no more than the values; a block that passes untouched needs neither.
//! [`huffman`] measures strings without decoding them, and [`table`] holds lengths in place of
//! values, some bytes for each entry of a connection's table.

pub(super) mod huffman;
pub(super) mod table;

use std::borrow::Cow;

use self::huffman::BadBlock;

/// Reads a header block from its beginning to its end.
#[derive(Debug)]
pub(super) struct Cursor<'a> {
    block: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(super) fn new(block: &'a [u8]) -> Self {
        Self { block, rest: block }
    }

    /// How many bytes were read.
    pub(super) fn position(&self) -> usize {
        self.block.len() - self.rest.len()
    }

    pub(super) fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    pub(super) fn skip(&mut self) {
        self.rest = self.rest.get(1..).unwrap_or_default();
    }

    /// Reads an integer whose first byte has `prefix` bits for it (§5.1). Accepts at most four
    /// bytes more, as h2 does.
    pub(super) fn integer(&mut self, prefix: u32) -> Result<usize, BadBlock> {
        let (first, mut rest) = self.rest.split_first().ok_or(BadBlock)?;
        let mask = (1_usize << prefix) - 1;
        let mut value = usize::from(*first) & mask;
        if value == mask {
            let mut shift = 0;
            loop {
                let (byte, behind) = rest.split_first().ok_or(BadBlock)?;
                rest = behind;
                value += usize::from(byte & 0x7F) << shift;
                if byte & 0x80 == 0 {
                    break;
                }
                shift += 7;
                if shift == 28 {
                    return Err(BadBlock);
                }
            }
        }
        self.rest = rest;
        Ok(value)
    }

    /// Reads a string literal (§5.2).
    pub(super) fn string(&mut self) -> Result<Text<'a>, BadBlock> {
        let is_coded = self.peek().ok_or(BadBlock)? & 0x80 != 0;
        let length = self.integer(7)?;
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(BadBlock)?;
        self.rest = rest;
        Ok(Text { bytes, is_coded })
    }
}

/// A string literal as it is on the wire.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text<'a> {
    bytes: &'a [u8],
    /// Whether it is in Huffman code.
    is_coded: bool,
}

impl<'a> Text<'a> {
    /// Returns its length when decoded.
    pub(super) fn length(self) -> Result<usize, BadBlock> {
        if self.is_coded { Ok(huffman::measure(self.bytes)?.length) } else { Ok(self.bytes.len()) }
    }

    /// Returns its length when decoded, and whether it has a byte that `is_foreign` to a
    /// [`target`](super::target).
    pub(super) fn measure(self) -> Result<huffman::Measure, BadBlock> {
        if self.is_coded {
            return huffman::measure(self.bytes);
        }
        let has_foreign = super::target::first_foreign(self.bytes).is_some();
        Ok(huffman::Measure { length: self.bytes.len(), has_foreign })
    }

    /// Whether its first byte is `/`, whose Huffman code has six bits.
    pub(super) fn begins_with_slash(self) -> bool {
        match self.bytes.first() {
            Some(first) if self.is_coded => first >> 2 == 0b01_1000,
            first => first == Some(&b'/'),
        }
    }

    pub(super) fn decode(self) -> Result<Cow<'a, [u8]>, BadBlock> {
        if self.is_coded {
            Ok(Cow::Owned(huffman::decode(self.bytes)?))
        } else {
            Ok(Cow::Borrowed(self.bytes))
        }
    }
}

/// Appends an integer (§5.1), whose first byte begins with the bits of `pattern`.
pub(super) fn put_integer(pattern: u8, prefix: u32, value: usize, block: &mut Vec<u8>) {
    let mask = (1_usize << prefix) - 1;
    if value < mask {
        block.push(pattern | value as u8);
        return;
    }
    block.push(pattern | mask as u8);
    let mut rest = value - mask;
    while rest >= 0x80 {
        block.push(0x80 | (rest & 0x7F) as u8);
        rest >>= 7;
    }
    block.push(rest as u8);
}

/// Returns a field without indexing (§6.2.2), whose name is that of an entry of the static table.
pub(super) fn literal(name: usize, value: &[u8]) -> Vec<u8> {
    let mut field = Vec::with_capacity(value.len() + 8);
    put_integer(0, 4, name, &mut field);
    put_integer(0, 7, value.len(), &mut field);
    field.extend_from_slice(value);
    field
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 7541, appendix C.1, and the bounds of h2.
    #[test]
    fn integers() {
        for (value, prefix, bytes) in [
            (10, 5, &[10][..]),
            (1337, 5, &[31, 154, 10]),
            (42, 8, &[42]),
            (126, 7, &[126]),
            (127, 7, &[127, 0]),
            (127 + (1 << 28) - 1, 7, &[127, 255, 255, 255, 127]),
        ] {
            let mut written = Vec::new();
            put_integer(0, prefix, value, &mut written);
            assert_eq!(written, bytes);
            let mut cursor = Cursor::new(bytes);
            assert_eq!((cursor.integer(prefix), cursor.position()), (Ok(value), bytes.len()));
            for length in 0..bytes.len() {
                assert_eq!(Cursor::new(&bytes[..length]).integer(prefix), Err(BadBlock));
            }
        }
        assert_eq!(Cursor::new(&[127, 255, 255, 255, 255, 1]).integer(7), Err(BadBlock));
        assert_eq!(Cursor::new(&[127, 128, 128, 128, 128, 0]).integer(7), Err(BadBlock));
    }

    #[test]
    fn strings() {
        let coded = [0x8C, 0xF1, 0xE3, 0xC2, 0xE5, 0xF2, 0x3A, 0x6B, 0xA0, 0xAB, 0x90, 0xF4, 0xFF];
        let text = Cursor::new(&coded).string().unwrap();
        assert_eq!(text.decode().unwrap(), &b"www.example.com"[..]);
        assert_eq!(text.length(), Ok(15));
        let text = Cursor::new(b"\x03a#b?").string().unwrap();
        assert_eq!(text.decode().unwrap(), &b"a#b"[..]);
        assert!(text.measure().unwrap().has_foreign);
        assert!(Cursor::new(b"\x03ab").string().is_err());
        assert!(Cursor::new(b"").string().is_err());
        assert_eq!(literal(4, b"/a"), b"\x04\x02/a");
        assert_eq!(literal(38, b"/a"), b"\x0F\x17\x02/a");
    }
}
