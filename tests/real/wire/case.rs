//! One request by its bytes, over either protocol.

use super::peer::{Peer, Protocol};
use super::sockets::Script;

/// A field of a request's head. Over HTTP/1.1 the line is written as it is here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) name: Vec<u8>,
    /// Between the name and the value; only HTTP/1.1 has one.
    pub(crate) separator: &'static str,
    pub(crate) value: Vec<u8>,
    /// The end of the line; only HTTP/1.1 has one.
    pub(crate) end: &'static str,
}

impl Field {
    pub(crate) fn new(name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Self {
        let (name, value) = (name.as_ref().to_vec(), value.as_ref().to_vec());
        Self { name, separator: ": ", value, end: "\r\n" }
    }

    pub(crate) fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name.as_bytes())
    }
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) protocol: Protocol,
    pub(crate) method: Vec<u8>,
    pub(crate) target: Vec<u8>,
    /// The third part of the request line; only HTTP/1.1 has one.
    pub(crate) version: &'static str,
    pub(crate) fields: Vec<Field>,
    pub(crate) body: Vec<u8>,
    /// The pseudo-header fields of HTTP/2, `:method` to `:path`, that are left out.
    pub(crate) left_out: Option<&'static str>,
    /// The frames that follow a 101.
    pub(crate) script: Script,
}

impl Case {
    /// Whether it may change something.
    pub(crate) fn is_write(&self) -> bool {
        !matches!(&*self.method, b"GET" | b"HEAD" | b"OPTIONS" | b"TRACE")
    }

    /// About how many bytes its head has.
    pub(crate) fn bytes(&self) -> usize {
        let values = self.fields.iter().map(|field| field.value.len());
        values.sum::<usize>() + self.target.len()
    }

    pub(crate) fn is_head(&self) -> bool {
        self.method == b"HEAD"
    }

    /// Whether the client waits for a 100 before it sends the body.
    pub(crate) fn waits_for_continue(&self) -> bool {
        !self.body.is_empty() && self.fields.iter().any(|field| field.is("expect"))
    }

    /// Returns the head of HTTP/1.1 and the body for one server.
    pub(crate) fn http1(&self, peer: &Peer) -> (Vec<u8>, Vec<u8>) {
        let mut head = Vec::new();
        for part in [&*self.method, b" ", &self.target, b" ", self.version.as_bytes(), b"\r\n"] {
            head.extend_from_slice(part);
        }
        for field in &self.fields {
            let separator = field.separator.as_bytes();
            for part in [&*field.name, separator, &field.value, field.end.as_bytes()] {
                head.extend_from_slice(part);
            }
        }
        head.extend_from_slice(b"\r\n");
        (peer.placed(&head), peer.placed(&self.body))
    }

    /// Returns the fields of HTTP/2 for one server.
    pub(crate) fn http2(&self, peer: &Peer) -> Vec<(Vec<u8>, Vec<u8>)> {
        let authority = self.fields.iter().find(|field| field.is("host"));
        let authority = authority.map(|host| host.value.clone());
        let pseudo = [
            (":method", Some(self.method.clone())),
            (":scheme", Some(b"https".to_vec())),
            (":authority", authority),
            (":path", Some(self.target.clone())),
        ];
        let pseudo = pseudo
            .into_iter()
            .filter(|(name, _)| self.left_out != Some(*name))
            .filter_map(|(name, value)| Some((name.as_bytes().to_vec(), peer.placed(&value?))));
        let fields = self.fields.iter().filter(|field| !field.is("host"));
        let fields = fields.map(|field| (field.name.clone(), peer.placed(&field.value)));
        pseudo.chain(fields).collect()
    }
}

/// The bytes of the request, escaped, so that it can be typed.
impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let escaped = |bytes: &[u8]| {
            let text = bytes.escape_ascii().to_string();
            let length = text.len();
            if length <= SHOWN_MAX {
                return text;
            }
            let start: String = text.chars().take(SHOWN_MAX).collect();
            format!("{start}… ({length} in all)")
        };
        let (method, target) = (escaped(&self.method), escaped(&self.target));
        write!(f, "{}: {method} {target}", self.protocol.name())?;
        if self.protocol == Protocol::Http1 && self.version != "HTTP/1.1" {
            write!(f, " {}", self.version)?;
        }
        if let Some(name) = self.left_out {
            write!(f, " without {name}")?;
        }
        let others = self.fields.len().saturating_sub(FIELDS_SHOWN_MAX);
        for field in self.fields.iter().take(FIELDS_SHOWN_MAX) {
            let (name, value) = (escaped(&field.name), escaped(&field.value));
            let (separator, end) = (field.separator.escape_debug(), field.end.escape_debug());
            match (field.separator, field.end) {
                (": ", "\r\n") => write!(f, "\n      {name}: {value}")?,
                _ => write!(f, "\n      {name}{separator}{value}{end}")?,
            }
        }
        if others > 0 {
            write!(f, "\n      and {others} more fields")?;
        }
        if !self.body.is_empty() {
            write!(f, "\n      body {}", escaped(&self.body))?;
        }
        if self.script != Script::default() {
            let frames: Vec<_> = self.script.frames.iter().map(|frame| escaped(frame)).collect();
            let end = if self.script.ends { ", and ends its half" } else { "" };
            write!(f, "\n      after a 101 sends {frames:?}{end}")?;
        }
        Ok(())
    }
}

/// How much of a target or value is shown.
const SHOWN_MAX: usize = 300;
const FIELDS_SHOWN_MAX: usize = 20;
