//! Lists that are read as they arrive: streamed lists, and watch-lists.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::api::resource_version::ResourceVersion;
use crate::cache::probe::RESPONSE_TIMEOUT;
use crate::cache::reflector::accumulator::ListAccumulator;
use crate::cache::reflector::driver::Driver;
use crate::cache::reflector::failure::Failure;
use crate::cache::reflector::running_watch::{RunningWatch, random_timeout_seconds};
use crate::cache::reflector::state::State;
use crate::codec::ingest::Ingested;
use crate::upstream::bounded::with_timeout;
use crate::upstream::error::UpstreamError;
use crate::upstream::lister_watcher::{ListRequest, UpstreamEvent, WatchRequest};

impl Driver {
    /// Lists without pages and reads the objects as they arrive.
    pub(super) async fn streamed_list(
        &mut self,
        not_older: Option<ResourceVersion>,
    ) -> Result<State, Failure> {
        let cached = self.cached.clone();
        let mut accumulator = ListAccumulator::new(&cached);
        let request = ListRequest::not_older(not_older);
        let at = self.stream(request, &mut accumulator).await?;
        self.commit(accumulator.take(), at).await?;
        Ok(self.resume_after_list())
    }

    /// Collects the objects of a streamed list, and returns its resourceVersion.
    pub(super) async fn stream(
        &self,
        request: ListRequest,
        accumulator: &mut ListAccumulator<'_>,
    ) -> Result<ResourceVersion, Failure> {
        let mut objects =
            with_timeout(RESPONSE_TIMEOUT, self.cached.upstream.stream_list(request)).await?;
        self.learn_warnings();
        loop {
            let Some(events) = with_timeout(SILENCE_TIMEOUT, objects.next()).await? else {
                return Err(UpstreamError::Lost("a list without an end".to_owned()).into());
            };
            if let Some(at) = self.read_initial_events(&mut events.into_iter(), accumulator)? {
                return Ok(at);
            }
        }
    }

    /// Lists by a watch that begins with the state (KEP-3157). After its initial events it
    /// continues as the reflector's watch, so that no event can be lost between list and watch.
    pub(super) async fn watch_list(
        &mut self,
        not_older: Option<ResourceVersion>,
    ) -> Result<State, Failure> {
        let cached = self.cached.clone();
        let timeout_seconds = random_timeout_seconds();
        let request = WatchRequest {
            resource_version: not_older,
            send_initial_events: true,
            timeout_seconds,
            ..WatchRequest::default()
        };
        let mut watch = with_timeout(RESPONSE_TIMEOUT, self.cached.upstream.watch(request)).await?;
        self.learn_warnings();
        let opened = Instant::now();
        let mut accumulator = ListAccumulator::new(&cached);
        loop {
            let next = timeout(SILENCE_TIMEOUT, watch.next()).await;
            let Some(events) = next.unwrap_or(Ok(None))? else {
                return Err(self.silent_watch_list());
            };
            let mut events = events.into_iter();
            if let Some(resource_version) =
                self.read_initial_events(&mut events, &mut accumulator)?
            {
                cached.context.watch_list.set_supported(watch.is_compressed());
                self.commit(accumulator.take(), resource_version).await?;
                // State and events come from one instance, which ends the watch when it learns of
                // a changed definition.
                self.byte_checks.note_same();
                let mut running =
                    RunningWatch::new(watch, opened, timeout_seconds, resource_version);
                running.pending = events;
                return Ok(State::Watching(running));
            }
        }
    }

    /// Collects initial events. Returns their resourceVersion once they have ended.
    fn read_initial_events(
        &self,
        events: &mut impl Iterator<Item = UpstreamEvent>,
        accumulator: &mut ListAccumulator<'_>,
    ) -> Result<Option<ResourceVersion>, Failure> {
        for event in events {
            match event {
                UpstreamEvent::Upsert(object) => accumulator.push(Ingested::Object(object))?,
                UpstreamEvent::Delete(object) => accumulator.remove(&object),
                UpstreamEvent::Unreadable { object, is_deletion: false } => {
                    accumulator.push(Ingested::Unreadable(object))?;
                }
                UpstreamEvent::Unreadable { object, .. } => {
                    accumulator.remove_unreadable(&object);
                }
                UpstreamEvent::Bookmark { resource_version, initial_events_end, object } => {
                    self.cached.learned.learn_bookmark(&object);
                    if initial_events_end {
                        return Ok(Some(resource_version));
                    }
                }
                UpstreamEvent::Error(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    fn silent_watch_list(&self) -> Failure {
        if self.lists.is_last_watch_list() {
            self.cached.context.watch_list.presume_unsupported();
        }
        Failure::Silent
    }
}

/// The longest silence of a list that is read as it arrives, or of a watch-list before the end of
/// its initial events. The upstream waits at most three seconds for its own cache
/// (`docs/semantics.md` §2.1).
const SILENCE_TIMEOUT: Duration = Duration::from_secs(30);
