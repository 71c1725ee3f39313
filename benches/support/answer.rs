//! A minimal parser of HTTP/1.1 responses, which finds the end of a response in a read buffer.

/// A complete response.
pub(crate) struct Answer {
    pub(crate) code: u16,
    /// Whether it came from Weir's cache.
    pub(crate) hit: bool,
    /// The length of head and body, which the caller removes from the buffer.
    pub(crate) bytes: usize,
}

impl Answer {
    /// Returns `None` while the response is incomplete.
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
            // Chunked. There is no pipelined response after it, so the buffer ends with it.
            None if bytes.ends_with(b"0\r\n\r\n") => bytes.len(),
            None => return None,
        };
        (bytes.len() >= end).then_some(Self { code, hit, bytes: end })
    }
}

/// Encodes a GET with a bearer token.
pub(crate) fn get(path: &str, token: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\r\n")
        .into()
}
