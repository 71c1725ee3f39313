//! Heads: what passes, what is written again, what is refused and with which code.

use super::*;

/// Reads a head, and returns what follows it and what hyper gets.
fn passed(head: &[u8]) -> (BodyFraming, Vec<u8>) {
    let read = read(head).unwrap_or_else(|error| panic!("{}: {error:?}", head.escape_ascii()));
    assert_eq!(read.length, head.len());
    (read.body, read.replacement.unwrap_or_else(|| head.to_vec()))
}

/// Returns the code with which a head is refused; 0 for one that is incomplete.
fn code(head: &[u8]) -> u16 {
    match read(head) {
        Ok(read) => panic!("{}: {read:?}", head.escape_ascii()),
        Err(NoHead::Incomplete) => 0,
        Err(NoHead::Refused(RefusedHead(status))) => status.code.as_u16(),
    }
}

#[test]
fn only_the_target_of_a_head_is_rewritten() {
    let rest = "Host: localhost\r\nX: #<>\"`\r\n\r\n";
    for (line, expected) in [
        ("GET /a HTTP/1.1\r\n", None),
        ("GET * HTTP/1.1\r\n", None),
        ("GET http://localhost/a?b HTTP/1.1\n", None),
        ("CONNECT localhost:443 HTTP/1.1\r\n", None),
        ("get /a HTTP/1.0\r\n", None),
        ("DELETE /a/#x?dryRun=All HTTP/1.1\r\n", Some("DELETE /a/%23x?dryRun=All HTTP/1.1\r\n")),
        ("PATCH /a?dryRun=All# HTTP/1.0\n", Some("PATCH /a?dryRun=All%23 HTTP/1.0\n")),
        ("GET http://h/#?\" HTTP/1.1\r\n", Some("GET http://h/%23?%22 HTTP/1.1\r\n")),
    ] {
        let head = format!("{line}{rest}");
        let (body, passed) = passed(head.as_bytes());
        assert_eq!(body, BodyFraming::Empty);
        let expected = expected.unwrap_or(line);
        assert_eq!(String::from_utf8(passed).unwrap(), format!("{expected}{rest}"));
    }
}

#[test]
fn the_port_of_an_absolute_target_is_a_number() {
    let head = |target: &str| format!("PUT {target} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    for target in ["http://h/a", "http://h:/a", "http://h:80/a", "http://u:p@[::1]:80/a"] {
        assert_eq!(passed(head(target).as_bytes()).0, BodyFraming::Empty, "{target}");
    }
    for target in ["s://:r/c", "http://localhost:x/c", "http://[::1]:x/c"] {
        assert_eq!(code(head(target).as_bytes()), 400, "{target}");
    }
}

#[test]
fn a_body_is_framed_as_hyper_and_go_do() {
    for (fields, expected) in [
        ("", BodyFraming::Empty),
        ("Content-Length: 0\r\n", BodyFraming::Empty),
        ("content-LENGTH:\t007 \r\n", BodyFraming::Length(7)),
        ("Content-Length: 7\r\nContent-Length: 7\r\n", BodyFraming::Length(7)),
        ("Transfer-Encoding: Chunked\r\n", BodyFraming::Chunked),
        ("Transfer-Encoding: chunked\r\nContent-Length: 7\r\n", BodyFraming::Chunked),
        ("Content-Length: 7\r\nTransfer-Encoding: chunked\r\n", BodyFraming::Chunked),
        ("Upgrade: websocket\r\nConnection: a, upgrade\r\n", BodyFraming::Upgrade),
        ("Upgrade: websocket\r\n", BodyFraming::Empty),
        ("Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\n", BodyFraming::Empty),
        ("Connection: Upgrade\r\n", BodyFraming::Empty),
    ] {
        let head = format!("POST /a HTTP/1.1\r\n{fields}\r\n");
        assert_eq!(passed(head.as_bytes()).0, expected, "{fields:?}");
    }
    let old = b"POST /a HTTP/1.0\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n";
    assert_eq!(passed(old).0, BodyFraming::Empty);
}

#[test]
fn a_head_that_go_refuses_is_refused_with_its_code() {
    let rows: &[(&[u8], u16)] = &[
        (b"GET /a", 0),
        (b"GET /a HTTP/1.1\r\n", 0),
        (b"GET /a HTTP/1.1\r\nHost: x\r\n", 0),
        (b"\x16\x03\x01\x02\x00", 400),
        (b"GET /a\r\n", 400),
        (b"GET /a HTTP/1.1 \r\n", 400),
        (b"GET  /a HTTP/1.1\r\n", 400),
        (b"GET /a b HTTP/1.1\r\n", 400),
        (b"GET /a\tb HTTP/1.1\r\n\r\n", 400),
        (b"GET /\x7F HTTP/1.1\r\n\r\n", 400),
        (b"GET /\x01 HTTP/1.1\r\n\r\n", 400),
        (b"G(T /a HTTP/1.1\r\n\r\n", 400),
        (b"GET ?a HTTP/1.1\r\n\r\n", 400),
        (b"GET # HTTP/1.1\r\n\r\n", 400),
        (b"GET http://h#/ HTTP/1.1\r\n\r\n", 400),
        (b"GET http:/a HTTP/1.1\r\n\r\n", 400),
        (b"GET ://h/a HTTP/1.1\r\n\r\n", 400),
        (b"GET 1x://h/a HTTP/1.1\r\n\r\n", 400),
        (b"GET /a HTTP/2.0\r\n\r\n", 505),
        (b"GET /a HTTP/1.2\r\n\r\n", 505),
        (b"GET /a HTTP/11\r\n\r\n", 400),
        (b"GET /a XTTP/1.1\r\n\r\n", 400),
        (b"GET /a HTTP/1.1\r\nHost : x\r\n\r\n", 400),
        (b"GET /a HTTP/1.1\r\nHo st: x\r\n\r\n", 400),
        (b"GET /a HTTP/1.1\r\n: x\r\n\r\n", 400),
        (b"GET /a HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET /a HTTP/1.1\r\nX: a\0b\r\n\r\n", 400),
        (b"GET /a HTTP/1.1\r\nX: a\rb\r\n\r\n", 400),
        (b"GET /a HTTP/1.1\r\nX: a\x7Fb\r\n\r\n", 400),
        (b"GET /a HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"GET /a HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501),
        (b"GET /a HTTP/1.1\r\nTransfer-Encoding: identity\r\n\r\n", 501),
        (
            b"GET /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
            501,
        ),
        (b"GET /a HTTP/1.1\r\nContent-Length: \r\n\r\n", 400),
        (b"GET /a HTTP/1.1\r\nContent-Length: +5\r\n\r\n", 400),
        (b"GET /a HTTP/1.1\r\nContent-Length: 5, 5\r\n\r\n", 400),
        (b"GET /a HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 05x\r\n\r\n", 400),
        (b"GET /a HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", 400),
        (b"GET /a HTTP/1.1\r\nContent-Length: x\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"GET /a HTTP/1.1\r\nContent-Length: 9223372036854775808\r\n\r\n", 400),
    ];
    for (head, expected) in rows {
        assert_eq!(code(head), *expected, "{}", head.escape_ascii());
    }
}

#[test]
fn what_no_request_can_carry_is_refused_with_its_code() {
    let target = |bytes: usize| format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(bytes - 1));
    assert_eq!(passed(target(65_534).as_bytes()).0, BodyFraming::Empty);
    assert_eq!(code(target(65_535).as_bytes()), 414);
    let escaped = format!("GET /{} HTTP/1.1\r\n\r\n", "#".repeat(22_000));
    assert_eq!(code(escaped.as_bytes()), 414);
    let name = |bytes: usize| format!("GET / HTTP/1.1\r\n{}: x\r\n\r\n", "a".repeat(bytes));
    assert_eq!(passed(name(65_535).as_bytes()).0, BodyFraming::Empty);
    assert_eq!(code(name(65_536).as_bytes()), 431);
    let fields = |count: usize| format!("GET / HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(count));
    for count in [99, 100, 101, FIELDS_MAX] {
        assert_eq!(passed(fields(count).as_bytes()).0, BodyFraming::Empty);
    }
    assert_eq!(code(fields(FIELDS_MAX + 1).as_bytes()), 431);
    assert_eq!(code(fields(FIELDS_MAX + 1).trim_end().as_bytes()), 0, "its end has not come");
}

#[test]
fn a_block_is_usual_if_it_says_nothing_about_the_body() {
    let block = |head: &str| read(head.as_bytes()).unwrap().block;
    let line = "GET /a HTTP/1.1\r\n";
    for (fields, usual) in [
        ("", true),
        ("Host: x\r\nConnection: close\r\n", true),
        ("Content-Length: 0\r\n", false),
        ("Transfer-Encoding: chunked\r\n", false),
        ("Upgrade: h2c\r\n", false),
        ("Expect: 100-continue\r\n", false),
    ] {
        let expected = usual.then_some(line.len());
        assert_eq!(block(&format!("{line}{fields}\r\n")), expected, "{fields}");
    }
    assert_eq!(block("GET /# HTTP/1.1\r\n\r\n"), None);
    assert_eq!(block("GET /a HTTP/1.0\r\n\r\n"), None);
    for (head, expected) in [
        ("GET /a HTTP/1.1\r\nX: y", Some(17)),
        ("GET /a# HTTP/1.1\r\n", None),
        ("GET /a  HTTP/1.1\r\n", None),
        ("GET /a HTTP/1.0\r\n", None),
        ("GET /a HTTP/1.1\n", None),
        ("GET /a HTTP/1.1", None),
        ("GET a HTTP/1.1\r\n", None),
        ("PUT /a HTTP/1.1\r\n", None),
    ] {
        assert_eq!(plain_line(head.as_bytes()), expected, "{head:?}");
    }
}

#[test]
fn a_head_ends_with_its_first_empty_line() {
    for (bytes, expected) in [
        ("a\r\nb\r\n\r\nc", Some(8)),
        ("a\nb\n\nc", Some(5)),
        ("a\nb\n\r\nc", Some(6)),
        ("a\r\n \r\nb\r\n", None),
        ("a\r\n\r", None),
    ] {
        for from in 0..=expected.unwrap_or(bytes.len()) {
            assert_eq!(end(bytes.as_bytes(), from), expected, "{bytes:?}, {from}");
        }
    }
}

#[test]
fn folded_fields_are_joined_with_a_blank() {
    for (fields, expected) in [
        ("X: a\r\n b\r\nY: c\r\n", "X: a b\r\nY: c\r\n"),
        ("X: a \t\r\n \tb\n c\r\n", "X: a b c\r\n"),
        ("X:\r\n a\r\n", "X: a\r\n"),
    ] {
        let head = |fields: &str| format!("GET /a HTTP/1.1\r\n{fields}\r\n");
        let passed = passed(head(fields).as_bytes()).1;
        assert_eq!(String::from_utf8(passed).unwrap(), head(expected), "{fields:?}");
    }
    // The bytes after the head stay.
    let read = read(b"GET /\xFF HTTP/1.1\r\nX: a\r\n b\r\n\r\nnext").unwrap();
    let replacement = b"GET /%FF HTTP/1.1\r\nX: a b\r\n\r\n".to_vec();
    assert_eq!((read.length, read.replacement), (29, Some(replacement)));
    for (head, expected) in [
        ("GET /a HTTP/1.1\r\n X: a\r\n\r\n", 400),
        ("GET /a HTTP/1.1\r\nX\r\n : a\r\n\r\n", 400),
        ("GET /a HTTP/1.1\r\nX: a\r\n b\r\n", 0),
        ("GET /a HTTP/1.1\r\nExpect: foo\r\n\r\n", 417),
    ] {
        assert_eq!(code(head.as_bytes()), expected, "{head:?}");
    }
}

#[test]
fn hyper_gets_few_of_very_many_fields() {
    let few = "Content-Length: 3\r\nconnection: close\r\n";
    let many: String = (0..200).map(|number| format!("X: {number}\r\n")).collect();
    let head = format!("PUT /a# HTTP/1.1\r\n{many}{few}Host: h\r\n\r\n");
    let read = read(head.as_bytes()).unwrap();
    assert_eq!((read.length, read.body), (head.len(), BodyFraming::Length(3)));
    let expected = "PUT /a%23 HTTP/1.1\r\nContent-Length: 3\r\nconnection: close\r\n\r\n";
    assert_eq!(String::from_utf8(read.replacement.unwrap()).unwrap(), expected);
    let fields = read.fields.unwrap();
    let values: Vec<_> = fields.get_all("x").iter().map(|value| value.to_str().unwrap()).collect();
    assert_eq!(values, (0..200).map(|number| number.to_string()).collect::<Vec<_>>());
    assert_eq!((fields.len(), fields["host"].as_bytes()), (201, &b"h"[..]));
    let alone = format!("GET / HTTP/1.1\r\n{}\r\n", "TE: x\r\n".repeat(101));
    assert_eq!(code(alone.as_bytes()), 431);
}
