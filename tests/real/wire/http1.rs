//! HTTP/1.1 by its bytes: requests are written as they are, and responses read by a small parser of
//! its own.

use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout, timeout_at};

use super::case::{Case, Field};
use super::outcome::{End, Outcome, Usable};
use super::peer::{Peer, Protocol, Stream};
use super::sockets::{Script, talk};
use crate::suite::wire::Answer;

/// A client that keeps one connection as long as it can be used.
pub(crate) struct Http1 {
    peer: Peer,
    connection: Option<Connection>,
}

impl Http1 {
    pub(crate) fn new(peer: Peer) -> Self {
        Self { peer, connection: None }
    }

    /// Sends a request, and looks whether another can follow on its connection.
    pub(crate) async fn send(&mut self, case: &Case, wait: Duration) -> Outcome {
        let opened = match self.connection.take() {
            Some(open) => Some(open),
            None => Connection::open(&self.peer).await,
        };
        let Some(mut connection) = opened else { return Outcome::without_answer(End::Closed) };
        let (head, body) = case.http1(&self.peer);
        let mut outcome = connection.exchange((&head, &body), case, wait).await;
        if outcome.answer.status == 101 {
            outcome.answer.body = talk(&mut connection, &case.script).await;
        }
        if outcome.usable == Usable::Yes {
            outcome.usable = connection.probe().await;
        }
        if outcome.usable == Usable::Yes {
            self.connection = Some(connection);
        }
        outcome
    }
}

/// An open connection and what has been read from it.
pub(crate) struct Connection {
    read: Reader,
    write: WriteHalf<Stream>,
}

impl Connection {
    pub(crate) async fn open(peer: &Peer) -> Option<Self> {
        let stream = peer.open(Protocol::Http1).await.ok()?;
        let (read, write) = tokio::io::split(stream);
        Some(Self { read: Reader { stream: read, buffer: Vec::new() }, write })
    }

    /// Writes a head and its body, and reads one response, within `wait`.
    async fn exchange(
        &mut self,
        (head, body): (&[u8], &[u8]),
        case: &Case,
        wait: Duration,
    ) -> Outcome {
        let continued = Notify::new();
        let write = &mut self.write;
        let mut is_written = false;
        let mut partial = Outcome::without_answer(End::Silent);
        let read = self.read.response(case.is_head(), &continued, &mut partial);
        let written = async {
            write.write_all(head).await?;
            write.flush().await?;
            if case.waits_for_continue() {
                // As RFC 9110 section 10.1.1 recommends, it does not wait for ever.
                drop(timeout(CONTINUE_MAX, continued.notified()).await);
            }
            write.write_all(body).await?;
            write.flush().await
        };
        let deadline = Instant::now() + wait;
        let response = async {
            tokio::pin!(read);
            tokio::select! {
                biased;
                end = &mut read => return end,
                // A server that refuses a request may stop reading it.
                result = written => is_written = result.is_ok(),
            }
            read.await
        };
        let ended = timeout_at(deadline, response).await;
        if ended.is_err() || (!is_written && partial.usable == Usable::Yes) {
            partial.usable = Usable::Unclear;
        }
        partial
    }

    /// Sends a request whose response has no doubtful part.
    async fn probe(&mut self) -> Usable {
        let case = probe();
        let (head, _) = case.http1(&Peer::plain("", "", ([127, 0, 0, 1], 0).into()));
        let mut outcome = Box::pin(self.exchange((&head, b""), &case, PROBE_MAX)).await;
        let is_right = memchr::memmem::find(&outcome.answer.body, PROBE_NAME).is_some();
        outcome.usable = match outcome.end {
            End::Answer if outcome.answer.status == 200 && is_right => Usable::Yes,
            End::Closed => Usable::No,
            _ => Usable::Confused,
        };
        outcome.usable
    }

    /// Writes bytes; a failure shows in what is read.
    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        drop(self.write.write_all(bytes).await);
        drop(self.write.flush().await);
    }

    /// Ends the client's half.
    pub(crate) async fn end_writing(&mut self) {
        drop(self.write.shutdown().await);
    }

    /// Reads more bytes; `None` at the end.
    pub(crate) async fn more(&mut self) -> Option<Vec<u8>> {
        if self.read.buffer.is_empty() && !self.read.fill().await {
            return None;
        }
        Some(std::mem::take(&mut self.read.buffer))
    }
}

/// Returns the request that follows each case: it reads an object that no case changes.
pub(crate) fn probe() -> Case {
    Case {
        protocol: Protocol::Http1,
        method: b"GET".to_vec(),
        target: b"/api/v1/namespaces/wire-p/configmaps/probe?resourceVersion=0".to_vec(),
        version: "HTTP/1.1",
        // HTTP/2 has only lower-case names.
        fields: vec![Field::new("host", "localhost"), Field::new("authorization", BEARER)],
        body: Vec::new(),
        left_out: None,
        script: Script::default(),
    }
}

struct Reader {
    stream: ReadHalf<Stream>,
    buffer: Vec<u8>,
}

impl Reader {
    /// Reads more; false at the end, or when the connection is lost.
    async fn fill(&mut self) -> bool {
        self.buffer.reserve(16 << 10);
        matches!(self.stream.read_buf(&mut self.buffer).await, Ok(1..))
    }

    /// Reads one response into `outcome`, which has what came so far if this is not awaited to its
    /// end.
    async fn response(&mut self, is_head: bool, continued: &Notify, outcome: &mut Outcome) {
        let (status, headers) = loop {
            let Some((status, headers)) = self.head().await else {
                let end = if self.buffer.is_empty() { End::Closed } else { End::Answer };
                *outcome = Outcome { interim: outcome.interim, ..Outcome::without_answer(end) };
                outcome.usable = Usable::No;
                outcome.answer.broken = Some("within its head");
                return;
            };
            if !(100..200).contains(&status) || status == 101 {
                break (status, headers);
            }
            outcome.interim += 1;
            continued.notify_one();
        };
        outcome.end = End::Answer;
        outcome.answer = Answer { status, headers, ..Answer::default() };
        outcome.usable = match outcome.answer.header("connection").to_ascii_lowercase() {
            value if value.contains("close") => Usable::No,
            _ if status == 101 => Usable::Unclear,
            _ => Usable::Yes,
        };
        if is_head || status == 101 || status == 204 || status == 304 {
            return;
        }
        let is_whole = if outcome.answer.header("transfer-encoding") == "chunked" {
            self.chunks(&mut outcome.answer).await
        } else if let Ok(length) = outcome.answer.header("content-length").parse() {
            self.exactly(length, &mut outcome.answer).await
        } else {
            outcome.usable = Usable::No;
            while self.fill().await {}
            outcome.answer.body = std::mem::take(&mut self.buffer).into();
            true
        };
        if !is_whole {
            outcome.answer.broken = Some("in the middle");
            outcome.usable = Usable::No;
        }
    }

    /// Reads a status line and its fields, which are sorted. `None` at the end of the connection.
    async fn head(&mut self) -> Option<(u16, Vec<(String, String)>)> {
        let end = loop {
            match memchr::memmem::find(&self.buffer, b"\r\n\r\n") {
                Some(end) => break end + 4,
                None if !self.fill().await => return None,
                None => {}
            }
        };
        let head: Vec<u8> = self.buffer.drain(..end).collect();
        let text = String::from_utf8_lossy(&head).into_owned();
        let mut lines = text.split("\r\n");
        let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
        let mut headers: Vec<_> = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        headers.sort();
        Some((status, headers))
    }

    async fn exactly(&mut self, length: usize, answer: &mut Answer) -> bool {
        while self.buffer.len() < length {
            if !self.fill().await {
                answer.body = std::mem::take(&mut self.buffer).into();
                return false;
            }
        }
        answer.body = self.buffer.drain(..length).collect::<Vec<_>>().into();
        true
    }

    async fn chunks(&mut self, answer: &mut Answer) -> bool {
        let mut body = Vec::new();
        loop {
            let Some(line) = self.line().await else { return false };
            let size = line.split(';').next().and_then(|size| usize::from_str_radix(size, 16).ok());
            let Some(size) = size else { return false };
            let mut chunk = Answer::default();
            if size > 0 && !self.exactly(size, &mut chunk).await {
                return false;
            }
            body.extend_from_slice(&chunk.body);
            answer.body = Bytes::copy_from_slice(&body);
            // The end of the chunk, or of each trailer and of all.
            loop {
                let Some(line) = self.line().await else { return false };
                if line.is_empty() {
                    break;
                }
            }
            if size == 0 {
                return true;
            }
        }
    }

    async fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = memchr::memmem::find(&self.buffer, b"\r\n") {
                let line: Vec<u8> = self.buffer.drain(..end + 2).collect();
                return Some(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            if !self.fill().await {
                return None;
            }
        }
    }
}

/// The credential of all cases.
pub(crate) const BEARER: &str = "Bearer admin-token";
/// A text of the object that the probe reads.
pub(crate) const PROBE_NAME: &[u8] = b"the probe's own text";
const CONTINUE_MAX: Duration = Duration::from_secs(1);
const PROBE_MAX: Duration = Duration::from_secs(20);
