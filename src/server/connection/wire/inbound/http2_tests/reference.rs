//! The meaning of the bytes of a connection: HPACK with whole values, and the rules of Go's server
//! (`net/http/internal/http2`), written as plainly as possible.

use std::collections::HashMap;

use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::super::super::hpack::Cursor;
use super::super::super::hpack::huffman::BadBlock;
use super::super::super::hpack::table::NAMES;
use super::super::super::{header_block, target};
use super::super::PREFACE;

/// The name and the value of a header field.
type Field = (Vec<u8>, Vec<u8>);

/// The meaning of a header block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    Request {
        method: Vec<u8>,
        /// Percent-encoded.
        path: Vec<u8>,
        authority: Option<String>,
        headers: HeaderMap,
    },
    /// An error of the stream.
    Reset,
}

/// Returns the meaning of the first header block of each stream, and whether all bytes could be
/// read.
pub(super) fn meanings(bytes: &[u8]) -> (HashMap<u32, Meaning>, bool) {
    let mut meanings = HashMap::new();
    let mut reader = Reader { table: Vec::new(), size_max: 4096 };
    let whole = reader.connection(&bytes[PREFACE.len()..], &mut meanings);
    (meanings, whole.is_ok())
}

struct Reader {
    /// The newest entry is the last one.
    table: Vec<(Vec<u8>, Vec<u8>)>,
    size_max: usize,
}

impl Reader {
    fn connection(
        &mut self,
        mut bytes: &[u8],
        meanings: &mut HashMap<u32, Meaning>,
    ) -> Result<(), BadBlock> {
        // The stream and the bytes of a block, and whether its stream is to depend on itself.
        let mut block: Option<(u32, Vec<u8>, bool)> = None;
        while let Some((kind, flags, stream, payload, rest)) = frame(bytes) {
            bytes = rest;
            block = match (kind, block.take()) {
                (1, None) => {
                    let (part, depends_on_itself) = strip(payload, flags, stream)?;
                    Some((stream, part.to_vec(), depends_on_itself))
                }
                (9, Some((continued_stream, mut whole, depends_on_itself)))
                    if continued_stream == stream =>
                {
                    whole.extend(payload);
                    Some((stream, whole, depends_on_itself))
                }
                (1 | 5 | 9, _) | (_, Some(_)) => return Err(BadBlock),
                (_, None) => continue,
            };
            if flags & 4 != 0
                && let Some((stream, whole, depends_on_itself)) = block.take()
            {
                let fields = self.block(&whole)?;
                let meaning = match meaning(fields) {
                    Some(meaning) if !depends_on_itself => meaning,
                    _ => Meaning::Reset,
                };
                meanings.entry(stream).or_insert(meaning);
            }
        }
        if bytes.is_empty() && block.is_none() { Ok(()) } else { Err(BadBlock) }
    }

    fn block(&mut self, block: &[u8]) -> Result<Vec<Field>, BadBlock> {
        let mut cursor = Cursor::new(block);
        let mut fields = Vec::new();
        while let Some(first) = cursor.peek() {
            if first & 0x80 != 0 {
                fields.push(self.entry(cursor.integer(7)?)?);
                continue;
            }
            if first & 0xE0 == 0x20 {
                self.size_max = cursor.integer(5)?;
                if self.size_max > 4096 || !fields.is_empty() {
                    return Err(BadBlock);
                }
                self.evict(0);
                continue;
            }
            let inserts = first & 0x40 != 0;
            let name = match cursor.integer(if inserts { 6 } else { 4 })? {
                0 => cursor.string()?.decode()?.into_owned(),
                index => self.entry(index)?.0,
            };
            let value = cursor.string()?.decode()?.into_owned();
            if inserts {
                let size = name.len() + value.len() + 32;
                self.evict(size);
                if size <= self.size_max {
                    self.table.push((name.clone(), value.clone()));
                }
            }
            fields.push((name, value));
        }
        Ok(fields)
    }

    fn entry(&self, index: usize) -> Result<(Vec<u8>, Vec<u8>), BadBlock> {
        let value: &[u8] = match index {
            2 => b"GET",
            3 => b"POST",
            4 => b"/",
            5 => b"/index.html",
            6 => b"http",
            7 => b"https",
            8 => b"200",
            16 => b"gzip, deflate",
            _ => b"",
        };
        if let Some(name) = index.checked_sub(1).and_then(|place| NAMES.get(place)) {
            return Ok((name.as_bytes().to_vec(), value.to_vec()));
        }
        let back = index.checked_sub(62).ok_or(BadBlock)?;
        self.table.iter().rev().nth(back).cloned().ok_or(BadBlock)
    }

    fn evict(&mut self, room: usize) {
        let size = |(name, value): &(Vec<u8>, Vec<u8>)| name.len() + value.len() + 32;
        while !self.table.is_empty()
            && self.table.iter().map(size).sum::<usize>() + room > self.size_max
        {
            self.table.remove(0);
        }
    }
}

/// Splits off the first frame: its kind, its flags, its stream, its payload, what is behind it.
#[expect(clippy::type_complexity, reason = "the parts of a frame, for a test")]
fn frame(bytes: &[u8]) -> Option<(u8, u8, u32, &[u8], &[u8])> {
    let ([high, middle, low, kind, flags, stream @ ..], rest) = bytes.split_first_chunk::<9>()?;
    let length = u32::from_be_bytes([0, *high, *middle, *low]) as usize;
    let (payload, rest) = rest.split_at_checked(length)?;
    Some((*kind, *flags, u32::from_be_bytes(*stream) & 0x7FFF_FFFF, payload, rest))
}

fn strip(payload: &[u8], flags: u8, stream: u32) -> Result<(&[u8], bool), BadBlock> {
    let (mut block, mut padding, mut depends_on_itself) = (payload, 0, false);
    if flags & 8 != 0 {
        padding = usize::from(*block.first().ok_or(BadBlock)?);
        block = &block[1..];
    }
    if flags & 0x20 != 0 {
        let dependency = block.first_chunk::<4>().filter(|_| block.len() >= 5).ok_or(BadBlock)?;
        depends_on_itself = u32::from_be_bytes(*dependency) & 0x7FFF_FFFF == stream;
        block = &block[5..];
    }
    let length = block.len().checked_sub(padding).ok_or(BadBlock)?;
    Ok((&block[..length], depends_on_itself))
}

/// Returns the meaning of a request that Go's server would give to its handler.
fn meaning(fields: Vec<(Vec<u8>, Vec<u8>)>) -> Option<Meaning> {
    let mut pseudo: HashMap<Vec<u8>, Vec<u8>> = HashMap::new();
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        if name.starts_with(b":") {
            let is_known = matches!(&*name, b":method" | b":path" | b":scheme" | b":authority");
            let is_valid = !value.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t');
            if !is_known || !is_valid || !headers.is_empty() {
                return None;
            }
            if pseudo.insert(name, value).is_some() {
                return None;
            }
        } else {
            let name = HeaderName::from_lowercase(&name).ok()?;
            headers.append(name, HeaderValue::from_bytes(&value).ok()?);
        }
    }
    let path = pseudo.remove(&b":path"[..])?;
    let scheme = pseudo.remove(&b":scheme"[..])?;
    let method = pseudo.remove(&b":method"[..])?;
    let is_path = path.starts_with(b"/") || path == b"*";
    if !is_path || path.iter().any(u8::is_ascii_control) || !matches!(&*scheme, b"http" | b"https")
    {
        return None;
    }
    let authority =
        match pseudo.remove(&b":authority"[..]).filter(|authority| !authority.is_empty()) {
            Some(authority) if authority.contains(&b'@') => return None,
            Some(authority) => match Authority::try_from(&*authority) {
                Ok(authority) => Some(authority.to_string()),
                Err(_) => Some("invalid".to_owned()),
            },
            None => None,
        };
    let mut path = target::escape(&path).ok()?.unwrap_or(path);
    if path.len() > 65_534 {
        path = header_block::TOO_LONG_PATH.as_bytes().to_vec();
    }
    Some(Meaning::Request { method, path, authority, headers })
}
