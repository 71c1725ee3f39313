//! A scripted upstream for tests. The test queues responses, inspects the requests, and feeds the
//! watches.

mod objects;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, watch};

pub(crate) use self::objects::{bookmark, listed, object, page, rewritten, seams, status, upsert};
use crate::api::resource::{ApiResource, GroupVersionResource, Representation, Scope, built_in};
use crate::api::resource_version::ResourceVersion;
use crate::cache::budget::Budget;
use crate::cache::registry::source::Source;
use crate::codec::list::ListPage;
use crate::config::CacheConfig;
use crate::upstream::availability::Availability;
use crate::upstream::error::UpstreamError;
use crate::upstream::lister_watcher::{
    Answer, ExactRequest, ListRequest, ListWatch, UpstreamEvent, WatchRequest, WatchStream,
};
use crate::upstream::version::UpstreamVersion;

/// Answers a request of a part at one resourceVersion.
pub(crate) type ExactAnswer =
    dyn Fn(&ExactRequest) -> Result<ListPage, UpstreamError> + Send + Sync;

type Read = Result<Option<Vec<UpstreamEvent>>, UpstreamError>;

/// Answers lists and watches from queues. A request whose response is not queued yet waits for it.
#[derive(Default)]
pub(crate) struct Script {
    /// All list requests, including probes.
    pub(crate) lists: Mutex<Vec<ListRequest>>,
    pub(crate) watches: Mutex<Vec<WatchRequest>>,
    list_answers: Mutex<VecDeque<Result<ListPage, UpstreamError>>>,
    watch_answers: Mutex<VecDeque<Result<Box<dyn WatchStream>, UpstreamError>>>,
    /// The resourceVersion in the response to each probe; `None` if the responses are queued like
    /// those of lists.
    probe: Mutex<Option<ResourceVersion>>,
    /// The number of objects in the response to each probe; `None` for none.
    pub(crate) probed_objects: Mutex<Option<u64>>,
    /// The resourceVersion of lists over a new connection; `None` if they are answered as others.
    pub(crate) elsewhere: Mutex<Option<ResourceVersion>>,
    /// The uid of the cluster; `None` if it may not be read.
    pub(crate) cluster: Mutex<Option<String>>,
    /// The number of connections that were opened.
    pub(crate) connections: AtomicU64,
    /// The number of times that the uid of the cluster was asked for.
    pub(crate) cluster_requests: AtomicU64,
    /// Answers requests of parts at one resourceVersion; `None` if they fail.
    pub(crate) exact: Mutex<Option<Box<ExactAnswer>>>,
    /// All such requests.
    pub(crate) exacts: Mutex<Vec<ExactRequest>>,
    /// The error of all lists, probes included, until it is removed.
    list_error: Mutex<Option<UpstreamError>>,
    /// The error of all watches, until it is removed.
    watch_error: Mutex<Option<UpstreamError>>,
    /// Whether the API server of the next watches has reached what is asked of it, in their order;
    /// empty for always.
    pub(crate) reached: Mutex<VecDeque<bool>>,
    /// Whether an aggregated API server serves the resource.
    pub(crate) is_aggregated: AtomicBool,
    /// The moves to another API server.
    pub(crate) moves: AtomicU64,
    /// Whether access reviews deny the resource.
    is_denied: AtomicBool,
    panics: AtomicBool,
    streams_lists: AtomicBool,
    kept: Mutex<Vec<Feed>>,
    changed: Notify,
}

impl Script {
    /// Queues the response to a list.
    pub(crate) fn on_list(&self, answer: Result<ListPage, UpstreamError>) {
        self.list_answers.lock().push_back(answer);
        self.changed.notify_waiters();
    }

    /// Queues a watch and returns its feed.
    pub(crate) fn on_watch(&self) -> Feed {
        let (feed, reads) = mpsc::channel(64);
        self.watch_answers.lock().push_back(Ok(Box::new(ScriptedWatch { reads })));
        self.changed.notify_waiters();
        Feed(feed)
    }

    /// Queues a watch with an empty initial state at `resource_version`.
    pub(crate) fn on_watch_at(&self, resource_version: u64) -> Feed {
        let feed = self.on_watch();
        feed.send(vec![bookmark(resource_version, true)]);
        feed
    }

    /// Queues an error as the response to a watch.
    pub(crate) fn on_watch_fail(&self, error: UpstreamError) {
        self.watch_answers.lock().push_back(Err(error));
        self.changed.notify_waiters();
    }

    /// Answers all lists and watches with these errors from now on; `None` ends that.
    pub(crate) fn refuse(&self, lists: Option<UpstreamError>, watches: Option<UpstreamError>) {
        *self.list_error.lock() = lists;
        *self.watch_error.lock() = watches;
    }

    /// Refuses the resource for good, as an upstream on which Weir's identity lacks the right.
    pub(crate) fn forbid(&self) {
        self.refuse(Some(status(403, "no")), Some(status(403, "no")));
        self.is_denied.store(true, Ordering::Relaxed);
    }

    /// Answers every probe with `resource_version`.
    pub(crate) fn on_probe(&self, resource_version: u64) {
        *self.probe.lock() = Some(ResourceVersion(resource_version));
    }

    /// Keeps a feed alive so that its watch does not end.
    pub(crate) fn keep(&self, feed: Feed) {
        self.kept.lock().push(feed);
    }

    /// Makes lists without pages streamed from now on. Their responses are queued like watches.
    pub(crate) fn stream_lists(&self) {
        self.streams_lists.store(true, Ordering::Relaxed);
    }

    /// Panics on the next watch, as a bug would.
    pub(crate) fn panic_on_watch(&self) {
        self.panics.store(true, Ordering::Relaxed);
    }

    /// Returns the number of probes and of lists with a page size of 1.
    pub(crate) fn probes(&self) -> usize {
        self.lists.lock().iter().filter(|list| list.limit == Some(1)).count()
    }

    async fn answer<T>(&self, queue: &Mutex<VecDeque<T>>) -> T {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(answer) = queue.lock().pop_front() {
                return answer;
            }
            changed.await;
        }
    }
}

impl ListWatch for Script {
    fn list(&self, request: ListRequest) -> Answer<'_, ListPage> {
        Box::pin(async move {
            let is_probe = request.limit == Some(1);
            self.lists.lock().push(request);
            refused(&self.list_error)?;
            let probe = *self.probe.lock();
            match probe {
                Some(resource_version) if is_probe => {
                    let mut page = page(resource_version.0, "", Vec::new());
                    if let Some(objects) = *self.probed_objects.lock() {
                        page.continue_token = "next".to_owned();
                        page.remaining_item_count = Some(objects);
                    }
                    Ok(page)
                }
                _ => self.answer(&self.list_answers).await,
            }
        })
    }

    fn list_elsewhere(&self, request: ListRequest) -> Answer<'_, ListPage> {
        Box::pin(async move {
            let elsewhere = *self.elsewhere.lock();
            match elsewhere {
                Some(resource_version) => Ok(page(resource_version.0, "", Vec::new())),
                None => self.list(request).await,
            }
        })
    }

    fn exact(&self, request: ExactRequest) -> Answer<'_, ListPage> {
        Box::pin(async move {
            self.exacts.lock().push(request.clone());
            let answer = self.exact.lock();
            answer
                .as_ref()
                .map_or_else(|| Err(status(503, "not scripted")), |answer| answer(&request))
        })
    }

    fn cluster_uid(&self) -> Answer<'_, Option<String>> {
        Box::pin(async move {
            self.cluster_requests.fetch_add(1, Ordering::Relaxed);
            self.connections.fetch_add(1, Ordering::Relaxed);
            Ok(self.cluster.lock().clone())
        })
    }

    fn connections_opened(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    fn is_local(&self) -> BoxFuture<'_, bool> {
        Box::pin(async move { !self.is_aggregated.load(Ordering::Relaxed) })
    }

    fn streams_lists(&self) -> bool {
        self.streams_lists.load(Ordering::Relaxed)
    }

    fn stream_list(&self, request: ListRequest) -> Answer<'_, Box<dyn WatchStream>> {
        Box::pin(async move {
            self.lists.lock().push(request);
            refused(&self.list_error)?;
            self.answer(&self.watch_answers).await
        })
    }

    fn has_reached(&self, _: ResourceVersion) -> Answer<'_, bool> {
        Box::pin(async move { Ok(self.reached.lock().pop_front().unwrap_or(true)) })
    }

    fn leave_server(&self) -> bool {
        self.moves.fetch_add(1, Ordering::Relaxed);
        true
    }

    fn is_allowed(&self) -> Answer<'_, bool> {
        Box::pin(async move { Ok(!self.is_denied.load(Ordering::Relaxed)) })
    }

    fn watch(&self, request: WatchRequest) -> Answer<'_, Box<dyn WatchStream>> {
        Box::pin(async move {
            assert!(!self.panics.load(Ordering::Relaxed), "the test requested a panic");
            self.watches.lock().push(request);
            refused(&self.watch_error)?;
            self.answer(&self.watch_answers).await
        })
    }
}

fn refused(error: &Mutex<Option<UpstreamError>>) -> Result<(), UpstreamError> {
    error.lock().clone().map_or(Ok(()), Err)
}

/// A watch whose events come from a [`Feed`].
pub(crate) struct ScriptedWatch {
    reads: mpsc::Receiver<Read>,
}

impl WatchStream for ScriptedWatch {
    fn next(&mut self) -> Answer<'_, Option<Vec<UpstreamEvent>>> {
        Box::pin(async move { self.reads.recv().await.unwrap_or(Ok(None)) })
    }
}

/// Feeds a watch. Dropping it ends the watch without an error.
pub(crate) struct Feed(mpsc::Sender<Read>);

impl Feed {
    /// Sends events that the watch returns from one read.
    pub(crate) fn send(&self, events: Vec<UpstreamEvent>) {
        self.0.try_send(Ok(Some(events))).unwrap();
    }

    /// Ends the watch with an error.
    pub(crate) fn fail(&self, error: UpstreamError) {
        self.0.try_send(Err(error)).unwrap();
    }

    /// Returns whether the reflector still holds the watch.
    pub(crate) fn is_held(&self) -> bool {
        !self.0.is_closed()
    }
}

type ScriptOf = dyn Fn(&ApiResource, &Scope) -> Arc<Script> + Send + Sync;

/// Resources and their scripts, for a registry.
pub(crate) struct ScriptedSource {
    /// The resources in discovery.
    pub(crate) resources: Mutex<Vec<Arc<ApiResource>>>,
    /// The number of changes in discovery.
    pub(crate) changes: watch::Sender<u64>,
    /// The upstream's version.
    pub(crate) version: watch::Sender<Option<UpstreamVersion>>,
    /// The number of changes of the upstream's version.
    pub(crate) version_changes: watch::Sender<u64>,
    /// Whether an aggregated API server serves all resources.
    pub(crate) is_aggregated: AtomicBool,
    /// The number of times that discovery was doubted.
    pub(crate) doubts: AtomicU64,
    /// Whether definitions changed a moment ago.
    pub(crate) is_redefined: AtomicBool,
    /// Whether the upstream is away.
    pub(crate) availability: Availability,
    /// Returns the script of a resource and scope.
    script: Box<ScriptOf>,
}

impl ScriptedSource {
    /// Creates a source whose scripts come from `script`.
    pub(crate) fn new(
        resources: Vec<ApiResource>,
        script: impl Fn(&ApiResource, &Scope) -> Arc<Script> + Send + Sync + 'static,
    ) -> Arc<Self> {
        let resources = Mutex::new(resources.into_iter().map(Arc::new).collect());
        let script = Box::new(script);
        Arc::new(Self {
            resources,
            changes: watch::Sender::new(0),
            version: watch::Sender::new(None),
            version_changes: watch::Sender::new(0),
            is_aggregated: AtomicBool::new(false),
            doubts: AtomicU64::new(0),
            is_redefined: AtomicBool::new(false),
            availability: crate::upstream::testing::availability(),
            script,
        })
    }
}

impl Source for Arc<ScriptedSource> {
    fn availability(&self) -> Availability {
        self.availability.clone()
    }

    fn find<'a>(
        &'a self,
        gvr: &'a GroupVersionResource,
    ) -> BoxFuture<'a, Result<Option<Arc<ApiResource>>, UpstreamError>> {
        std::future::ready(Ok(self.peek(gvr))).boxed()
    }

    fn peek(&self, gvr: &GroupVersionResource) -> Option<Arc<ApiResource>> {
        self.resources.lock().iter().find(|resource| resource.gvr == *gvr).cloned()
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn is_redefined(&self, _gvr: &GroupVersionResource) -> bool {
        self.is_redefined.load(Ordering::Relaxed)
    }

    fn is_aggregated(&self, _gvr: &GroupVersionResource) -> bool {
        self.is_aggregated.load(Ordering::Relaxed)
    }

    fn recheck_discovery(&self) {
        self.doubts.fetch_add(1, Ordering::Relaxed);
    }

    fn version(&self) -> watch::Receiver<Option<UpstreamVersion>> {
        self.version.subscribe()
    }

    fn version_changes(&self) -> watch::Receiver<u64> {
        self.version_changes.subscribe()
    }

    fn connect(
        &self,
        resource: &Arc<ApiResource>,
        _representation: Representation,
        scope: &Scope,
        _budget: &Budget,
    ) -> Arc<dyn ListWatch> {
        (self.script)(resource, scope)
    }
}

/// Returns a namespaced built-in resource of the core group.
pub(crate) fn resource(plural: &str, kind: &str) -> ApiResource {
    built_in(GroupVersionResource::new("", "v1", plural), kind)
}

/// Returns a configuration with high limits.
pub(crate) fn config() -> CacheConfig {
    CacheConfig {
        exclude: Vec::new(),
        resource_bytes_max: 1 << 20,
        history_bytes_max: 1 << 20,
        forward_budget: 2,
        ..CacheConfig::default()
    }
}
