//! The dynamic table of HPACK (RFC 7541 §2.3 and §4) as a client sees it, without its values, and
//! how h2's differs from it.
//!
//! A field that is rewritten for h2 is not inserted into h2's table: it is *absent* there. All
//! other insertions, and all changes of the size, are in both. So h2's table, whose entries take
//! never more room, has every other entry of the client's in the same order; what it has besides is
//! older than all of them. An index of the client therefore becomes h2's by subtracting the number
//! of absent entries that are newer. While none is absent, the two are equal.

use std::collections::VecDeque;

use super::Text;
use super::huffman::BadBlock;

/// The kinds of fields that h2 distinguishes. The first six are pseudo-header fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum FieldKind {
    Authority,
    Method,
    Path,
    Scheme,
    Status,
    Protocol,
    Regular,
    /// `te`, which may only be `trailers`.
    Te,
    /// A field of the connection, which HTTP/2 forbids (RFC 9113 §8.2.2).
    Connection,
}

impl FieldKind {
    /// Returns that of an entry of the static table.
    #[inline]
    pub(in super::super) fn fixed(index: usize) -> Self {
        match index {
            1 => Self::Authority,
            2 | 3 => Self::Method,
            4 | 5 => Self::Path,
            6 | 7 => Self::Scheme,
            8..=14 => Self::Status,
            TRANSFER_ENCODING_INDEX => Self::Connection,
            _ => Self::Regular,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct FieldName {
    pub(in super::super) kind: FieldKind,
    length: usize,
}

impl FieldName {
    /// Reads a name that is a literal.
    pub(in super::super) fn read(text: Text<'_>) -> Result<Self, BadBlock> {
        let length = text.length()?;
        if length == 0 {
            return Err(BadBlock);
        }
        let kind = if length > LONGEST_NAME {
            FieldKind::Regular
        } else {
            match &*text.decode()? {
                b":authority" => FieldKind::Authority,
                b":method" => FieldKind::Method,
                b":path" => FieldKind::Path,
                b":scheme" => FieldKind::Scheme,
                b":status" => FieldKind::Status,
                b":protocol" => FieldKind::Protocol,
                b"te" => FieldKind::Te,
                b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding"
                | b"upgrade" => FieldKind::Connection,
                _ => FieldKind::Regular,
            }
        };
        Ok(Self { kind, length })
    }

    /// Returns the name of an entry of the static table.
    fn fixed(index: usize) -> Option<Self> {
        let length = NAMES.get(index.checked_sub(1)?)?.len();
        Some(Self { kind: FieldKind::fixed(index), length })
    }
}

/// The place of an entry of the client's tables in those of h2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Place<'a> {
    /// At the same index.
    Same,
    /// At this index.
    Moved(usize),
    /// Nowhere; these bytes are the field.
    Absent(&'a [u8]),
}

/// The dynamic table of a client.
#[derive(Debug)]
pub(in super::super) struct Table {
    /// The newest is the last one.
    entries: VecDeque<Entry>,
    size: usize,
    size_max: usize,
    /// The number of entries that were ever inserted.
    inserted: u64,
    /// The oldest is the first one.
    absent: VecDeque<Absent>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    kind: FieldKind,
    name_length: u16,
    size: u16,
}

/// An entry that h2 does not have.
#[derive(Debug)]
struct Absent {
    /// The number of entries that were inserted before it.
    number: u64,
    field: Box<[u8]>,
}

impl Table {
    pub(in super::super) fn new() -> Self {
        Self {
            entries: VecDeque::new(),
            size: 0,
            size_max: SIZE_MAX,
            inserted: 0,
            absent: VecDeque::new(),
        }
    }

    /// Returns the name of an entry of the static table or of this one.
    pub(in super::super) fn name(&self, index: usize) -> Result<FieldName, BadBlock> {
        if let Some(name) = FieldName::fixed(index) {
            return Ok(name);
        }
        let back = index.checked_sub(FIRST_INDEX).ok_or(BadBlock)?;
        let place = self.entries.len().checked_sub(back + 1).ok_or(BadBlock)?;
        let &Entry { kind, name_length, .. } = self.entries.get(place).ok_or(BadBlock)?;
        Ok(FieldName { kind, length: name_length.into() })
    }

    /// Returns where h2 has an entry that exists.
    pub(in super::super) fn place(&self, index: usize) -> Place<'_> {
        if self.absent.is_empty() {
            return Place::Same;
        }
        let Some(back) = index.checked_sub(FIRST_INDEX) else { return Place::Same };
        let number = self.inserted.saturating_sub(back as u64 + 1);
        match self.absent.binary_search_by_key(&number, |field| field.number) {
            Ok(place) => {
                self.absent.get(place).map_or(Place::Same, |field| Place::Absent(&field.field))
            }
            Err(place) if place == self.absent.len() => Place::Same,
            Err(place) => Place::Moved(index - (self.absent.len() - place)),
        }
    }

    /// Inserts a field. `absent` is how h2 gets it each time, if h2 does not insert it.
    pub(in super::super) fn insert(
        &mut self,
        name: FieldName,
        value_length: usize,
        absent: Option<Box<[u8]>>,
    ) {
        let size = name.length + value_length + ENTRY_OVERHEAD;
        self.evict(self.size_max.saturating_sub(size));
        if size > self.size_max {
            return;
        }
        self.size += size;
        let (name_length, size) = (name.length as u16, size as u16);
        self.entries.push_back(Entry { kind: name.kind, name_length, size });
        if let Some(field) = absent {
            self.absent.push_back(Absent { number: self.inserted, field });
        }
        self.inserted += 1;
    }

    pub(in super::super) fn resize(&mut self, size_max: usize) -> Result<(), BadBlock> {
        if size_max > SIZE_MAX {
            return Err(BadBlock);
        }
        self.size_max = size_max;
        self.evict(size_max);
        Ok(())
    }

    /// Drops the oldest entries until the others have at most this size.
    fn evict(&mut self, size_max: usize) {
        while self.size > size_max
            && let Some(oldest) = self.entries.pop_front()
        {
            self.size -= usize::from(oldest.size);
            let number = self.inserted - self.entries.len() as u64 - 1;
            self.absent.pop_front_if(|oldest| oldest.number == number);
        }
    }
}

/// The size of the table that h2 announces to clients: the default, since Weir sets no other.
const SIZE_MAX: usize = 4096;
/// The bytes that an entry takes besides its name and its value (§4.1).
const ENTRY_OVERHEAD: usize = 32;
/// The length of `transfer-encoding`, the longest name that is no regular one.
const LONGEST_NAME: usize = 17;
const TRANSFER_ENCODING_INDEX: usize = 57;
/// The index of the newest entry.
const FIRST_INDEX: usize = NAMES.len() + 1;

/// The names of the static table (appendix A).
pub(in super::super) const NAMES: [&str; 61] = [
    ":authority",
    ":method",
    ":method",
    ":path",
    ":path",
    ":scheme",
    ":scheme",
    ":status",
    ":status",
    ":status",
    ":status",
    ":status",
    ":status",
    ":status",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "accept-ranges",
    "accept",
    "access-control-allow-origin",
    "age",
    "allow",
    "authorization",
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-length",
    "content-location",
    "content-range",
    "content-type",
    "cookie",
    "date",
    "etag",
    "expect",
    "expires",
    "from",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "last-modified",
    "link",
    "location",
    "max-forwards",
    "proxy-authenticate",
    "proxy-authorization",
    "range",
    "referer",
    "refresh",
    "retry-after",
    "server",
    "set-cookie",
    "strict-transport-security",
    "transfer-encoding",
    "user-agent",
    "vary",
    "via",
    "www-authenticate",
];

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: FieldName = FieldName { kind: FieldKind::Path, length: 5 };

    fn absent(text: &[u8]) -> Option<Box<[u8]>> {
        Some(text.into())
    }

    #[test]
    fn indices_become_those_of_a_table_without_the_absent_entries() {
        let mut table = Table::new();
        assert_eq!((table.name(61).unwrap().length, table.name(62)), (16, Err(BadBlock)));
        assert_eq!(table.name(0), Err(BadBlock));
        table.insert(PATH, 1, None);
        assert_eq!((table.place(4), table.place(62)), (Place::Same, Place::Same));
        table.insert(PATH, 2, absent(b"a"));
        table.insert(PATH, 3, None);
        table.insert(PATH, 4, absent(b"b"));
        let places: Vec<_> = (61..=65).map(|index| table.place(index)).collect();
        assert_eq!(
            places,
            [
                Place::Same,
                Place::Absent(b"b"),
                Place::Moved(62),
                Place::Absent(b"a"),
                Place::Moved(63)
            ]
        );
        assert_eq!((table.name(65), table.name(66)), (Ok(PATH), Err(BadBlock)));
        // The newest two stay.
        table.resize(2 * (ENTRY_OVERHEAD + 5) + 7).unwrap();
        assert_eq!((table.place(62), table.place(63)), (Place::Absent(b"b"), Place::Moved(62)));
        assert_eq!(table.name(64), Err(BadBlock));
        table.resize(0).unwrap();
        assert_eq!((table.name(62), table.absent.len()), (Err(BadBlock), 0));
        assert_eq!(table.resize(SIZE_MAX + 1), Err(BadBlock));
    }

    #[test]
    fn an_entry_that_does_not_fit_empties_the_table() {
        let mut table = Table::new();
        table.insert(PATH, 1, absent(b"a"));
        table.insert(PATH, SIZE_MAX - ENTRY_OVERHEAD - 5, None);
        assert_eq!((table.entries.len(), table.absent.len(), table.size), (1, 0, SIZE_MAX));
        table.insert(PATH, SIZE_MAX - ENTRY_OVERHEAD - 4, absent(b"b"));
        assert_eq!((table.entries.len(), table.absent.len(), table.size), (0, 0, 0));
    }
}
