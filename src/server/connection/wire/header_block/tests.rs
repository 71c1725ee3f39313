//! Tests of header blocks.

use super::super::hpack::huffman;
use super::*;

/// A literal with a name of the static table.
fn field(pattern: u8, prefix: u32, name: usize, value: &[u8]) -> Vec<u8> {
    let mut field = Vec::new();
    put_integer(pattern, prefix, name, &mut field);
    put_integer(0, 7, value.len(), &mut field);
    field.extend(value);
    field
}

fn inserted(name: usize, value: &[u8]) -> Vec<u8> {
    field(0x40, 6, name, value)
}

fn coded(name: usize, value: &[u8]) -> Vec<u8> {
    let code = huffman::encode(value);
    let mut field = Vec::new();
    put_integer(0x40, 6, name, &mut field);
    put_integer(0x80, 7, code.len(), &mut field);
    field.extend(code);
    field
}

fn read(blocks: &mut HeaderBlocks, block: &[u8]) -> Option<Vec<u8>> {
    blocks.read(block).unwrap()
}

const GET: &[u8] = &[0x82];

#[test]
fn a_block_without_foreign_bytes_passes() {
    let mut blocks = HeaderBlocks::new();
    let mut block = [GET, &[0x87], &inserted(4, b"/api?x=%23"), &inserted(1, b"h:1")].concat();
    block.extend(inserted(58, b"kubectl#1 <x>"));
    assert_eq!(read(&mut blocks, &block), None);
    assert_eq!(read(&mut blocks, &[0x82, 0x87, 0xC0, 0xBF, 0xBE]), None);
    assert_eq!(read(&mut blocks, &coded(4, b"/api/v1/pods?limit=500")), None);
}

#[test]
fn a_foreign_path_is_escaped_in_each_form() {
    let escaped = literal(4, b"/a%23b%FF");
    let path = b"/a#b\xFF";
    let named = |pattern: u8| {
        let mut field = vec![pattern, 5];
        field.extend(b":path\x05");
        field.extend(path);
        field
    };
    for form in [
        inserted(4, path),
        inserted(5, path),
        field(0, 4, 4, path),
        field(0x10, 4, 4, path),
        coded(4, path),
        named(0x40),
        named(0),
        named(0x10),
    ] {
        let block = [GET, &form, &[0x87]].concat();
        let expected = [GET, &escaped, &[0x87]].concat();
        assert_eq!(read(&mut HeaderBlocks::new(), &block), Some(expected), "{form:?}");
    }
}

/// `http::Uri` would read `/?a`, where Go's server resets the stream.
#[test]
fn a_path_begins_with_a_slash_or_is_a_star() {
    for path in [&b"?a"[..], b"?", b"a", b"http://h/a", b"**", b"0", b"\x18"] {
        for form in [inserted(4, path), coded(4, path)] {
            let expected = [GET, &[STREAM_ERROR]].concat();
            let block = [GET, &form].concat();
            assert_eq!(read(&mut HeaderBlocks::new(), &block), Some(expected), "{path:?}");
        }
    }
    for path in [&b"*"[..], b"/", b"//", b"/a?b"] {
        let expected = (path == b"*").then(|| [GET, &literal(4, b"*")].concat());
        for form in [inserted(4, path), coded(4, path)] {
            let block = [GET, &form].concat();
            assert_eq!(read(&mut HeaderBlocks::new(), &block), expected, "{path:?}");
        }
    }
}

#[test]
fn later_blocks_refer_to_what_h2_has() {
    let mut blocks = HeaderBlocks::new();
    let agent = inserted(58, b"one");
    assert_eq!(read(&mut blocks, &[GET, &inserted(4, b"/"), &agent].concat()), None);
    // Entries, from the newest: agent, "/".
    let odd = [GET, &inserted(4, b"/#")].concat();
    assert_eq!(read(&mut blocks, &odd), Some([GET, &literal(4, b"/%23")].concat()));
    // "/#", agent, "/": h2 has the last two.
    let indexed = [GET, &[0xBE, 0xBF]].concat();
    assert_eq!(read(&mut blocks, &indexed), Some([GET, &literal(4, b"/%23"), &[0xBE]].concat()));
    let old = [GET, &[0xC0, 0xBF]].concat();
    assert_eq!(read(&mut blocks, &old), Some([GET, &[0xBF, 0xBE]].concat()));
    // The names of entries, of one that h2 has and of one that it has not.
    let named = [GET, &field(0x40, 6, 62, b"/b"), &field(0, 4, 64, b"two")].concat();
    let expected = [GET, &field(0x40, 6, 4, b"/b"), &field(0, 4, 63, b"two")].concat();
    assert_eq!(read(&mut blocks, &named), Some(expected));
    // "/b", "/#", agent, "/": the newest is in both tables.
    assert_eq!(read(&mut blocks, &[0x82, 0xBE]), None);
    // Without the odd entry the tables are equal again.
    assert_eq!(read(&mut blocks, &[0x20, 0x3F, 0xE1, 0x1F, 0x82]), None);
    assert_eq!(read(&mut blocks, &[GET, &inserted(4, b"/c"), &agent].concat()), None);
    assert_eq!(read(&mut blocks, &[0x82, 0xBF, 0xBE]), None);
}

#[test]
fn what_go_refuses_resets_the_stream() {
    for path in [&b"/\0#"[..], b"/\x7F", b"#", b"x#", b"\xFF"] {
        for form in [inserted(4, path), coded(4, path)] {
            let block = [GET, &form].concat();
            let edited = read(&mut HeaderBlocks::new(), &block);
            assert_eq!(edited, Some([GET, &[STREAM_ERROR]].concat()), "{}", path.escape_ascii());
        }
    }
    for (name, value) in [(6, "ftp"), (6, "HTTP"), (6, ""), (1, "u@h"), (1, "h\0")] {
        let block = [&[0x84], &*inserted(name, value.as_bytes())].concat();
        let edited = read(&mut HeaderBlocks::new(), &block);
        assert_eq!(edited, Some(vec![0x84, STREAM_ERROR]), "{value:?}");
    }
    // Doubled, or behind a field that is none; an entry that is odd.
    let mut blocks = HeaderBlocks::new();
    assert_eq!(read(&mut blocks, &[0x84, 0x85]), Some(vec![0x84, 0x85, STREAM_ERROR]));
    assert_eq!(read(&mut blocks, &[0x82, 0x90, 0x84]), Some(vec![0x82, 0x90, 0x84, STREAM_ERROR]));
    let twice = [inserted(4, b"/#"), vec![0xBE, 0xBE]].concat();
    let expected = [&*literal(4, b"/%23"), &[STREAM_ERROR; 3]].concat();
    assert_eq!(read(&mut blocks, &twice), Some(expected));
}

/// h2 reads `/` where there is neither a path nor an authority.
#[test]
fn a_request_without_a_path_resets_the_stream() {
    let mut blocks = HeaderBlocks::new();
    assert_eq!(read(&mut blocks, &[0x82, 0x87]), Some(vec![0x82, 0x87, STREAM_ERROR]));
    let block = [GET, &[0x87], &inserted(1, b"")].concat();
    assert_eq!(read(&mut blocks, &block), Some(vec![0x82, 0x87, STREAM_ERROR]));
    assert_eq!(read(&mut blocks, &[0x82, 0x87, 0x84]), None);
}

/// h2 forgot about them where a long field behind them needs a CONTINUATION, and Weir carried out
/// a DELETE that Go refuses.
#[test]
fn a_field_of_the_connection_resets_the_stream() {
    let named = |name: &str, value: &[u8]| {
        let mut field = vec![0x40, name.len() as u8];
        field.extend(name.bytes());
        put_integer(0, 7, value.len(), &mut field);
        field.extend(value);
        field
    };
    for (name, value) in [
        ("connection", "close"),
        ("keep-alive", "timeout=5"),
        ("proxy-connection", "close"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "SPDY/3.1"),
        ("te", "gzip"),
    ] {
        let mut blocks = HeaderBlocks::new();
        let block = [GET, &named(name, value.as_bytes())].concat();
        let expected = [&*block, &[STREAM_ERROR]].concat();
        assert_eq!(read(&mut blocks, &block), Some(expected), "{name}");
        let again = read(&mut blocks, &[0x82, 0xBE]);
        assert_eq!(again, Some(vec![0x82, 0xBE, STREAM_ERROR]), "{name}, from the table");
    }
    let mut blocks = HeaderBlocks::new();
    assert_eq!(read(&mut blocks, &[0x82, 0xB9]), Some(vec![0x82, 0xB9, STREAM_ERROR]));
    assert_eq!(read(&mut blocks, &[GET, &named("te", b"trailers")].concat()), None);
    assert_eq!(read(&mut blocks, &[0x82, 0xBE]), None);
    assert_eq!(read(&mut blocks, &[0x82, 0xBE, 0xBE]), Some(vec![0x82, 0xBE, 0xBE, STREAM_ERROR]));
    let other = [GET, &field(0, 4, 62, b"gzip")].concat();
    assert_eq!(read(&mut blocks, &other), Some([&*other, &[STREAM_ERROR]].concat()));
}

#[test]
fn an_authority_that_h2_would_refuse_is_replaced() {
    for (value, expected) in [
        (&b"kubernetes.default:443"[..], None),
        (b"[::1]:6443", None),
        (b"", Some(Vec::new())),
        (b"\xFF", Some(literal(1, b"invalid"))),
        (b"a b", Some(literal(1, b"invalid"))),
        (b"a/b", Some(literal(1, b"invalid"))),
        (b"<h>", Some(literal(1, b"invalid"))),
        (b"h:1:2", Some(literal(1, b"invalid"))),
    ] {
        let edited = read(&mut HeaderBlocks::new(), &inserted(1, value));
        assert_eq!(edited, expected, "{}", value.escape_ascii());
    }
}

#[test]
fn a_path_that_a_uri_does_not_hold_becomes_one_that_weir_answers() {
    let fits = [&b"/"[..], &b"a".repeat(PATH_BYTES_MAX - 1)].concat();
    assert_eq!(read(&mut HeaderBlocks::new(), &inserted(4, &fits)), None);
    let long = [&fits[..], b"a"].concat();
    let odd = [&b"/"[..], &b"#".repeat(PATH_BYTES_MAX / 3)].concat();
    let too_long = literal(4, TOO_LONG_PATH.as_bytes());
    for (path, expected) in
        [(&long, too_long.clone()), (&odd, literal(4, &target::escape(&odd).unwrap().unwrap()))]
    {
        assert_eq!(read(&mut HeaderBlocks::new(), &inserted(4, path)), Some(expected.clone()));
        assert_eq!(read(&mut HeaderBlocks::new(), &coded(4, path)), Some(expected));
    }
    let odd = [&b"/"[..], &b"#".repeat(PATH_BYTES_MAX / 3 + 1)].concat();
    assert_eq!(read(&mut HeaderBlocks::new(), &inserted(4, &odd)), Some(too_long));
}

#[test]
fn what_is_not_hpack_is_not_read() {
    for block in [
        &[0x80][..],
        &[0xBE],
        &[0xFF],
        &[0xFF, 0x80],
        &[0x44],
        &[0x44, 3, b'/'],
        &[0x40, 0, 0],
        &[0x40, 1, b'a'],
        &[0x7E, 0],
        &[0x82, 0x20],
        &[0x3F, 0xE2, 0x1F],
        &[0x44, 0x81, 0x00],
    ] {
        assert_eq!(HeaderBlocks::new().read(block), Err(BadBlock), "{block:?}");
    }
}
