//! The comparisons to be made, and the copied answers in them.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use tokio::sync::mpsc;

use crate::codec::held_bytes::Claim;
use crate::server::http::headers::is_gzip;
use crate::server::shadow::request::ShadowRequest;

/// A comparison to be made.
pub(crate) enum Comparison {
    /// The comparison of a whole answer.
    Answer(Box<ShadowRequest>, CopiedAnswer),
    /// The comparison of a watch, while it goes on.
    Watch(Box<ShadowRequest>, AnswerHead, mpsc::Receiver<CopiedChunk>),
}

/// A whole answer.
pub(crate) struct CopiedAnswer {
    pub(crate) head: AnswerHead,
    pub(crate) chunks: Vec<CopiedChunk>,
    /// How long it took after the request arrived.
    pub(crate) after: Duration,
}

/// The head of an answer.
#[derive(Clone, Debug)]
pub(crate) struct AnswerHead {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// How long it took after the request arrived.
    pub(crate) after: Duration,
}

impl AnswerHead {
    /// Whether the body is compressed.
    pub(crate) fn is_gzip(&self) -> bool {
        is_gzip(&self.headers)
    }
}

/// Bytes of an answer, which count as long as they are kept.
pub(crate) struct CopiedChunk {
    pub(crate) bytes: Bytes,
    pub(super) claim: Option<Claim>,
}

impl CopiedChunk {
    /// Whether there was no room for the bytes, so that nothing follows.
    pub(crate) fn is_lost(&self) -> bool {
        self.claim.is_none()
    }
}
