//! Checks and splits of texts that are so short that a loop over their bytes costs least.

/// A set of bytes as a table: a check takes one load where comparisons would take many.
pub struct ByteSet([bool; 256]);

impl ByteSet {
    /// Creates the set of `bytes`, and of the ASCII letters and digits.
    #[expect(clippy::indexing_slicing, reason = "evaluated by the compiler, within the table")]
    pub const fn alphanumeric_and(mut bytes: &[u8]) -> Self {
        let (mut table, mut byte) = ([false; 256], 0);
        while byte < table.len() {
            table[byte] = (byte as u8).is_ascii_alphanumeric();
            byte += 1;
        }
        while let [byte, rest @ ..] = bytes {
            table[*byte as usize] = true;
            bytes = rest;
        }
        Self(table)
    }

    /// Whether it has `byte`.
    #[expect(clippy::indexing_slicing, reason = "every byte is within the table")]
    pub const fn contains(&self, byte: u8) -> bool {
        self.0[byte as usize]
    }
}

/// Splits a text at the first `separator`, an ASCII character.
pub fn split_once(text: &str, separator: u8) -> Option<(&str, &str)> {
    let at = text.bytes().position(|byte| byte == separator)?;
    Some((text.get(..at)?, text.get(at + 1..)?))
}
