//! The end of a chunked body (RFC 9112 §7.1).
//!
//! The grammar is that of hyper's decoder, which is as strict as Go's: a line of a size ends with
//! CRLF, and white space may stand only behind the digits. hyper has limits besides, and closes the
//! connection beyond them.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Chunks {
    /// A size comes next.
    Start,
    /// Digits of a size have come, which make this much.
    Size(u64),
    SizeSpace(u64),
    Extension(u64),
    SizeLf(u64),
    /// This much is left of a chunk.
    Data(u64),
    DataCr,
    DataLf,
    /// A trailer line or the last line comes next.
    LineStart,
    Trailer,
    TrailerLf,
    EndLf,
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

impl Chunks {
    /// Reads on. Returns how many bytes belong to the body: all of them if it goes on, and at least
    /// one. Bytes before a malformed one are returned first.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Result<usize, Malformed> {
        let mut at = 0;
        while let (Some(&byte), false) = (bytes.get(at), *self == Self::End) {
            if let Self::Data(left) = *self {
                let here = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len() - at);
                at += here;
                let left = left - here as u64;
                *self = if left == 0 { Self::DataCr } else { Self::Data(left) };
            } else {
                *self = match self.after(byte) {
                    Ok(next) => next,
                    Err(Malformed) if at > 0 => return Ok(at),
                    Err(Malformed) => return Err(Malformed),
                };
                at += 1;
            }
        }
        Ok(at)
    }

    fn after(self, byte: u8) -> Result<Self, Malformed> {
        Ok(match (self, byte) {
            (Self::Start, _) => Self::Size(hex_digit(byte).ok_or(Malformed)?),
            (Self::Size(size), b'\r') => Self::SizeLf(size),
            (Self::Size(size) | Self::SizeSpace(size), b' ' | b'\t') => Self::SizeSpace(size),
            (Self::Size(size) | Self::SizeSpace(size), b';') => Self::Extension(size),
            (Self::SizeSpace(size) | Self::Extension(size), b'\r') => Self::SizeLf(size),
            (Self::Size(size), _) => {
                let digit = hex_digit(byte).ok_or(Malformed)?;
                Self::Size(
                    size.checked_mul(16)
                        .and_then(|shifted| shifted.checked_add(digit))
                        .ok_or(Malformed)?,
                )
            }
            (Self::Extension(_), b'\n') => return Err(Malformed),
            (Self::Extension(size), _) => Self::Extension(size),
            (Self::SizeLf(0), b'\n') => Self::LineStart,
            (Self::SizeLf(size), b'\n') => Self::Data(size),
            (Self::DataCr, b'\r') => Self::DataLf,
            (Self::DataLf, b'\n') => Self::Start,
            (Self::LineStart, b'\r') => Self::EndLf,
            (Self::LineStart, _) => Self::Trailer,
            (Self::Trailer, b'\r') => Self::TrailerLf,
            (Self::Trailer, _) => Self::Trailer,
            (Self::TrailerLf, b'\n') => Self::LineStart,
            (Self::EndLf, b'\n') => Self::End,
            _ => return Err(Malformed),
        })
    }
}

fn hex_digit(byte: u8) -> Option<u64> {
    char::from(byte).to_digit(16).map(u64::from)
}
