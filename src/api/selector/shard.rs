//! Shard selectors (KEP-5866, `docs/semantics.md` §7.4): ranges of the hash of one metadata field.
//!
//! The API server parses them as CEL expressions. This parser accepts only the plain form, and
//! fails on everything else, valid or not: the request is forwarded then, and the API server reads
//! the rest of CEL and writes the errors.

/// A parsed shard selector, which has at least one range.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ShardSelector {
    field: ShardField,
    ranges: Vec<ShardRange>,
}

/// The field whose hash is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ShardField {
    /// `object.metadata.uid`.
    Uid,
    /// `object.metadata.namespace`.
    Namespace,
}

/// A range of hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ShardRange {
    /// Inclusive.
    start: u64,
    /// Exclusive; up to 2^64.
    end: u128,
}

impl ShardSelector {
    /// Parses the text of `shardSelector`; `None` if it is not in the plain form.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > TEXT_BYTES_MAX {
            return None;
        }
        let mut rest = Tokens(text);
        let (field, first) = rest.range()?;
        let mut ranges = vec![first];
        while !rest.is_end() {
            rest.expect("||")?;
            let (next_field, range) = rest.range()?;
            if next_field != field {
                return None;
            }
            ranges.push(range);
        }
        Some(Self { field, ranges })
    }

    /// Returns the field whose hash decides.
    pub fn field(&self) -> ShardField {
        self.field
    }

    /// Whether an object matches whose field has this [`hash`].
    pub fn matches(&self, hash: u64) -> bool {
        self.ranges.iter().any(|range| range.start <= hash && u128::from(hash) < range.end)
    }

    /// Returns the maximum number of comparisons for one object.
    pub fn terms(&self) -> usize {
        self.ranges.len()
    }

    /// Returns its memory in bytes.
    pub fn weight_bytes(&self) -> usize {
        size_of_val(&*self.ranges)
    }
}

/// The form in which the API server returns it in a list's `shardInfo`, whatever the spaces and
/// quotes of the request.
impl std::fmt::Display for ShardSelector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = match self.field {
            ShardField::Uid => "object.metadata.uid",
            ShardField::Namespace => "object.metadata.namespace",
        };
        for (number, ShardRange { start, end }) in self.ranges.iter().enumerate() {
            let or = if number == 0 { "" } else { " || " };
            write!(f, "{or}shardRange({path}, '0x{start:016x}', '0x{end:016x}')")?;
        }
        Ok(())
    }
}

/// Returns the hash of a field's value: FNV-1a of 64 bits (`sharding.HashField`).
pub fn hash(value: &[u8]) -> u64 {
    let offset = 0xcbf2_9ce4_8422_2325;
    value.iter().fold(offset, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The rest of the text. CEL allows white space between any two tokens.
struct Tokens<'a>(&'a str);

impl<'a> Tokens<'a> {
    /// Reads `shardRange(<field>, '<start>', '<end>')`.
    fn range(&mut self) -> Option<(ShardField, ShardRange)> {
        self.expect("shardRange")?;
        self.expect("(")?;
        for token in ["object", ".", "metadata", "."] {
            self.expect(token)?;
        }
        let field = match self.expect("uid") {
            Some(()) => ShardField::Uid,
            None => self.expect("namespace").map(|()| ShardField::Namespace)?,
        };
        self.expect(",")?;
        let start = self.bound()?;
        self.expect(",")?;
        let end = self.bound()?;
        self.expect(")")?;
        // Only an end may be 2^64.
        let start = u64::try_from(start).ok().filter(|start| u128::from(*start) < end)?;
        Some((field, ShardRange { start, end }))
    }

    /// Reads a string of `0x` and sixteen digits, or 2^64.
    fn bound(&mut self) -> Option<u128> {
        self.skip_space();
        let quote = self.0.chars().next().filter(|quote| matches!(quote, '\'' | '"'))?;
        let (literal, rest) = self.0.get(1..)?.split_once(quote)?;
        self.0 = rest;
        let digits = literal.strip_prefix("0x")?;
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let is_whole = digits.len() == DIGITS || literal == HASHES;
        (is_whole && digits.bytes().all(is_digit)).then_some(())?;
        u128::from_str_radix(digits, 16).ok()
    }

    /// Reads a token. One that goes on as a longer word is not followed by what must follow it.
    fn expect(&mut self, token: &str) -> Option<()> {
        self.skip_space();
        self.0 = self.0.strip_prefix(token)?;
        Some(())
    }

    fn is_end(&mut self) -> bool {
        self.skip_space();
        self.0.is_empty()
    }

    fn skip_space(&mut self) {
        self.0 = self.0.trim_start_matches([' ', '\t', '\n', '\r', '\u{c}']);
    }
}

/// The digits of a hash.
const DIGITS: usize = 16;
/// The number of hashes, 2^64.
const HASHES: &str = "0x10000000000000000";
/// The longest text that is parsed: some 200 ranges. CEL has a limit of its own, which is larger.
const TEXT_BYTES_MAX: usize = 16 << 10;

#[cfg(test)]
mod tests;
