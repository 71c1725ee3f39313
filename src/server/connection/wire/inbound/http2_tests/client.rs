//! A client that encodes the same requests in all ways that HPACK allows.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::super::super::hpack::table::NAMES;
use super::super::super::hpack::{huffman, put_integer};

/// The fields of a request, in their order.
pub(super) type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// How a request is written. The choices of a field are taken from `choices`, again and again.
#[derive(Clone, Debug)]
pub(super) struct Style {
    choices: Vec<u8>,
    /// Table sizes that are set before the first field.
    sizes: Vec<usize>,
    padding: Option<u8>,
    /// The stream that this one depends on.
    dependency: Option<u32>,
    /// Where the block is cut into frames.
    splits: Vec<usize>,
}

impl Style {
    /// Fields are inserted where they can be, without Huffman code.
    pub(super) fn plain() -> Self {
        let (choices, sizes, splits) = (vec![0], Vec::new(), Vec::new());
        Self { choices, sizes, padding: None, dependency: None, splits }
    }

    pub(super) fn padded(self, length: u8) -> Self {
        Self { padding: Some(length), ..self }
    }

    pub(super) fn split(self, splits: Vec<usize>) -> Self {
        Self { splits, ..self }
    }
}

pub(super) fn style() -> impl Strategy<Value = Style> {
    let sizes = prop_oneof![
        8 => Just(Vec::new()),
        1 => proptest::collection::vec(0_usize..=4096, 1..3),
    ];
    let splits = prop_oneof![
        3 => Just(Vec::new()),
        1 => proptest::collection::vec(0_usize..200, 1..5),
    ];
    let dependency = prop_oneof![6 => Just(None), 1 => (0_u32..9).prop_map(Some)];
    let padding = prop_oneof![4 => Just(None), 1 => any::<u8>().prop_map(Some)];
    let choices = proptest::collection::vec(any::<u8>(), 1..12);
    (choices, sizes, padding, dependency, splits).prop_map(
        |(choices, sizes, padding, dependency, splits)| Style {
            choices,
            sizes,
            padding,
            dependency,
            splits,
        },
    )
}

/// Returns the fields of a GET.
pub(super) fn named(path: &[u8], others: &[(&str, &str)]) -> Fields {
    let pseudo = [(":method", &b"GET"[..]), (":scheme", b"https"), (":path", path)];
    let pseudo = pseudo.into_iter().chain([(":authority", &b"localhost"[..])]);
    let others = others.iter().map(|(name, value)| (*name, value.as_bytes()));
    let fields = pseudo.chain(others);
    fields.map(|(name, value)| (name.as_bytes().to_vec(), value.to_vec())).collect()
}

pub(super) fn fields() -> impl Strategy<Value = Fields> {
    let path = prop_oneof![
        4 => proptest::sample::select(&[
            "/", "/api/v1/pods", "/api/v1/pods#", "/#x?dryRun=All", "/a?b=c>d", "/index.html", "*",
            "", "a#b", "/\x01#", "/\"`\"", "?#", "#",
        ][..]).prop_map(|path| path.as_bytes().to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 0..30).prop_map(|bytes| [b"/", &*bytes].concat()),
        1 => (1_usize..3000).prop_map(|length| [b"/#", &*b"a".repeat(length)].concat()),
        1 => (16_000_usize..70_000).prop_map(|length| [b"/", &*b"#".repeat(length / 3)].concat()),
    ];
    let authority = prop_oneof![
        6 => Just(Some("localhost:8443")), 1 => Just(None),
        2 => proptest::sample::select(&["", "a b", "user@h", "ü", "h/#", "[::1]"][..]).prop_map(Some),
    ];
    let scheme = prop_oneof![8 => Just("https"), 2 => Just("http"), 1 => Just("ftp")];
    let name = proptest::sample::select(
        &["accept", "user-agent", "authorization", "x-a", "x-b", "path", "cookie", "age"][..],
    );
    let value = prop_oneof![
        3 => proptest::sample::select(&["", "a", "a#b", "ü", "some longer text", "0123456789"][..])
            .prop_map(str::to_owned),
        1 => (0_usize..5000).prop_map(|length| "v".repeat(length)),
    ];
    let others = proptest::collection::vec((name, value), 0..7);
    let order = Just([0_usize, 1, 2, 3]).prop_shuffle();
    let doubled = prop_oneof![12 => Just(None), 1 => (0_usize..12).prop_map(Some)];
    (path, authority, scheme, others, order, doubled).prop_map(
        |(path, authority, scheme, others, order, doubled)| {
            let pseudo = [
                Some((&b":path"[..], path)),
                authority.map(|authority| (&b":authority"[..], authority.as_bytes().to_vec())),
                Some((b":scheme", scheme.as_bytes().to_vec())),
                Some((b":method", b"DELETE".to_vec())),
            ];
            let mut fields: Fields = order
                .into_iter()
                .filter_map(|place| pseudo[place].clone())
                .map(|(name, value)| (name.to_vec(), value))
                .collect();
            fields.extend(
                others.into_iter().map(|(name, value)| (name.as_bytes().to_vec(), value.into())),
            );
            if let Some(place) = doubled {
                let place = place.min(fields.len());
                fields.insert(place, (b":path".to_vec(), b"/other".to_vec()));
            }
            fields
        },
    )
}

/// The encoder of a connection.
pub(super) struct Client {
    stream: u32,
    /// The newest entry is the first one.
    table: VecDeque<(Vec<u8>, Vec<u8>)>,
    size_max: usize,
}

impl Client {
    pub(super) fn new() -> Self {
        Self { stream: 1, table: VecDeque::new(), size_max: 4096 }
    }

    /// Returns the frames of the next request, which has no body.
    pub(super) fn request(&mut self, fields: &Fields, style: &Style) -> Vec<u8> {
        let mut block = Vec::new();
        for size in &style.sizes {
            self.size_max = *size;
            self.evict(0);
            put_integer(0x20, 5, *size, &mut block);
        }
        let mut choices = style.choices.iter().copied().cycle();
        for (name, value) in fields {
            self.field(name, value, &mut choices, &mut block);
        }
        let frames = frames(self.stream, &block, style);
        self.stream += 2;
        frames
    }

    fn field(
        &mut self,
        name: &[u8],
        value: &[u8],
        choices: &mut impl Iterator<Item = u8>,
        block: &mut Vec<u8>,
    ) {
        let mut choice = || choices.next().unwrap();
        let whole = self.table.iter().position(|(n, v)| n == name && v == value);
        let fixed = match (name, value) {
            (b":method", b"GET") => Some(2),
            (b":path", b"/") => Some(4),
            (b":path", b"/index.html") => Some(5),
            (b":scheme", b"http") => Some(6),
            (b":scheme", b"https") => Some(7),
            _ => None,
        };
        let how = choice();
        if how % 4 < 3
            && let Some(index) = whole.map(|place| place + 62).or(fixed)
        {
            put_integer(0x80, 7, index, block);
            return;
        }
        let named: Vec<usize> = (1..62)
            .filter(|index| NAMES[index - 1].as_bytes() == name)
            .chain(
                (0..self.table.len())
                    .filter(|index| self.table[*index].0 == name)
                    .map(|index| index + 62),
            )
            .collect();
        let index = match choice() {
            pick if pick % 4 == 3 || named.is_empty() => 0,
            pick => named[usize::from(pick) % named.len()],
        };
        let inserts = how % 8 < 5;
        match (inserts, how & 0x10) {
            (true, _) => put_integer(0x40, 6, index, block),
            (false, 0) => put_integer(0, 4, index, block),
            (false, _) => put_integer(0x10, 4, index, block),
        }
        if index == 0 {
            string(name, choice() & 1 == 1, block);
        }
        string(value, choice() & 1 == 1, block);
        if inserts {
            let size = name.len() + value.len() + 32;
            self.evict(size);
            if size <= self.size_max {
                self.table.push_front((name.to_vec(), value.to_vec()));
            }
        }
    }

    /// Makes room for a new entry.
    fn evict(&mut self, room: usize) {
        let size = |(name, value): &(Vec<u8>, Vec<u8>)| name.len() + value.len() + 32;
        while !self.table.is_empty()
            && self.table.iter().map(size).sum::<usize>() + room > self.size_max
        {
            self.table.pop_back();
        }
    }
}

fn string(text: &[u8], is_coded: bool, block: &mut Vec<u8>) {
    let (text, pattern) = if is_coded { (huffman::encode(text), 0x80) } else { (text.to_vec(), 0) };
    put_integer(pattern, 7, text.len(), block);
    block.extend(text);
}

/// Returns the frames of a block: cut where the style says, and where a frame is full.
fn frames(stream: u32, block: &[u8], style: &Style) -> Vec<u8> {
    const PART_MAX: usize = 16_000;
    let mut ends: Vec<usize> = style.splits.iter().map(|split| *split.min(&block.len())).collect();
    ends.extend((1..).map(|part| part * PART_MAX).take_while(|part| *part < block.len()));
    ends.push(block.len());
    ends.sort_unstable();
    let mut bytes = Vec::new();
    let mut start = 0;
    for (number, end) in ends.iter().enumerate() {
        let (mut flags, mut payload) = (0, Vec::new());
        let padding = style.padding.filter(|_| number == 0);
        if let Some(length) = padding {
            flags |= 0x8;
            payload.push(length);
        }
        if let Some(dependency) = style.dependency.filter(|_| number == 0) {
            flags |= 0x20;
            payload.extend(dependency.to_be_bytes());
            payload.push(7);
        }
        payload.extend(&block[start..*end]);
        payload.extend(vec![0; padding.unwrap_or_default().into()]);
        flags |= if number == 0 { 0x1 } else { 0 };
        flags |= if number + 1 == ends.len() { 0x4 } else { 0 };
        bytes.extend(&(payload.len() as u32).to_be_bytes()[1..]);
        bytes.extend([if number == 0 { 1 } else { 9 }, flags]);
        bytes.extend(stream.to_be_bytes());
        bytes.extend(payload);
        start = *end;
    }
    bytes
}
