//! Header blocks of HTTP/2 (RFC 9113 §4.3) in a form that h2 reads as Go's server reads the
//! client's.
//!
//! h2 makes a `http::Uri` of a request. That cuts `:path` at `#`, so that a DELETE of one object
//! would become one of all, and refuses bytes that Go takes. So each block is read here first. A
//! block that has nothing of the kind passes as it is. Otherwise only the fields in question are
//! rewritten:
//!
//! * A `:path` with such a byte is escaped ([`target`]). One that Go refuses has the stream reset,
//!   as by Go. One that `http::Uri` has no room for becomes [`TOO_LONG_PATH`].
//! * An `:authority` that h2 would refuse becomes a name that no policy allows; Go gives it to its
//!   handlers, which do not read it. An empty one is left out, as Go ignores it.
//! * A `:scheme` but `http` and `https` has the stream reset, as by Go.
//!
//! A rewritten field is not in h2's dynamic table; [`table`](super::hpack::table) says why all
//! other fields still are.

use http::uri::Authority;

use super::hpack::huffman::{BadBlock, Measure};
use super::hpack::table::{FieldKind, FieldName, Place, Table};
use super::hpack::{Cursor, Text, literal, put_integer};
use super::target;

/// The path that Weir reads in place of one that it has no room for, and answers with 414
/// ([`crate::server::request::framing`]). A client that sends it gets the same: it is no valid
/// path, so that it has no other meaning.
pub(crate) const TOO_LONG_PATH: &str = "/%too-long";

/// A field that has h2 reset the stream with PROTOCOL_ERROR, wherever it stands: `:status: 200`.
pub(super) const STREAM_ERROR: u8 = 0x88;

#[derive(Debug)]
pub(super) struct HeaderBlocks {
    table: Table,
}

impl HeaderBlocks {
    pub(super) fn new() -> Self {
        Self { table: Table::new() }
    }

    /// Reads a block. Returns it as h2 must have it, unless that is how it is.
    pub(super) fn read(&mut self, block: &[u8]) -> Result<Option<Vec<u8>>, BadBlock> {
        let mut cursor = Cursor::new(block);
        let mut edit = Edit { block, copied: 0, edited: None, kinds: 0 };
        let mut check = FieldCheck::default();
        let mut may_resize = true;
        while let Some(first) = cursor.peek() {
            let kind = match first {
                FIXED_FIRST..=FIXED_LAST => {
                    cursor.skip();
                    FieldKind::fixed(usize::from(first & 0x7F))
                }
                0x80.. => self.indexed(&mut cursor, &mut edit)?,
                0x40.. => self.literal(&mut cursor, &mut edit, true)?,
                0x20.. => {
                    // Neither Go nor h2 takes it elsewhere.
                    if !may_resize {
                        return Err(BadBlock);
                    }
                    self.table.resize(cursor.integer(5)?)?;
                    continue;
                }
                _ => self.literal(&mut cursor, &mut edit, false)?,
            };
            may_resize = false;
            check.push(kind);
        }
        if check.is_bad || check.lacks_path() {
            edit.replace(block.len(), block.len(), &[STREAM_ERROR]);
        }
        Ok(edit.finish())
    }

    /// Reads a field that is an entry of a table.
    fn indexed(&self, cursor: &mut Cursor<'_>, edit: &mut Edit<'_>) -> Result<FieldKind, BadBlock> {
        let start = cursor.position();
        let index = cursor.integer(7)?;
        let kind = self.table.name(index)?.kind;
        match self.table.place(index) {
            Place::Same => {}
            Place::Moved(index) => {
                let mut moved = Vec::new();
                put_integer(0x80, 7, index, &mut moved);
                edit.replace(start, cursor.position(), &moved);
            }
            Place::Absent(field) => edit.stand_in(start, cursor.position(), kind, field),
        }
        Ok(kind)
    }

    /// Reads a field with a value of its own.
    fn literal(
        &mut self,
        cursor: &mut Cursor<'_>,
        edit: &mut Edit<'_>,
        inserts: bool,
    ) -> Result<FieldKind, BadBlock> {
        let start = cursor.position();
        let first = cursor.peek().ok_or(BadBlock)?;
        let (prefix, mask) = if inserts { (6, 0xC0) } else { (4, 0xF0) };
        let index = cursor.integer(prefix)?;
        let mut name = match index {
            0 => FieldName::read(cursor.string()?)?,
            _ => self.table.name(index)?,
        };
        let name_end = cursor.position();
        let value = cursor.string()?;
        let (length, written) = match name.kind {
            FieldKind::Path => path(value)?,
            FieldKind::Authority => authority(value)?,
            FieldKind::Scheme => scheme(value)?,
            FieldKind::Te => {
                let value = value.decode()?;
                if *value != b"trailers"[..] {
                    name.kind = FieldKind::Connection;
                }
                (value.len(), None)
            }
            _ if inserts => (value.length()?, None),
            _ => (0, None),
        };
        if let Some(field) = &written {
            edit.stand_in(start, cursor.position(), name.kind, field);
        } else {
            let index = match self.table.place(index) {
                Place::Same => None,
                Place::Moved(index) => Some(index),
                Place::Absent(_) => fixed_index(name.kind),
            };
            if let Some(index) = index {
                let mut moved = Vec::new();
                put_integer(first & mask, prefix, index, &mut moved);
                edit.replace(start, name_end, &moved);
            }
        }
        if inserts {
            self.table.insert(name, length, written.map(Vec::into_boxed_slice));
        }
        Ok(name.kind)
    }
}

/// The length of a value, and the field that h2 gets unless it gets the client's.
type Written = (usize, Option<Vec<u8>>);

fn path(value: Text<'_>) -> Result<Written, BadBlock> {
    let Measure { length, has_foreign } = value.measure()?;
    if value.begins_with_slash() && !has_foreign && length <= PATH_BYTES_MAX {
        return Ok((length, None));
    }
    let path = value.decode()?;
    // `http::Uri` would read `?a` as `/?a`.
    let is_path = path.starts_with(b"/") || &*path == b"*";
    let (true, Ok(escaped)) = (is_path, target::escape(&path)) else {
        return Ok((length, Some(vec![STREAM_ERROR])));
    };
    let escaped = escaped.as_deref().unwrap_or(&path);
    let fits = escaped.len() <= PATH_BYTES_MAX;
    let field = literal(PATH_INDEX, if fits { escaped } else { TOO_LONG_PATH.as_bytes() });
    Ok((length, Some(field)))
}

fn authority(value: Text<'_>) -> Result<Written, BadBlock> {
    let name = value.decode()?;
    let is_bad = |byte: &u8| *byte == b'@' || (byte.is_ascii_control() && *byte != b'\t');
    let field = match Authority::try_from(&*name) {
        _ if name.is_empty() => Some(Vec::new()),
        _ if name.iter().any(is_bad) => Some(vec![STREAM_ERROR]),
        Ok(_) => None,
        Err(_) => Some(literal(AUTHORITY_INDEX, INVALID_HOST)),
    };
    Ok((name.len(), field))
}

fn scheme(value: Text<'_>) -> Result<Written, BadBlock> {
    let scheme = value.decode()?;
    let is_known = matches!(&*scheme, b"http" | b"https");
    Ok((scheme.len(), (!is_known).then(|| vec![STREAM_ERROR])))
}

/// Returns the entry of the static table that has the name of a field that is rewritten.
fn fixed_index(kind: FieldKind) -> Option<usize> {
    match kind {
        FieldKind::Path => Some(PATH_INDEX),
        FieldKind::Authority => Some(AUTHORITY_INDEX),
        FieldKind::Scheme => Some(SCHEME_INDEX),
        _ => None,
    }
}

#[derive(Debug)]
struct Edit<'a> {
    block: &'a [u8],
    /// How many bytes of `block` are in `edited`, or were replaced there.
    copied: usize,
    edited: Option<Vec<u8>>,
    /// The kinds of the fields that were rewritten.
    kinds: u8,
}

impl Edit<'_> {
    fn replace(&mut self, start: usize, end: usize, with: &[u8]) {
        let edited = self.edited.get_or_insert_default();
        edited.extend_from_slice(self.block.get(self.copied..start).unwrap_or_default());
        edited.extend_from_slice(with);
        self.copied = end;
    }

    /// Replaces a pseudo-header field. One that occurs twice is an error of the stream anyway, so
    /// that no block becomes much longer than it is.
    fn stand_in(&mut self, start: usize, end: usize, kind: FieldKind, field: &[u8]) {
        let bit = 1 << kind as u8;
        let field = if self.kinds & bit == 0 { field } else { &[STREAM_ERROR] };
        self.kinds |= bit;
        self.replace(start, end, field);
    }

    fn finish(self) -> Option<Vec<u8>> {
        let mut edited = self.edited?;
        edited.extend_from_slice(self.block.get(self.copied..).unwrap_or_default());
        Some(edited)
    }
}

/// Finds what is an error of the stream: a pseudo-header field that is doubled or comes behind
/// others, a field of the connection, and a request without a path. h2 finds them as well, but
/// forgets about fields in a frame that does not end with one: it would use the first of two paths,
/// and serve what Go refuses. Without scheme and authority it takes a missing path for `/`.
#[derive(Debug, Default)]
struct FieldCheck {
    kinds: u16,
    is_bad: bool,
}

impl FieldCheck {
    fn push(&mut self, kind: FieldKind) {
        const REGULAR: u16 = 1 << FieldKind::Regular as u16;
        let bit = 1 << kind as u16;
        let bits = match kind {
            FieldKind::Te => bit | REGULAR,
            _ => bit,
        };
        // Go takes `te` once.
        self.is_bad |=
            kind == FieldKind::Connection || kind == FieldKind::Te && self.kinds & bit != 0;
        self.is_bad |= bits & REGULAR == 0 && self.kinds & (bit | REGULAR) != 0;
        self.kinds |= bits;
    }

    /// Whether this is a request without `:path`, but not a CONNECT, which has no scheme.
    fn lacks_path(&self) -> bool {
        let has = |kind: FieldKind| self.kinds & (1 << kind as u16) != 0;
        has(FieldKind::Scheme) && !has(FieldKind::Path)
    }
}

/// The bytes that are whole fields: entries of the static table.
const FIXED_FIRST: u8 = 0x81;
const FIXED_LAST: u8 = 0x80 + 61;
/// The longest path and query that a `http::Uri` holds.
const PATH_BYTES_MAX: usize = 65_534;
/// A name that is nobody's (RFC 6761).
const INVALID_HOST: &[u8] = b"invalid";
/// Entries of the static table.
const AUTHORITY_INDEX: usize = 1;
const PATH_INDEX: usize = 4;
const SCHEME_INDEX: usize = 6;

#[cfg(test)]
mod tests;
