//! Requests from the grammar of Go's server and the paths and parameters of kube-apiserver, changed
//! by bytes.

use fastrand::Rng;

use super::case::{Case, Field};
use super::fields;
use super::peer::Protocol;
use super::sockets::Script;

/// Returns the case of a seed.
pub(crate) fn case(seed: u64) -> Case {
    let rng = &mut Rng::with_seed(seed);
    let protocol = pick(rng, &[Protocol::Http1, Protocol::Http1, Protocol::Http2]);
    let method: &[u8] = match rng.u32(..100) {
        0..40 => b"GET",
        40..63 => b"DELETE",
        63..76 => b"PATCH",
        76..85 => b"PUT",
        85..93 => b"POST",
        93..96 => b"HEAD",
        _ => pick(rng, &ODD_METHODS).as_bytes(),
    };
    let mut target = target(rng, matches!(method, b"GET" | b"HEAD"));
    if rng.u32(..100) < 70 {
        for _ in 0..rng.u32(1..=3) {
            mutate(rng, &mut target, protocol);
        }
    }
    let mut case = Case {
        protocol,
        method: method.to_vec(),
        target,
        version: if rng.u32(..100) < 96 { "HTTP/1.1" } else { pick(rng, &VERSIONS) },
        fields: vec![Field::new("Host", "localhost")],
        body: Vec::new(),
        left_out: None,
        script: Script::default(),
    };
    fields::add(rng, &mut case);
    if protocol == Protocol::Http2 {
        for field in &mut case.fields {
            if rng.u32(..500) > 0 {
                field.name.make_ascii_lowercase();
            }
        }
        if rng.u32(..200) == 0 {
            case.left_out = Some(pick(rng, &[":method", ":scheme", ":authority", ":path"]));
        }
    }
    case
}

fn target(rng: &mut Rng, is_read: bool) -> Vec<u8> {
    let mut path = match rng.u32(..100) {
        0..30 => "/api/v1/namespaces/wire-x/configmaps".to_owned(),
        30..60 => format!("/api/v1/namespaces/wire-x/configmaps/{}", pick(rng, &NAMES)),
        60..70 => "/apis/example.com/v1/namespaces/wire-x/widgets".to_owned(),
        70..80 => format!("/apis/example.com/v1/namespaces/wire-x/widgets/{}", pick(rng, &NAMES)),
        80..82 => "/api/v1/watch/namespaces/wire-x/configmaps".to_owned(),
        82..91 if is_read => pick(rng, &WIDE).to_owned(),
        82..91 => "/api/v1/namespaces/wire-x/configmaps/a".to_owned(),
        _ => pick(rng, &OTHER).to_owned(),
    };
    if rng.u32(..40) == 0 {
        path.insert_str(0, pick(rng, &PREFIXES));
    }
    let count = pick(rng, &[0, 1, 1, 2, 2, 3]);
    let mut parameters: Vec<String> = (0..count).map(|_| parameter(rng, is_read)).collect();
    if path.contains("/watch/") || parameters.iter().any(|given| given.starts_with("watch")) {
        parameters.push("timeoutSeconds=1".to_owned());
    }
    if !is_read && rng.u32(..100) < 55 {
        parameters.insert(rng.usize(..=parameters.len()), "dryRun=All".to_owned());
    }
    let mut target = path.into_bytes();
    if !parameters.is_empty() {
        target.push(b'?');
        target.extend_from_slice(parameters.join("&").as_bytes());
    }
    target
}

fn parameter(rng: &mut Rng, is_read: bool) -> String {
    let name = match (rng.u32(..30), is_read) {
        (0, true) => "watch",
        (_, true) => pick(rng, &READ_PARAMETERS),
        (_, false) => pick(rng, &WRITE_PARAMETERS),
    };
    let value = match name {
        "labelSelector" => pick(rng, &LABEL_SELECTORS),
        "fieldSelector" => pick(rng, &FIELD_SELECTORS),
        "resourceVersion" => pick(rng, &["0", "0", "0", "1", "", "abc"]),
        "limit" => pick(rng, &["1", "2", "500", "-1", "x"]),
        "watch" => pick(rng, &["1", "true", "false", "0", ""]),
        "pretty" => pick(rng, &["true", "1", "0", ""]),
        "propagationPolicy" => pick(rng, &["Background", "Orphan", "Foreground", "x"]),
        "gracePeriodSeconds" => pick(rng, &["0", "-1", "30", "x"]),
        "fieldValidation" => pick(rng, &["Strict", "Warn", "Ignore", "x"]),
        "timeout" => pick(rng, &["30s", "1m", "x", "5"]),
        _ => pick(rng, &["", "x", "true", "a%20b", "+", "%C3%A9"]),
    };
    match rng.u32(..30) {
        0 => name.to_owned(),
        1 => format!("{name}={value}&{name}=other"),
        _ => format!("{name}={value}"),
    }
}

/// Changes some bytes of a target.
fn mutate(rng: &mut Rng, target: &mut Vec<u8>, protocol: Protocol) {
    // Most depends on what is at a boundary.
    let is_boundary = |at: &usize| target.get(*at).is_none_or(|byte| b"/?&=".contains(byte));
    let boundaries: Vec<usize> = (0..=target.len()).filter(is_boundary).collect();
    let at = if rng.bool() { pick(rng, &boundaries) } else { rng.usize(..=target.len()) };
    let piece: Vec<u8> = match rng.u32(..200) {
        0..50 => b"#".to_vec(),
        50..110 => vec![pick(rng, VISIBLE)],
        110..150 => pick(rng, &SEQUENCES).as_bytes().to_vec(),
        150..166 => vec![rng.u8(0x80..)],
        166..180 => {
            let escaped = target.get(at).copied().unwrap_or(b'#');
            format!("%{escaped:02X}").into_bytes()
        }
        180..184 => vec![rng.u8(1..0x20)],
        184..186 => vec![0x7f],
        186..190 => vec![b'y'; rng.usize(..3000)],
        190 => vec![b'y'; rng.usize(60_000..1_100_000)],
        // These bytes are for HTTP/2 only: the end of a line makes another request of HTTP/1.1.
        191..194 if protocol == Protocol::Http2 => {
            pick(rng, &[" ", "\r\n", "\0", "\n"]).as_bytes().to_vec()
        }
        _ => b" ".to_vec(),
    };
    let length = pick(rng, &[0, 0, 0, 1, 1, 4]);
    let end = (at + length).min(target.len());
    if rng.u32(..12) == 0 {
        target.drain(at..end);
    } else {
        target.splice(at..end, piece);
    }
}

/// Returns one of several.
pub(crate) fn pick<T: Copy>(rng: &mut Rng, choices: &[T]) -> T {
    choices[rng.usize(..choices.len())]
}

const ODD_METHODS: [&str; 14] = [
    "OPTIONS", "TRACE", "CONNECT", "get", "Delete", "LIST", "PURGE", "G#T", "G\"T", "DELETE#", "",
    "M-SEARCH", "PRI", "D<L",
];
const VERSIONS: [&str; 8] =
    ["HTTP/1.0", "HTTP/1.2", "HTTP/2.0", "HTTP/0.9", "http/1.1", "HTTP/1.1 ", "HTTP/11", ""];
const NAMES: [&str; 7] = ["a", "a", "b", "c", "x.y", "missing", "A_B"];
/// Paths that reach beyond one namespace, for reads alone.
const WIDE: [&str; 6] = [
    "/api/v1/configmaps",
    "/api/v1/namespaces",
    "/api/v1/namespaces/wire-x",
    "/apis/example.com/v1/widgets",
    "/api/v1/watch/configmaps",
    "/api/v1/nodes",
];
const OTHER: [&str; 16] = [
    "/version",
    "/api",
    "/apis",
    "/api/v1",
    "/livez/ping",
    "/nowhere",
    "/api/v1/nonsense",
    "/apis/no.such/v1/things",
    "/api/v1/namespaces/wire-x/nonsense",
    "/api/v1/namespaces/wire-x/configmaps/a/status",
    "/apis/example.com/v1/namespaces/wire-x/widgets/a/scale",
    "/api/v1/namespaces/wire-x/pods/missing/log",
    "/api/v1/namespaces/wire-x/services/missing/proxy/x",
    "/api/v1/namespaces/wire-x/configmaps/",
    "*",
    "/",
];
const PREFIXES: [&str; 9] = [
    "http://localhost",
    "https://localhost:6443",
    "http://other.example",
    "HTTP://localhost",
    "//localhost",
    "/",
    "http:",
    "x",
    "localhost:80",
];
const READ_PARAMETERS: [&str; 9] = [
    "labelSelector",
    "labelSelector",
    "fieldSelector",
    "resourceVersion",
    "resourceVersion",
    "limit",
    "pretty",
    "timeout",
    "unknown",
];
const WRITE_PARAMETERS: [&str; 9] = [
    "labelSelector",
    "fieldSelector",
    "fieldManager",
    "fieldValidation",
    "propagationPolicy",
    "gracePeriodSeconds",
    "orphanDependents",
    "pretty",
    "unknown",
];
const LABEL_SELECTORS: [&str; 12] = [
    "num>10",
    "num<10",
    "app=a",
    "app%3Da",
    "app+in+(a,b)",
    "app%20notin%20(a)",
    "!plain",
    "app",
    "app==a,num",
    "app=\"a\"",
    "app=a%23",
    "",
];
const FIELD_SELECTORS: [&str; 6] = [
    "metadata.name=a",
    "metadata.name%3Da",
    "metadata.namespace=wire-x",
    "metadata.name!=a",
    "spec.x=1",
    "metadata.name=a#",
];
/// Bytes that a parser of targets may take for something else.
const VISIBLE: &[u8] = b"#<>\"`\\^{}|[]%+;&=?@:!$'()*,~./-_a0";
const SEQUENCES: [&str; 30] = [
    "%",
    "%2",
    "%zz",
    "%23",
    "%2F",
    "%2f",
    "%3F",
    "%00",
    "%0d%0a",
    "%20",
    "%25",
    "%C3%A9",
    "%FF",
    "//",
    "/./",
    "/../",
    "/..",
    "..",
    "%2e%2e/",
    ";x=y",
    "&&",
    "??",
    "?#",
    "#?",
    "&#",
    "é",
    "\u{2028}",
    "&dryRun=All",
    "dryRun=All",
    "%26dryRun=All",
];
