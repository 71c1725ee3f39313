//! The frames of the upstream's watch, cut from the copy of its body.

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::api::media_type::Encoding;
use crate::api::resource_version::ResourceVersion;
use crate::codec::bookmark;
use crate::codec::frame::RawFrame;
use crate::codec::gzip::MembersReader;
use crate::server::shadow::outcome::Cause;
use crate::server::shadow::request::CopiedChunk;
use crate::server::shadow::version::{self, FrameCutter};

/// The frames of the upstream's watch.
pub(super) struct UpstreamFrames {
    pub(super) chunks: mpsc::Receiver<CopiedChunk>,
    /// Set if the body is compressed.
    pub(super) members: Option<MembersReader>,
    pub(super) cutter: FrameCutter,
    pub(super) encoding: Encoding,
    pub(super) bytes: u64,
}

/// A frame of the upstream's watch.
pub(super) struct UpstreamFrame {
    pub(super) bytes: Bytes,
    pub(super) raw: RawFrame,
    pub(super) at: Option<ResourceVersion>,
}

impl UpstreamFrames {
    /// Returns the next whole frames; `None` at the end. Cancel safe.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<UpstreamFrame>>, Cause> {
        loop {
            let Some(chunk) = self.chunks.recv().await else { return Ok(None) };
            if chunk.is_lost() {
                return Err(Cause::Busy);
            }
            self.bytes += chunk.bytes.len() as u64;
            let plain = match &mut self.members {
                Some(members) => members.push(&chunk.bytes),
                None => Ok(chunk.bytes.clone()),
            };
            let plain = plain.map_err(|_| Cause::Malformed)?;
            let cut = self.cutter.push(&plain).map_err(|_| Cause::Malformed)?;
            let read = |bytes: Bytes| {
                let raw = version::parse_frame(self.encoding, bytes.clone())?;
                let at = version::identify(&raw.object).map(|object| object.at);
                Some(UpstreamFrame { bytes, raw, at })
            };
            let frames: Option<Vec<_>> = cut.into_iter().map(read).collect();
            let frames = frames.ok_or(Cause::Malformed)?;
            if !frames.is_empty() {
                return Ok(Some(frames));
            }
        }
    }
}

impl UpstreamFrame {
    /// Returns the resourceVersion up to which nothing has changed before this frame.
    pub(super) fn position(&self) -> Option<ResourceVersion> {
        match &*self.raw.event {
            "BOOKMARK" => bookmark::read(&self.raw.object).map(|(at, _)| at),
            "ERROR" => None,
            _ => self.at.map(|at| ResourceVersion(at.0.saturating_sub(1))),
        }
    }
}
