//! The Huffman code of HPACK (RFC 7541 §5.2 and appendix B).
//!
//! A path is measured in each request whose client does not index it, so [`measure`] looks up
//! twelve bits at once, which are mostly two symbols. Everything else is rare, and is decoded
//! symbol by symbol. The code is canonical: codes of one length are consecutive, in the order of
//! their symbols. So the lengths alone give all codes.

use super::super::target::is_foreign;

/// A header block that is not HPACK, or that h2 does not accept. Nothing behind it on its
/// connection can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a header block cannot be read")]
pub(in super::super) struct BadBlock;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Measure {
    pub(in super::super) length: usize,
    /// Whether any of them is foreign to a target.
    pub(in super::super) has_foreign: bool,
}

pub(super) fn measure(coded: &[u8]) -> Result<Measure, BadBlock> {
    let mut bits = Bits::new(coded);
    let (mut length, mut flags) = (0, 0);
    loop {
        bits.refill();
        if bits.count < WINDOW_BITS {
            break;
        }
        while bits.count >= WINDOW_BITS {
            let entry = WINDOWS.get(bits.window()).copied().unwrap_or_default();
            if entry == 0 {
                // A code may be longer than what is left of the bits.
                bits.refill();
                let symbol = bits.symbol()?;
                length += 1;
                flags |= u16::from(is_foreign(symbol)) << FOREIGN;
                break;
            }
            bits.drop(u32::from(entry) & 0xF);
            length += usize::from(entry >> SYMBOLS & 3);
            flags |= entry;
        }
    }
    while !bits.is_padding() {
        flags |= u16::from(is_foreign(bits.symbol()?)) << FOREIGN;
        length += 1;
    }
    Ok(Measure { length, has_foreign: flags >> FOREIGN != 0 })
}

pub(super) fn decode(coded: &[u8]) -> Result<Vec<u8>, BadBlock> {
    let mut bits = Bits::new(coded);
    let mut decoded = Vec::with_capacity(coded.len() * 8 / SHORTEST as usize);
    loop {
        bits.refill();
        if bits.is_padding() {
            return Ok(decoded);
        }
        decoded.push(bits.symbol()?);
    }
}

/// The bits of a string that are not decoded yet.
struct Bits<'a> {
    /// The next bits, the first one highest. Behind `count` bits are zeros, or the bits of `rest`.
    next: u64,
    count: u32,
    rest: &'a [u8],
}

impl<'a> Bits<'a> {
    fn new(coded: &'a [u8]) -> Self {
        Self { next: 0, count: 0, rest: coded }
    }

    /// Has at least 56 bits ready, or all that are left.
    #[inline]
    fn refill(&mut self) {
        if let Some(word) = self.rest.first_chunk() {
            self.next |= u64::from_be_bytes(*word) >> self.count;
            let whole = (63 - self.count) / 8;
            self.rest = self.rest.get(whole as usize..).unwrap_or_default();
            self.count += 8 * whole;
            return;
        }
        while self.count <= 56
            && let Some((byte, rest)) = self.rest.split_first()
        {
            self.next |= u64::from(*byte) << (56 - self.count);
            self.count += 8;
            self.rest = rest;
        }
    }

    /// Returns the index of the next bits in [`WINDOWS`].
    #[inline]
    fn window(&self) -> usize {
        (self.next >> (64 - WINDOW_BITS)) as usize
    }

    #[inline]
    fn drop(&mut self, bits: u32) {
        self.next <<= bits;
        self.count -= bits;
    }

    /// Whether the end is reached, but for less than a byte of ones.
    fn is_padding(&self) -> bool {
        self.count < 8 && self.rest.is_empty() && self.next == !(u64::MAX >> self.count)
    }

    /// Decodes one symbol; for all but the last ones, after [`refill`](Self::refill).
    fn symbol(&mut self) -> Result<u8, BadBlock> {
        for length in SHORTEST..=LONGEST.min(self.count) {
            let code = (self.next >> (64 - length)) as u32;
            let codes = CODES.get(length as usize).ok_or(BadBlock)?;
            let offset = code.wrapping_sub(codes.first);
            if offset < codes.count {
                let symbol = SORTED.get((codes.sorted + offset) as usize).ok_or(BadBlock)?;
                self.drop(length);
                return Ok(*symbol);
            }
        }
        Err(BadBlock)
    }
}

/// The codes of one length.
#[derive(Clone, Copy)]
struct Codes {
    first: u32,
    count: u32,
    /// The start of their symbols in [`SORTED`].
    sorted: u32,
}

#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler, within the tables")]
const fn codes() -> [Codes; LONGEST as usize + 1] {
    let mut codes = [Codes { first: 0, count: 0, sorted: 0 }; LONGEST as usize + 1];
    let mut symbol = 0;
    while symbol < 256 {
        codes[LENGTHS[symbol] as usize].count += 1;
        symbol += 1;
    }
    let mut length = 1;
    while length < codes.len() {
        let shorter = codes[length - 1];
        codes[length].first = (shorter.first + shorter.count) << 1;
        codes[length].sorted = shorter.sorted + shorter.count;
        length += 1;
    }
    codes
}

/// Returns all symbols in the order of their codes.
#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler, within the tables")]
const fn sorted() -> [u8; 256] {
    let mut sorted = [0; 256];
    let mut next = 0;
    let mut length = SHORTEST;
    while length <= LONGEST {
        let mut symbol = 0;
        while symbol < 256 {
            if LENGTHS[symbol] as u32 == length {
                sorted[next] = symbol as u8;
                next += 1;
            }
            symbol += 1;
        }
        length += 1;
    }
    sorted
}

/// Returns the symbol with which some bits begin, of which `count` are given, and the length of its
/// code.
#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler, within the tables")]
const fn leading(bits: u32, count: u32) -> Option<(u8, u32)> {
    let mut length = SHORTEST;
    while length <= count {
        let codes = CODES[length as usize];
        let code = bits >> (count - length);
        if code >= codes.first && code - codes.first < codes.count {
            return Some((SORTED[(codes.sorted + code - codes.first) as usize], length));
        }
        length += 1;
    }
    None
}

/// Returns for each value of the next bits: how many of them one or two symbols take, the number of
/// these, and whether any is foreign; 0 if the first code is longer.
#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler, within the tables")]
const fn windows() -> [u16; 1 << WINDOW_BITS] {
    let mut windows = [0; 1 << WINDOW_BITS];
    let mut bits = 0;
    while bits < windows.len() {
        if let Some((symbol, used)) = leading(bits as u32, WINDOW_BITS) {
            let left = WINDOW_BITS - used;
            let behind = bits as u32 & ((1 << left) - 1);
            let (mut used, mut symbols, mut foreign) = (used, 1, is_foreign(symbol));
            if let Some((second, more)) = leading(behind, left) {
                (used, symbols, foreign) = (used + more, 2, foreign | is_foreign(second));
            }
            windows[bits] = used as u16 | symbols << SYMBOLS | (foreign as u16) << FOREIGN;
        }
        bits += 1;
    }
    windows
}

static CODES: [Codes; LONGEST as usize + 1] = codes();
static SORTED: [u8; 256] = sorted();
static WINDOWS: [u16; 1 << WINDOW_BITS] = windows();

const WINDOW_BITS: u32 = 12;
/// The bits of an entry of [`WINDOWS`] from which the number of symbols is.
const SYMBOLS: u32 = 4;
/// The highest bit of an entry.
const FOREIGN: u32 = 15;
const SHORTEST: u32 = 5;
const LONGEST: u32 = 30;

/// The lengths of the codes, by symbol. The end of a string has a code, too, which must not occur;
/// as the last of the longest ones it is in no table here.
#[rustfmt::skip]
const LENGTHS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5,
    5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6,
    6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22,
    23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22,
    21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20,
    22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19,
    21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22,
    22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
];

#[cfg(test)]
pub(in super::super) fn encode(text: &[u8]) -> Vec<u8> {
    let mut bits = String::new();
    for symbol in text {
        let length = LENGTHS[usize::from(*symbol)] as usize;
        let place = SORTED.iter().position(|sorted| sorted == symbol).unwrap() as u32;
        let codes = CODES[length];
        bits.push_str(&format!("{:0length$b}", codes.first + place - codes.sorted));
    }
    while !bits.len().is_multiple_of(8) {
        bits.push('1');
    }
    let bytes = bits.as_bytes().chunks(8).map(|byte| std::str::from_utf8(byte).unwrap());
    bytes.map(|byte| u8::from_str_radix(byte, 2).unwrap()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Some rows of appendix B, among them the last of each length.
    #[test]
    fn the_lengths_give_the_codes_of_the_rfc() {
        for (symbol, length, code) in [
            (b'0', 5, 0x0),
            (b't', 5, 0x9),
            (b' ', 6, 0x14),
            (b'u', 6, 0x2D),
            (b'z', 7, 0x7B),
            (b'&', 8, 0xF8),
            (b'Z', 8, 0xFD),
            (b'!', 10, 0x3F8),
            (b'?', 10, 0x3FC),
            (b'|', 11, 0x7FC),
            (b'#', 12, 0xFFA),
            (b'>', 12, 0xFFB),
            (0, 13, 0x1FF8),
            (b'^', 14, 0x3FFC),
            (b'<', 15, 0x7FFC),
            (b'\\', 19, 0x7FFF0),
            (0xC3, 19, 0x7FFF1),
            (0x80, 20, 0xFFFE6),
            (0x16, 30, 0x3FFF_FFFE),
        ] {
            let codes = CODES[length];
            let place = SORTED.iter().position(|sorted| *sorted == symbol).unwrap() as u32;
            assert_eq!(codes.first + place - codes.sorted, code, "{symbol}");
            assert_eq!(u32::from(LENGTHS[usize::from(symbol)]), length as u32);
        }
    }

    #[test]
    fn the_end_of_a_string_is_less_than_a_byte_of_ones() {
        assert_eq!(decode(&[]), Ok(Vec::new()));
        assert_eq!(decode(&[0b0000_0111]), Ok(b"0".to_vec()));
        for bad in [
            &[0xFF][..],
            &[0b0000_0000],
            &[0b0000_0110],
            &[0b0000_0111, 0xFF],
            &[0xFF, 0xFF, 0xFF, 0xFF],
            &[0xFF, 0xFF, 0xFF, 0xFC],
            &[0xFF; 40],
        ] {
            assert_eq!(decode(bad), Err(BadBlock), "{bad:?}");
            assert_eq!(measure(bad), Err(BadBlock), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn texts_are_decoded_and_measured(
            text in proptest::collection::vec(
                prop_oneof![4 => b'!'..=b'~', 1 => any::<u8>()],
                0..90,
            )
        ) {
            let coded = encode(&text);
            prop_assert_eq!(decode(&coded), Ok(text.clone()));
            let has_foreign = text.iter().any(|byte| is_foreign(*byte));
            prop_assert_eq!(measure(&coded), Ok(Measure { length: text.len(), has_foreign }));
        }

        /// A decoded string has no other code.
        #[test]
        fn bytes_are_decoded_and_measured_alike(
            coded in proptest::collection::vec(prop_oneof![any::<u8>(), Just(0xFF)], 0..40)
        ) {
            let decoded = decode(&coded);
            let measured = measure(&coded);
            prop_assert_eq!(decoded.is_ok(), measured.is_ok());
            if let (Ok(decoded), Ok(measured)) = (decoded, measured) {
                prop_assert_eq!(encode(&decoded), coded);
                prop_assert_eq!(decoded.len(), measured.length);
                let has_foreign = decoded.iter().any(|byte| is_foreign(*byte));
                prop_assert_eq!(has_foreign, measured.has_foreign);
            }
        }
    }
}
