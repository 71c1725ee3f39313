//! The end of an HTTP/1.1 answer, found in what was read so far.

/// An answer that is whole.
pub(crate) struct Answer {
    /// The status.
    pub(crate) code: u16,
    /// Whether it came from Weir's cache.
    pub(crate) hit: bool,
    /// How much of what was read it takes.
    pub(crate) bytes: usize,
}

impl Answer {
    /// `None` as long as something is missing.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let body = bytes.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
        let head = std::str::from_utf8(bytes.get(..body)?).expect("a head is ASCII");
        let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
        let lines = head.lines().filter_map(|line| line.split_once(": "));
        let value = |name: &str| {
            lines.clone().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
        };
        let hit = value("x-weir-cache").is_some_and(|value| value.starts_with("hit"));
        let end = match value("content-length") {
            Some(length) => body + length.parse::<usize>().expect("a length"),
            // In chunks: nobody asked for the next one yet.
            None if bytes.ends_with(b"0\r\n\r\n") => bytes.len(),
            None => return None,
        };
        (bytes.len() >= end).then_some(Self { code, hit, bytes: end })
    }
}

/// A GET with a token.
pub(crate) fn get(path: &str, token: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\r\n")
        .into()
}
