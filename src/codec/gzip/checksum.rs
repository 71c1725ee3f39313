//! The CRC-32 and the length of bytes that are joined from parts with known checksums (RFC 1952
//! §8).
//!
//! Appending n bytes multiplies the CRC of the bytes before them by x^(8n), modulo the polynomial
//! of the CRC. The power is computed once for each part and kept with it, so that joining two parts
//! takes one multiplication, some tens of nanoseconds, for any length. flate2's `Crc::combine`
//! computes the power again for each join (`docs/decisions/response-bodies.md`).

use flate2::Crc;

/// The checksum of a run of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Checksum {
    crc: u32,
    /// x^(8n) for its n bytes.
    power: u32,
    /// Modulo 2^32, as in a gzip trailer.
    length: u32,
}

impl Checksum {
    pub(super) fn new(bytes: &[u8]) -> Self {
        let mut crc = Crc::new();
        crc.update(bytes);
        Self { crc: crc.sum(), power: power(bytes.len()), length: bytes.len() as u32 }
    }

    /// Returns the checksum of these bytes followed by those of `next`.
    pub(super) fn append(self, next: Self) -> Self {
        Self {
            crc: multiply(self.crc, next.power) ^ next.crc,
            power: multiply(self.power, next.power),
            length: self.length.wrapping_add(next.length),
        }
    }

    /// Returns the trailer of a gzip member.
    pub(super) fn trailer(self) -> [u8; 8] {
        let [a, b, c, d] = self.crc.to_le_bytes();
        let [e, f, g, h] = self.length.to_le_bytes();
        [a, b, c, d, e, f, g, h]
    }
}

/// Returns x^(8n) for n `bytes`, by repeated squaring.
fn power(mut bytes: usize) -> u32 {
    let (mut power, mut square) = (ONE, X8);
    while bytes > 0 {
        if bytes & 1 == 1 {
            power = multiply(power, square);
        }
        square = multiply(square, square);
        bytes >>= 1;
    }
    power
}

/// Multiplies two polynomials over GF(2), modulo that of the CRC. The highest bit is the
/// coefficient of x^0.
fn multiply(one: u32, mut other: u32) -> u32 {
    let mut product = 0;
    for bit in (0..32).rev() {
        if one >> bit & 1 == 1 {
            product ^= other;
        }
        let carry = other & 1;
        other = (other >> 1) ^ (carry * POLYNOMIAL);
    }
    product
}

/// x^0 and x^8.
const ONE: u32 = 1 << 31;
const X8: u32 = 1 << 23;
/// The polynomial of RFC 1952, with its bits reversed.
const POLYNOMIAL: u32 = 0xedb8_8320;

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn joined_parts_have_the_checksum_of_the_whole(
            parts in vec(vec(any::<u8>(), 0..300), 0..6),
        ) {
            let whole = Checksum::new(&parts.concat());
            let joined =
                parts.iter().fold(Checksum::new(b""), |sum, part| sum.append(Checksum::new(part)));
            prop_assert_eq!(joined, whole);
        }
    }

    #[test]
    fn long_parts_are_joined_too() {
        let zeros = vec![0; 3 << 20];
        let whole = [&b"123456789"[..], &zeros, b"x"].concat();
        let parts = [&b"123456789"[..], &zeros, b"x"].map(Checksum::new);
        assert_eq!(parts[0].crc, 0xcbf4_3926, "the check value of this CRC");
        assert_eq!(parts.into_iter().reduce(Checksum::append), Some(Checksum::new(&whole)));
    }
}
