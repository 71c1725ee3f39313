//! Watches over WebSockets by their bytes: generated handshakes and frames of a client, and what a
//! server sends back.

use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use super::case::{Case, Field};
use super::generate::pick;
use super::http1::{BEARER, Connection};
use super::peer::Protocol;

/// The frames that a client sends after a 101.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Script {
    /// The number of events that come by themselves, after which the client sends its frames.
    pub(crate) events: usize,
    pub(crate) frames: Vec<Vec<u8>>,
    /// Whether the client then ends its half of the connection.
    pub(crate) ends: bool,
}

/// Returns the case of a seed.
pub(crate) fn case(seed: u64) -> Case {
    let rng = &mut Rng::with_seed(seed);
    let (path, events) = pick(rng, &TARGETS);
    let mut target = path.as_bytes().to_vec();
    if rng.u32(..20) == 0 {
        target.extend_from_slice(pick(rng, &["#", "&x=<", "&labelSelector=num>10"]).as_bytes());
    }
    let mut case = Case {
        protocol: Protocol::Http1,
        method: b"GET".to_vec(),
        target,
        version: if rng.u32(..60) == 0 { "HTTP/1.0" } else { "HTTP/1.1" },
        fields: Vec::new(),
        body: Vec::new(),
        left_out: None,
        script: script(rng, events),
    };
    case.fields = handshake(rng);
    case
}

fn handshake(rng: &mut Rng) -> Vec<Field> {
    let mut fields = vec![
        Field::new("Host", "localhost"),
        Field::new("Authorization", BEARER),
        Field::new("Connection", "Upgrade"),
        Field::new("Upgrade", "websocket"),
        Field::new("Sec-WebSocket-Version", "13"),
        Field::new("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
        Field::new("Origin", "http://localhost"),
    ];
    match rng.u32(..10) {
        0..5 => {}
        5..7 => fields.push(Field::new("Sec-WebSocket-Protocol", pick(rng, &PROTOCOLS))),
        // The credential of a browser.
        7 => {
            fields.remove(1);
            let token = "base64url.bearer.authorization.k8s.io.YWRtaW4tdG9rZW4";
            let value = pick(rng, &["a", "a, b", "", "a,", "binary.k8s.io"]);
            if rng.bool() {
                fields.push(Field::new("Sec-WebSocket-Protocol", token));
                fields.push(Field::new("Sec-WebSocket-Protocol", value));
            } else {
                fields.push(Field::new("Sec-WebSocket-Protocol", format!("{token}, {value}")));
            }
        }
        _ => {
            fields.push(Field::new("Sec-WebSocket-Protocol", pick(rng, &PROTOCOLS)));
            fields.push(Field::new("Sec-WebSocket-Protocol", pick(rng, &PROTOCOLS)));
        }
    }
    if rng.u32(..10) < 4 {
        let (name, values): (&str, &[&str]) = pick(
            rng,
            &[
                ("origin", &ORIGINS),
                ("origin", &ORIGINS),
                ("origin", &ORIGINS),
                ("connection", &CONNECTIONS),
                ("upgrade", &["WebSocket", "websocket ", "SPDY/3.1", "h2c", "foo", ""]),
                ("sec-websocket-version", &["8", "13, 8", "", "013", "14"]),
                ("sec-websocket-key", &["", "x", "\u{e9}", "a b"]),
                ("host", &["localhost:1", "127.0.0.1", "[::1]"]),
                ("accept", &["application/vnd.kubernetes.protobuf", "text/html", "*/*"]),
            ],
        );
        let value = Field::new(name, pick(rng, values));
        let at = fields.iter().position(|field| field.is(name)).unwrap_or(fields.len());
        match rng.u32(..6) {
            0 if at < fields.len() => drop(fields.remove(at)),
            // A second line, before or after the usual one.
            1 => fields.insert(at, value),
            2 => fields.push(value),
            _ if at < fields.len() => fields[at] = value,
            _ => fields.push(value),
        }
    }
    fields
}

fn script(rng: &mut Rng, events: usize) -> Script {
    let mut frames: Vec<_> = (0..rng.u32(..4)).map(|_| frame(rng)).collect();
    let close = |code: &[u8]| masked(0x88, code.len() as u64, code);
    let mut ends = false;
    match rng.u32(..10) {
        0 => frames.push(close(&[])),
        1..7 => frames.push(close(pick(rng, &CLOSES))),
        7 => frames.push(b"\x81\x02ab".to_vec()),
        8 => ends = true,
        // The server ends the watch.
        _ => {}
    }
    Script { events, frames, ends }
}

/// A frame of a client: a usual one, or one that a strict server refuses.
fn frame(rng: &mut Rng) -> Vec<u8> {
    let opcode = pick(rng, &[0, 1, 1, 2, 3, 7, 9, 9, 9, 10, 11, 15]);
    let flags = pick(rng, &[0x80, 0x80, 0x80, 0, 0xc0, 0xf0, 0x10]);
    let length = pick(rng, &[0, 1, 5, 5, 125, 126, 300, 70_000]);
    let payload: Vec<u8> = match rng.bool() {
        true => vec![b'p'; length],
        false => (0..length).map(|_| rng.u8(..)).collect(),
    };
    match rng.u32(..40) {
        // Without a mask.
        0 => [&[flags | opcode, 3][..], b"abc"].concat(),
        // Only the head of a frame that is too long.
        1 => masked(flags | opcode, (32 << 20) + 1, b""),
        // A length with more digits than needed, and with the highest bit.
        2 => masked_with(flags | opcode, &[127, 0, 0, 0, 0, 0, 0, 0, 2], b"ab"),
        3 => masked_with(flags | opcode, &[127, 0x80, 0, 0, 0, 0, 0, 0, 2], b"ab"),
        4 => masked_with(flags | opcode, &[126, 0, 2], b"ab"),
        // Anything.
        5 => (0..rng.usize(..40)).map(|_| rng.u8(..)).collect(),
        _ => masked(flags | opcode, length as u64, &payload),
    }
}

/// Returns a frame whose length is written in the shortest form.
fn masked(first: u8, length: u64, payload: &[u8]) -> Vec<u8> {
    let digits = length.to_be_bytes();
    match length {
        0..126 => masked_with(first, &digits[7..], payload),
        126..65_536 => masked_with(first, &[&[126], &digits[6..]].concat(), payload),
        _ => masked_with(first, &[&[127], &digits[..]].concat(), payload),
    }
}

fn masked_with(first: u8, length: &[u8], payload: &[u8]) -> Vec<u8> {
    let key = [7, 0, 0xff, 0x20];
    let mut frame = vec![first, length[0] | 0x80];
    frame.extend_from_slice(&length[1..]);
    frame.extend_from_slice(&key);
    frame.extend(payload.iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key));
    frame
}

/// Sends the frames of a script, and returns what the server sends, as JSON.
pub(crate) async fn talk(connection: &mut Connection, script: &Script) -> Bytes {
    let mut seen = Transcript::default();
    let deadline = Instant::now() + SCRIPT_MAX;
    while seen.events.len() < script.events && !seen.is_over {
        seen.read(connection, deadline).await;
    }
    for frame in &script.frames {
        connection.write(frame).await;
    }
    if script.ends {
        connection.end_writing().await;
    }
    while !seen.is_over {
        seen.read(connection, deadline).await;
    }
    if !seen.rest.is_empty() {
        seen.others.push(json!("half a frame"));
    }
    let Transcript { events, others, is_silent, .. } = seen;
    let end = if is_silent { "open" } else { "closed" };
    json!({"events": events, "others": others, "end": end}).to_string().into()
}

/// The events and frames that a server has sent.
#[derive(Default)]
struct Transcript {
    events: Vec<Value>,
    /// Pongs and close frames. They may come between any two events.
    others: Vec<Value>,
    rest: Vec<u8>,
    is_over: bool,
    is_silent: bool,
}

impl Transcript {
    async fn read(&mut self, connection: &mut Connection, deadline: Instant) {
        match timeout_at(deadline, connection.more()).await {
            Ok(Some(bytes)) => self.rest.extend_from_slice(&bytes),
            Ok(None) => self.is_over = true,
            Err(_) => (self.is_over, self.is_silent) = (true, true),
        }
        while let Some((first, payload)) = take_frame(&mut self.rest) {
            match first {
                0x81 => {
                    let event = serde_json::from_slice(&payload);
                    let is_line = payload.ends_with(b"\n");
                    self.events.push(json!([is_line, event.unwrap_or(Value::Null)]));
                }
                0x82 => self.events.push(json!("protobuf")),
                _ => {
                    let escaped = payload.escape_ascii().to_string();
                    self.others.push(json!(format!("{first:x} {escaped}")));
                }
            }
        }
    }
}

/// Takes a whole frame of a server; its first byte and its payload.
fn take_frame(bytes: &mut Vec<u8>) -> Option<(u8, Vec<u8>)> {
    let (first, second) = (*bytes.first()?, *bytes.get(1)?);
    let digits = match second {
        126 => 2,
        127 => 8,
        _ => 0,
    };
    let length = match digits {
        0 => u64::from(second),
        _ => bytes.get(2..2 + digits)?.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
    };
    let end = 2 + digits + usize::try_from(length).ok()?;
    if bytes.len() < end {
        return None;
    }
    let frame: Vec<u8> = bytes.drain(..end).collect();
    Some((first, frame[2 + digits..].to_vec()))
}

/// Targets, and how many events each has.
const TARGETS: [(&str, usize); 10] = [
    ("/api/v1/namespaces/wire-x/configmaps?watch=1&timeoutSeconds=2&resourceVersion=0", 4),
    ("/api/v1/namespaces/wire-x/configmaps?watch=1&timeoutSeconds=2&resourceVersion=0", 4),
    ("/api/v1/namespaces/wire-x/configmaps?watch=1&timeoutSeconds=2", 4),
    ("/api/v1/watch/namespaces/wire-x/configmaps/a?timeoutSeconds=2", 1),
    (
        "/apis/example.com/v1/namespaces/wire-x/widgets?watch=1&timeoutSeconds=2&resourceVersion=0",
        2,
    ),
    ("/apis/example.com/v1/namespaces/wire-x/widgets?watch=1&timeoutSeconds=2", 2),
    ("/api/v1/namespaces/wire-x/configmaps?watch=1&timeoutSeconds=9223372037&resourceVersion=0", 0),
    ("/api/v1/namespaces/wire-x/configmaps?resourceVersion=0", 0),
    ("/api/v1/namespaces/wire-x/pods/missing/exec?command=x&stdout=1", 0),
    ("/api/v1/namespaces/wire-x/configmaps/a?watch=1", 0),
];
const PROTOCOLS: [&str; 9] =
    ["a", "b", "v4.channel.k8s.io", "binary.k8s.io", "a, b", "a,", "", " ", "a b"];
const ORIGINS: [&str; 18] = [
    "null",
    "foo",
    "",
    "http://localhost",
    "http://localhost:80",
    "HTTP://LOCALHOST",
    "http://[::1]:80",
    "http://127.0.0.1",
    "http://a.example",
    "http://localhost/x",
    "http://localhost:x",
    "http://local host",
    "localhost",
    "/localhost",
    "//localhost",
    "file://",
    "http:",
    "http://localhost\u{e9}",
];
const CONNECTIONS: [&str; 7] = [
    "upgrade",
    "keep-alive, Upgrade",
    "x-upgrade-x",
    "keep-alive",
    "UPGRADE,",
    "",
    "close, upgrade",
];
/// Codes with their reasons, and what is no code.
const CLOSES: [&[u8]; 8] = [
    b"\x03\xe8",
    b"\x03\xe8bye",
    b"\x03\xe9",
    b"\x03\xed",
    b"\x0f\xa0",
    b"\x00\x01",
    b"\x03",
    b"\x03\xe8\xff\xfe",
];
/// Longer than the time-outs of the watches.
const SCRIPT_MAX: Duration = Duration::from_secs(6);
