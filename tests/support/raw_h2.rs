//! An HTTP/2 client that writes its frames and header blocks byte for byte, as no library does.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The outcome of one request at a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A whole response.
    Answer { status: u16, body: Vec<u8> },
    /// RST_STREAM with this code.
    Reset(u32),
    /// GOAWAY with this code, and no answer.
    GoAway(u32),
    /// The end of the connection without either.
    Closed,
}

/// A connection in clear text, with prior knowledge.
pub(crate) struct RawH2 {
    stream: TcpStream,
}

impl RawH2 {
    /// Connects, and sends the preface with empty SETTINGS.
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let mut stream = TcpStream::connect(address).await.expect("the server listens");
        stream.set_nodelay(true).expect("a socket");
        let mut preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        preface.extend(frame(SETTINGS, 0, 0, &[]));
        stream.write_all(&preface).await.expect("the server reads");
        Self { stream }
    }

    /// Sends bytes. A server that has closed the connection does not read them.
    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        drop(self.stream.write_all(bytes).await);
    }

    /// Waits until the server is done with a stream.
    pub(crate) async fn outcome(&mut self, stream: u32) -> Outcome {
        let (mut status, mut body) = (0, Vec::new());
        let mut gone = None;
        loop {
            let Some((kind, flags, id, payload)) = self.frame().await else {
                return gone.map_or(Outcome::Closed, Outcome::GoAway);
            };
            match kind {
                HEADERS if id == stream => status = status_of(&payload),
                DATA if id == stream => body.extend(payload),
                RST_STREAM if id == stream => return Outcome::Reset(code(&payload)),
                GOAWAY => gone = payload.get(4..).map(code),
                _ => continue,
            }
            if id == stream && flags & END_STREAM != 0 {
                return Outcome::Answer { status, body };
            }
        }
    }

    /// Reads a frame: its kind, its flags, its stream, its payload.
    async fn frame(&mut self) -> Option<(u8, u8, u32, Vec<u8>)> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).await.ok()?;
        let [high, middle, low, kind, flags, id @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, high, middle, low]) as usize];
        self.stream.read_exact(&mut payload).await.ok()?;
        Some((kind, flags, u32::from_be_bytes(id), payload))
    }
}

/// Sends one request on a connection of its own: `head` is its header block.
pub(crate) async fn request(address: SocketAddr, head: &[u8], body: &[u8]) -> Outcome {
    let mut client = RawH2::connect(address).await;
    client.send(&request_frames(1, head, body)).await;
    client.outcome(1).await
}

/// Returns the frames of a request.
pub(crate) fn request_frames(stream: u32, head: &[u8], body: &[u8]) -> Vec<u8> {
    let mut frames = Vec::new();
    let mut parts = head.chunks(FRAME_BYTES_MAX).peekable();
    let mut kind = HEADERS;
    while let Some(part) = parts.next() {
        let last = if parts.peek().is_none() { END_HEADERS } else { 0 };
        let end = if kind == HEADERS && body.is_empty() { END_STREAM } else { 0 };
        frames.extend(frame(kind, last | end, stream, part));
        kind = CONTINUATION;
    }
    if !body.is_empty() {
        frames.extend(frame(DATA, END_STREAM, stream, body));
    }
    frames
}

/// Returns the header block of a request to `localhost`, its fields in the plainest form.
pub(crate) fn head(method: &str, path: &[u8], fields: &[(&str, &[u8])]) -> Vec<u8> {
    let mut block = Vec::new();
    let pseudo = [(":method", method.as_bytes()), (":scheme", b"http"), (":path", path)];
    for (name, value) in pseudo.iter().chain(&[(":authority", &b"localhost"[..])]).chain(fields) {
        block.push(0);
        string(name.as_bytes(), &mut block);
        string(value, &mut block);
    }
    block
}

/// Appends a string literal without Huffman coding (RFC 7541 §5.2).
pub(crate) fn string(bytes: &[u8], block: &mut Vec<u8>) {
    match u8::try_from(bytes.len()).ok().filter(|length| *length < 127) {
        Some(length) => block.push(length),
        None => {
            block.push(127);
            let mut rest = bytes.len() - 127;
            while rest >= 128 {
                block.push(0x80 | (rest % 128) as u8);
                rest /= 128;
            }
            block.push(rest as u8);
        }
    }
    block.extend(bytes);
}

/// Returns a frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a frame").to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

fn code(payload: &[u8]) -> u32 {
    payload.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

/// Returns `:status`, the first field of the first response of a connection: an entry of the static
/// table, or three digits behind the name of entry 8.
fn status_of(block: &[u8]) -> u16 {
    let digits = match block {
        [index @ 0x88..=0x8E, ..] => {
            return [200, 204, 206, 304, 400, 404, 500][usize::from(index - 0x88)];
        }
        [0x08 | 0x18 | 0x48, 3, digits @ ..] => digits[..3].to_vec(),
        [0x08 | 0x18 | 0x48, length @ 0x82..=0x83, coded @ ..] => {
            huffman_digits(&coded[..usize::from(length & 0x7F)])
        }
        other => panic!("no status: {other:?}"),
    };
    String::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).expect("a number")
}

/// Decodes digits: 0 to 2 have codes of 5 bits, the others of 6 (RFC 7541, appendix B).
fn huffman_digits(coded: &[u8]) -> Vec<u8> {
    let bits: String = coded.iter().map(|byte| format!("{byte:08b}")).collect();
    let mut rest = &*bits;
    let mut digits = Vec::new();
    while digits.len() < 3 {
        let read = |length| {
            let bits = rest.get(..length).expect("enough bits");
            u8::from_str_radix(bits, 2).expect("bits")
        };
        let short = read(5);
        let (digit, length) = match short {
            0..=2 => (short, 5),
            _ => (read(6) - 0x19 + 3, 6),
        };
        digits.push(b'0' + digit);
        rest = rest.get(length..).expect("enough bits");
    }
    digits
}

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const CONTINUATION: u8 = 9;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
const FRAME_BYTES_MAX: usize = 16 << 10;
