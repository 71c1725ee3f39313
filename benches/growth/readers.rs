//! Clients with a connection each. One thread reads all of them, so that thousands cost less than
//! what they measure.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use memchr::memmem;
use socket2::SockRef;
use tokio::time::Instant;

use crate::frames::CHANGED;
use crate::ingest::DONE;
use crate::source::COLLECTION;

const TICK: Duration = Duration::from_millis(20);
const TIMEOUT: Duration = Duration::from_secs(400);

/// A client of HTTP/1.1 that reads a watch, and counts its objects and events.
pub(crate) struct Reader {
    stream: TcpStream,
    /// The end of what was read, which may have the begin of [`CHANGED`].
    rest: Vec<u8>,
    read: usize,
    bytes: usize,
    is_done: bool,
}

impl Reader {
    /// Opens a watch with these parameters.
    pub(crate) fn open(weir: SocketAddr, query: &str) -> Self {
        let mut stream = TcpStream::connect(weir).expect("Weir listens");
        let head = "HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nAccept: application/vnd.kubernetes.protobuf";
        write!(stream, "GET {COLLECTION}?{query} {head}\r\n\r\n").expect("a request");
        stream.set_nonblocking(true).expect("a socket");
        // Else the kernel reads megabytes ahead.
        SockRef::from(&stream).set_recv_buffer_size(1 << 16).expect("a socket");
        Self { stream, rest: Vec::new(), read: 0, bytes: 0, is_done: false }
    }

    /// Reads up to `allowed` bytes in all.
    fn read(&mut self, allowed: usize, buffer: &mut [u8]) {
        while self.bytes < allowed && !self.is_done {
            let most = buffer.len().min(allowed - self.bytes);
            let Some(part) = buffer.get_mut(..most) else { return };
            match self.stream.read(part) {
                Ok(0) => {
                    let head = self.rest.get(..300.min(self.rest.len())).unwrap_or_default();
                    let text = String::from_utf8_lossy(head);
                    unreachable!("the watch ended after {} objects and events: {text}", self.read);
                }
                Ok(length) => {
                    self.bytes += length;
                    self.count(part.get(..length).unwrap_or_default());
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => unreachable!("{error} after {} objects and events", self.read),
            }
        }
    }

    fn count(&mut self, part: &[u8]) {
        self.rest.extend_from_slice(part);
        let last = format!("{CHANGED}{DONE}");
        self.is_done = memmem::find(&self.rest, last.as_bytes()).is_some();
        // The last one has the longer text, and is counted with the others.
        self.read += memmem::find_iter(&self.rest, CHANGED.as_bytes()).count();
        let kept = memmem::rfind(&self.rest, CHANGED.as_bytes()).unwrap_or_default();
        let from = kept.max(self.rest.len().saturating_sub(last.len()));
        self.rest.drain(..from);
        // It is counted again with the next part if it is whole.
        self.read -= usize::from(!self.is_done && self.rest.starts_with(CHANGED.as_bytes()));
    }
}

/// Reads all watches, each at most at this rate, until each has the last event. Returns the objects
/// and events that each has read.
pub(crate) fn read_all(mut readers: Vec<Reader>, bytes_per_s: f64) -> Vec<usize> {
    let (begun, mut buffer) = (Instant::now(), vec![0; 1 << 16]);
    while readers.iter().any(|reader| !reader.is_done) {
        assert!(begun.elapsed() < TIMEOUT, "not all clients have all events");
        let allowed = (begun.elapsed().as_secs_f64() * bytes_per_s) as usize;
        for reader in &mut readers {
            reader.read(allowed, &mut buffer);
        }
        std::thread::park_timeout(TICK);
    }
    readers.iter().map(|reader| reader.read).collect()
}
