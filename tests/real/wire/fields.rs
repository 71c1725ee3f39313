//! The fields and the body of a generated request: what clients send, and what they should not.

use fastrand::Rng;

use super::case::{Case, Field};
use super::generate::pick;
use super::http1::BEARER;
use super::peer::Protocol;

/// Adds the fields and the body of a case.
pub(crate) fn add(rng: &mut Rng, case: &mut Case) {
    case.fields.push(Field::new("Authorization", BEARER));
    if rng.u32(..4) == 0 {
        case.fields.push(Field::new("Accept", pick(rng, &ACCEPTS)));
    }
    add_body(rng, case);
    match rng.u32(..100) {
        0..60 => {}
        60..90 => add_odd(rng, case),
        _ => {
            add_odd(rng, case);
            add_odd(rng, case);
        }
    }
}

fn add_body(rng: &mut Rng, case: &mut Case) {
    let is_widget = memchr::memmem::find(&case.target, b"widgets").is_some();
    let kind = if is_widget {
        r#""apiVersion":"example.com/v1","kind":"Widget""#
    } else {
        r#""apiVersion":"v1","kind":"ConfigMap""#
    };
    let name = pick(rng, &["new", "a", "b"]);
    let (form, body) = match &*case.method {
        b"POST" | b"PUT" => {
            let body =
                format!(r#"{{{kind},"metadata":{{"name":"{name}","labels":{{"by":"wire"}}}}}}"#);
            ("application/json", body)
        }
        b"PATCH" => match rng.u32(..4) {
            0 => (
                "application/json-patch+json",
                r#"[{"op":"add","path":"/metadata/labels/by","value":"wire"}]"#.to_owned(),
            ),
            1 => (
                "application/apply-patch+yaml",
                format!(r#"{{{kind},"metadata":{{"name":"{name}","labels":{{"by":"wire"}}}}}}"#),
            ),
            _ => (
                "application/merge-patch+json",
                r#"{"metadata":{"labels":{"by":"wire"}}}"#.to_owned(),
            ),
        },
        b"DELETE" if rng.u32(..3) == 0 => {
            let dry = pick(rng, &["", r#","dryRun":["All"]"#]);
            let body = format!(r#"{{"apiVersion":"v1","kind":"DeleteOptions"{dry}}}"#);
            ("application/json", body)
        }
        b"GET" if rng.u32(..30) == 0 => ("text/plain", "x".to_owned()),
        _ => return,
    };
    case.fields.push(Field::new("Content-Type", form));
    add_length(rng, case, body.into_bytes());
}

/// Adds the body, with a length, in chunks, or with what a server must refuse.
fn add_length(rng: &mut Rng, case: &mut Case, body: Vec<u8>) {
    let length = body.len();
    let is_http1 = case.protocol == Protocol::Http1;
    let chunked = |body: &[u8], extension: &str| {
        let mut chunks = format!("{:x}{extension}\r\n", body.len()).into_bytes();
        chunks.extend_from_slice(body);
        chunks.extend_from_slice(b"\r\n0\r\n\r\n");
        chunks
    };
    let mut put = |name: &str, value: String| case.fields.push(Field::new(name, value));
    case.body = match rng.u32(..200) {
        0..140 => {
            put("Content-Length", length.to_string());
            body
        }
        140..170 if is_http1 => {
            put("Transfer-Encoding", pick(rng, &["chunked", "Chunked"]).to_owned());
            chunked(&body, pick(rng, &["", "", ";x=y", " "]))
        }
        170..174 if is_http1 => {
            put("Transfer-Encoding", pick(rng, &CODINGS).to_owned());
            chunked(&body, "")
        }
        174..177 if is_http1 => {
            put("Content-Length", length.to_string());
            put("Transfer-Encoding", "chunked".to_owned());
            chunked(&body, "")
        }
        177..182 => {
            let odd = [
                format!("0{length}"),
                format!("+{length}"),
                format!("{length}x"),
                format!("-{length}"),
                format!("{length}, {length}"),
                format!("{length} "),
                String::new(),
            ];
            put("Content-Length", odd[rng.usize(..odd.len())].clone());
            body
        }
        182..184 => {
            put("Content-Length", length.to_string());
            put("Content-Length", pick(rng, &[length, length + 1]).to_string());
            body
        }
        _ if is_http1 => {
            put("Content-Length", length.to_string());
            body
        }
        // HTTP/2 needs no length.
        _ => body,
    };
}

fn add_odd(rng: &mut Rng, case: &mut Case) {
    let fields = &mut case.fields;
    match rng.u32(..30) {
        0..3 => fields.push(Field::new("Expect", pick(rng, &EXPECTATIONS))),
        3..6 => {
            let name = pick(rng, &ODD_NAMES);
            fields.push(Field::new(name, "x"));
        }
        6..10 => {
            let name = pick(rng, &["X-Odd", "User-Agent", "Accept", "Content-Type", "Cookie"]);
            fields.push(Field::new(name, odd_value(rng)));
        }
        10..12 => {
            let separator = pick(rng, &[":", " : ", ":\t", ":  ", ""]);
            fields.push(Field { separator, ..Field::new("X-Apart", "x") });
        }
        12..14 => {
            let end = pick(rng, &["\r\n folded\r\n", "\r\n\tfolded\r\n", "\n", "\r\n \r\n", "\r"]);
            fields.push(Field { end, ..Field::new("X-End", "x") });
        }
        14..17 => fields[0] = Field::new("Host", pick(rng, &HOSTS)),
        17 => fields.push(Field::new("Host", pick(rng, &["localhost", "other"]))),
        18 => drop(fields.remove(0)),
        19..21 => fields.push(Field::new("Connection", pick(rng, &CONNECTIONS))),
        21 => {
            fields.push(Field::new("Upgrade", pick(rng, &["websocket", "h2c", "foo", "SPDY/3.1"])))
        }
        22 => fields.push(Field::new("X-Forwarded-For", pick(rng, &["1.2.3.4", "x", ""]))),
        23 => fields.push(Field::new(
            "Impersonate-User",
            pick(rng, &["jane", "", "é", "system:anonymous"]),
        )),
        24 => {
            fields.push(Field::new("Authorization", pick(rng, &["Bearer wrong", "", "Basic eDp5"])))
        }
        25 => fields.push(Field::new("TE", pick(rng, &["trailers", "gzip"]))),
        26 => {
            let count = pick(rng, &[120, 1100, 3000]);
            fields.extend((0..count).map(|number| Field::new(format!("X-Many-{number}"), "x")));
        }
        27 => {
            let length = pick(rng, &[5_000, 70_000, 300_000, 1_100_000]);
            fields.push(Field::new("X-Long", vec![b'x'; length]));
        }
        28 => fields.push(Field::new(":path", "/api/v1/namespaces/wire-x/configmaps/b")),
        _ => fields.push(Field::new("Range", "bytes=0-3")),
    }
}

fn odd_value(rng: &mut Rng) -> Vec<u8> {
    let mut value = pick(rng, &["x", "", "a, b", "\"quoted\"", "é"]).as_bytes().to_vec();
    let at = rng.usize(..=value.len());
    let piece: &[u8] = pick(
        rng,
        &[&b"\x00"[..], b"\xff", b"\x7f", b"\t", b"  ", b"\x01", b"\r", b"#", b",", b";"],
    );
    value.splice(at..at, piece.iter().copied());
    value
}

const ACCEPTS: [&str; 8] = [
    "application/json",
    "*/*",
    "application/yaml",
    "application/vnd.kubernetes.protobuf,application/json",
    "application/json;as=Table;g=meta.k8s.io;v=v1",
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
    "text/html",
    "",
];
const EXPECTATIONS: [&str; 5] = ["100-continue", "100-continue", "100-Continue", "foo", ""];
const CODINGS: [&str; 5] = ["gzip, chunked", "chunked, chunked", "identity", "chunked ", "x"];
const ODD_NAMES: [&str; 12] = [
    "X_Under", "X Space", "", "X(Y)", "X\"Y", "X#Y", "X\u{e9}", "X\0", "x-lower", "X:Y",
    "!#$%&'*+", "X/Y",
];
const HOSTS: [&str; 12] = [
    "",
    "LOCALHOST",
    "localhost:1234",
    "localhost:",
    "localhost:x",
    "127.0.0.1",
    "[::1]:80",
    "local host",
    "localhost/x",
    "localhost#",
    "user@localhost",
    "localh\"ost",
];
const CONNECTIONS: [&str; 8] = [
    "close",
    "keep-alive",
    "Upgrade",
    "x-odd, close",
    "Authorization",
    "content-length",
    "host",
    "",
];
