//! Compares a watch while it goes on: its start with the state of the cache, its events with those
//! of a watch of the cache that begins at the same resourceVersion.
//!
//! The start ends at the bookmark that marks its end, or at the first frame that cannot be a part
//! of it. Up to that frame nothing has changed, so that its resourceVersion names the state. The
//! watch of the cache begins there.

use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::api::resource_version::ResourceVersion;
use crate::cache::core::watcher::{Batch, Watcher};
use crate::cache::handle::CacheHandle;
use crate::codec::bookmark;
use crate::codec::frame::{self, EventType, FrameSplitter, FrameType, RawFrame};
use crate::codec::gzip::MembersReader;
use crate::codec::held_bytes::Claim;
use crate::server::cached::at_state::{WAIT_MAX, begin, follow_from, start_at};
use crate::server::cached::read::CachedRead;
use crate::server::delegate::{CachedDecision, Start};
use crate::server::shadow::beside::{Beside, Compared};
use crate::server::shadow::body::difference;
use crate::server::shadow::events::{EventMatcher, Mismatch};
use crate::server::shadow::ledger::{DifferingPart, Measured};
use crate::server::shadow::outcome::{Cause, Outcome};
use crate::server::shadow::request::{AnswerHead, CopiedChunk};
use crate::server::shadow::version;

enum End {
    Outcome(Outcome),
    Start(DifferingPart),
    Event(Mismatch),
    Bookmark(DifferingPart),
}

impl<T: Into<Outcome>> From<T> for End {
    fn from(outcome: T) -> Self {
        Self::Outcome(outcome.into())
    }
}

impl From<Mismatch> for End {
    fn from(mismatch: Mismatch) -> Self {
        Self::Event(mismatch)
    }
}

impl End {
    fn conclude(self) -> (Outcome, Option<DifferingPart>) {
        let mismatch = match self {
            Self::Outcome(outcome) => return (outcome, None),
            Self::Start(what) | Self::Bookmark(what) => return (Outcome::Different, Some(what)),
            Self::Event(mismatch) => mismatch,
        };
        let name = match &mismatch {
            Mismatch::Bytes { .. } => "other bytes",
            Mismatch::OnlyUpstream { .. } => "only the upstream sends it",
            Mismatch::OnlyCache { .. } => "only the cache sends it",
            Mismatch::BrokenClaim { .. } => "the upstream had claimed to be past it",
        };
        let (upstream, cache) = mismatch.frames();
        let what = DifferingPart::Event(name, mismatch.at().0, difference(&upstream, &cache));
        (Cause::Unconfirmed.into(), Some(what))
    }
}

impl Beside<'_> {
    pub(super) async fn compare_watch(
        &self,
        head: &AnswerHead,
        chunks: mpsc::Receiver<CopiedChunk>,
    ) -> Result<Compared, Outcome> {
        let mut request_head = self.request.parts.clone();
        let (context, _, refused) = self.begin(&mut request_head).await?;
        // The stream shows that the upstream allowed it.
        if let Some(refusal) = refused {
            let what = DifferingPart::Status([head.status.as_u16(), refusal.status().as_u16()]);
            return Ok(Compared { what: Some(what), ..Compared::new(Cause::Unconfirmed) });
        }
        let held = self.shadow.made().clone();
        let read = self.read(&context, &held)?;
        let encoding = read.target.form.encoding;
        let splitter = version::splitter(encoding);
        let members = head.is_gzip().then(MembersReader::default);
        let mut frames = UpstreamFrames { chunks, members, splitter, bytes: 0 };
        let Err(end) = self.follow(&read, &head.headers, &mut frames).await;
        let measured = Measured { bytes: frames.bytes, ..Measured::default() };
        let (outcome, what) = end.conclude();
        Ok(Compared { outcome, what, measured })
    }

    async fn follow(
        &self,
        read: &CachedRead<'_>,
        headers: &HeaderMap,
        frames: &mut UpstreamFrames,
    ) -> Result<std::convert::Infallible, End> {
        let Ok(CachedDecision::Watch(plan, _)) = &self.request.decision else {
            return Err(Cause::Malformed.into());
        };
        let content_type = read.target.form.encoding.content_type(true);
        if headers.get(CONTENT_TYPE).is_none_or(|value| value != content_type) {
            return Err(End::Start(DifferingPart::Header(CONTENT_TYPE.as_str().to_owned())));
        }
        let _begun = match plan.start {
            Start::After(_) => None,
            _ => begin(read).await,
        };
        let (after, pending) = match plan.start {
            Start::After(after) => (after, Vec::new()),
            Start::State(_) | Start::ConsistentState => self.compare_start(read, frames).await?,
            Start::Now | Start::ConsistentNow => {
                let begun = frames.next().await?.ok_or(Outcome::Equal)?;
                // Events before the first frame cannot be compared.
                let after = begun.first().and_then(UpstreamFrame::position);
                (after.ok_or(Cause::UpstreamError)?, begun)
            }
        };
        self.follow_events(read, frames, after, pending).await
    }

    /// Compares the start of a watch. Returns where it ended, and the frames after it.
    async fn compare_start(
        &self,
        read: &CachedRead<'_>,
        frames: &mut UpstreamFrames,
    ) -> Result<(ResourceVersion, Vec<UpstreamFrame>), End> {
        let mut start: Vec<(Bytes, Claim)> = Vec::new();
        let mut last_key = None;
        let (after, rest) = loop {
            let Some(read) = frames.next().await? else { return Err(Cause::Cut.into()) };
            let mut read = read.into_iter();
            let mut end = None;
            for frame in read.by_ref() {
                let key = version::identify(&frame.raw.object).map(|(key, _)| key);
                let continues = frame.raw.event == FrameType::Added
                    && key.as_ref().map(|key| key.as_str().to_owned()) > last_key;
                if !continues {
                    end = Some(frame);
                    break;
                }
                last_key = key.map(|key| key.as_str().to_owned());
                let claim = self.shadow.claim(frame.raw.bytes.len()).ok_or(Cause::Busy)?;
                start.push((frame.raw.bytes, claim));
            }
            if let Some(frame) = end {
                let after = frame.position().ok_or(Cause::UpstreamError)?;
                break (after, [frame].into_iter().chain(read).collect::<Vec<_>>());
            }
        };
        let objects = start_at(read, after, &self.shadow.short_watches).await;
        let objects = objects.map_err(Outcome::from)?;
        let view = read.target.form.view;
        let differs = start.iter().zip(&objects).find_map(|((frame, _), object)| {
            difference(frame, &frame::encode(EventType::Added, object, view))
        });
        if differs.is_some() || start.len() != objects.len() {
            return Err(End::Start(DifferingPart::Start([start.len(), objects.len()], differs)));
        }
        self.shadow.record_events(&self.request.kind, start.len() as u64);
        Ok((after, rest))
    }

    async fn follow_events(
        &self,
        read: &CachedRead<'_>,
        frames: &mut UpstreamFrames,
        after: ResourceVersion,
        pending: Vec<UpstreamFrame>,
    ) -> Result<std::convert::Infallible, End> {
        let (handle, watcher) = follow_from(read, after).await.map_err(Outcome::from)?;
        let mut both = BothWatches {
            handle,
            watcher: watcher.with_view(read.target.form.view),
            matcher: EventMatcher::new(after),
            splitter: version::splitter(read.target.form.encoding),
            counted: 0,
            late_at: None,
            is_ended: false,
        };
        both.add(read, pending)?;
        loop {
            let drained = both.drain().await;
            let equal = both.take_equal();
            self.shadow.record_events(&self.request.kind, equal);
            drained?;
            if both.is_ended && both.matcher.waiting().is_none() {
                return Err(Outcome::Equal.into());
            }
            let late_at = both.late_at();
            tokio::select! {
                chunk = frames.next(), if !both.is_ended => match chunk? {
                    Some(frames) => both.add(read, frames)?,
                    None => both.is_ended = true,
                },
                () = both.watcher.until_woken(), if both.may_read() => {}
                () = sleep_until(late_at), if late_at.is_some() => {
                    return Err(Cause::Slow.into());
                }
            }
        }
    }
}

struct BothWatches {
    handle: CacheHandle,
    watcher: Watcher,
    matcher: EventMatcher,
    /// Splits the cache's frames, which come several at once.
    splitter: FrameSplitter,
    counted: u64,
    /// The oldest event for which the cache is late, and from when on.
    late_at: Option<(ResourceVersion, Instant)>,
    is_ended: bool,
}

impl BothWatches {
    /// Adds frames of the upstream.
    fn add(&mut self, read: &CachedRead<'_>, frames: Vec<UpstreamFrame>) -> Result<(), End> {
        for frame in frames {
            match frame.raw.event {
                FrameType::Error => self.is_ended = true,
                FrameType::Bookmark => {
                    let (at, ends_start) =
                        bookmark::read(&frame.raw.object).ok_or(Cause::Malformed)?;
                    let learned = &self.handle.cached_resource().learned;
                    let own_bookmark = learned
                        .has_bookmark()
                        .then(|| self.handle.bookmark(at, ends_start, read.target.form.view))
                        .flatten();
                    if let Some(differs) = own_bookmark
                        .and_then(|own_bookmark| difference(&frame.raw.bytes, &own_bookmark))
                    {
                        let what =
                            DifferingPart::Event("other bytes of a bookmark", at.0, Some(differs));
                        return Err(End::Bookmark(what));
                    }
                    self.matcher.upstream_bookmark(at)?;
                }
                _ => self.matcher.upstream(frame.at.ok_or(Cause::Malformed)?, frame.raw.bytes)?,
            }
        }
        if self.matcher.behind() > PENDING_MAX {
            return Err(Cause::Slow.into());
        }
        Ok(())
    }

    /// Whether the cache's watch may be read: it waits for an upstream that lags far behind.
    fn may_read(&self) -> bool {
        self.matcher.ahead() < PENDING_MAX
    }

    async fn drain(&mut self) -> Result<(), End> {
        while self.may_read() {
            match self.watcher.next_batch(BATCH_BYTES) {
                Batch::Frames { chunks, .. } => {
                    // After a relist the events between two states are Weir's own.
                    if self.watcher.take_bookmark_due() {
                        return Err(Cause::Relist.into());
                    }
                    let mut frames = Vec::new();
                    for chunk in chunks {
                        let split = self.splitter.push(chunk, &mut frames);
                        split.map_err(|_| Cause::Malformed)?;
                    }
                    for frame in frames {
                        let (_, at) = version::identify(&frame.object).ok_or(Cause::Malformed)?;
                        self.matcher.cache(at, frame.bytes)?;
                    }
                }
                Batch::InitialEvents { .. } | Batch::InitialEventsEnd(_) => {}
                Batch::Yield => tokio::task::yield_now().await,
                Batch::Idle => {
                    self.matcher.cache_reached(self.watcher.resource_version())?;
                    return Ok(());
                }
                Batch::Ended(_) => return Err(Cause::Relist.into()),
            }
        }
        Ok(())
    }

    /// Returns the number of equal events since the last call.
    fn take_equal(&mut self) -> u64 {
        let equal = self.matcher.equal();
        let new = equal - self.counted;
        self.counted = equal;
        new
    }

    /// Returns from when on the cache is too late with the oldest event that it has not shown.
    fn late_at(&mut self) -> Option<Instant> {
        let waiting = self.matcher.waiting();
        self.late_at = match (waiting, self.late_at) {
            (Some(at), Some(late)) if late.0 == at => Some(late),
            (Some(at), _) => Some((at, Instant::now() + WAIT_MAX)),
            (None, _) => None,
        };
        self.late_at.map(|(_, late_at)| late_at)
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// The frames of the upstream's watch, from the copy of its body.
struct UpstreamFrames {
    chunks: mpsc::Receiver<CopiedChunk>,
    /// Set if the body is compressed.
    members: Option<MembersReader>,
    splitter: FrameSplitter,
    bytes: u64,
}

struct UpstreamFrame {
    raw: RawFrame,
    at: Option<ResourceVersion>,
}

impl UpstreamFrames {
    /// Returns the next whole frames; `None` at the end. Cancel safe.
    async fn next(&mut self) -> Result<Option<Vec<UpstreamFrame>>, Cause> {
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
    fn position(&self) -> Option<ResourceVersion> {
        match self.raw.event {
            FrameType::Bookmark => bookmark::read(&self.raw.object).map(|(at, _)| at),
            FrameType::Error => None,
            _ => self.at.map(|at| ResourceVersion(at.0.saturating_sub(1))),
        }
    }
}

/// The events of one watch that wait for the other.
const PENDING_MAX: usize = 1_024;
const BATCH_BYTES: usize = 64 << 10;
