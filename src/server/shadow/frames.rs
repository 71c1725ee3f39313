//! The frames of the upstream's watch, from the copy of its body.

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::api::resource_version::ResourceVersion;
use crate::codec::bookmark;
use crate::codec::frame::{FrameSplitter, RawFrame};
use crate::codec::gzip::MembersReader;
use crate::server::shadow::outcome::Cause;
use crate::server::shadow::request::CopiedChunk;
use crate::server::shadow::version;

pub(super) struct UpstreamFrames {
    pub(super) chunks: mpsc::Receiver<CopiedChunk>,
    /// Set if the body is compressed.
    pub(super) members: Option<MembersReader>,
    pub(super) splitter: FrameSplitter,
    pub(super) bytes: u64,
}

pub(super) struct UpstreamFrame {
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
            // A copy, since frames may be kept longer than their chunk is counted.
            let plain = Bytes::copy_from_slice(&plain);
            let mut frames = Vec::new();
            self.splitter.push(plain, &mut frames).map_err(|_| Cause::Malformed)?;
            if !frames.is_empty() {
                let identify = |raw: RawFrame| UpstreamFrame {
                    at: version::identify(&raw.object).map(|(_, at)| at),
                    raw,
                };
                return Ok(Some(frames.into_iter().map(identify).collect()));
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
