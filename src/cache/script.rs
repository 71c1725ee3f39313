//! A scripted upstream for tests: answers are queued, requests are kept, and a watch is fed by the test.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::StatusCode;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, watch};

use crate::api::resource::{ApiResource, GroupVersionResource, Representation, Scope, built_in};
use crate::api::resource_version::ResourceVersion;
use crate::cache::registry::source::{Reflectable, Source};
use crate::codec::json;
use crate::codec::list::ListPage;
use crate::codec::object::Object;
use crate::config::{CacheConfig, OnRelist};
use crate::upstream::error::UpstreamError;
use crate::upstream::lister_watcher::{
    ListRequest, ListWatch, UpstreamEvent, WatchRequest, WatchStream,
};
use crate::upstream::version::UpstreamVersion;

type Read = Result<Option<Vec<UpstreamEvent>>, UpstreamError>;

/// Answers lists and watches as told. One whose answer is not queued yet waits for it.
#[derive(Default)]
pub(crate) struct Script {
    /// The lists asked for, probes too.
    pub(crate) lists: Mutex<Vec<ListRequest>>,
    /// The watches asked for.
    pub(crate) watches: Mutex<Vec<WatchRequest>>,
    list_answers: Mutex<VecDeque<Result<ListPage, UpstreamError>>>,
    watch_answers: Mutex<VecDeque<Result<ScriptedWatch, UpstreamError>>>,
    /// What a probe learns, if it is not to be queued like a list.
    probe: Mutex<Option<ResourceVersion>>,
    panics: AtomicBool,
    streams_lists: AtomicBool,
    kept: Mutex<Vec<Feed>>,
    changed: Notify,
}

impl Script {
    /// Queues a list's answer.
    pub(crate) fn on_list(&self, answer: Result<ListPage, UpstreamError>) {
        self.list_answers.lock().push_back(answer);
        self.changed.notify_waiters();
    }

    /// Queues a watch, and returns what feeds it.
    pub(crate) fn on_watch(&self) -> Feed {
        let (feed, reads) = mpsc::channel(64);
        self.watch_answers.lock().push_back(Ok(ScriptedWatch { reads }));
        self.changed.notify_waiters();
        Feed(feed)
    }

    /// Queues a watch whose initial state is empty, at this resourceVersion.
    pub(crate) fn on_watch_at(&self, resource_version: u64) -> Feed {
        let feed = self.on_watch();
        feed.send(vec![bookmark(resource_version, true)]);
        feed
    }

    /// Queues a watch's failure.
    pub(crate) fn on_watch_fail(&self, error: UpstreamError) {
        self.watch_answers.lock().push_back(Err(error));
        self.changed.notify_waiters();
    }

    /// Answers every probe so.
    pub(crate) fn on_probe(&self, resource_version: u64) {
        *self.probe.lock() = Some(ResourceVersion(resource_version));
    }

    /// Keeps a feed from ending its watch.
    pub(crate) fn keep(&self, feed: Feed) {
        self.kept.lock().push(feed);
    }

    /// Lists without pages come as they are read from now on, and are queued like watches.
    pub(crate) fn stream_lists(&self) {
        self.streams_lists.store(true, Ordering::Relaxed);
    }

    /// Panics on the next watch, as a defect would.
    pub(crate) fn panic_on_watch(&self) {
        self.panics.store(true, Ordering::Relaxed);
    }

    /// How many probes and first pages of size 1 were asked for.
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
    type Watch = ScriptedWatch;

    async fn list(&self, request: ListRequest) -> Result<ListPage, UpstreamError> {
        let is_probe = request.limit == Some(1);
        self.lists.lock().push(request);
        let probe = *self.probe.lock();
        match probe {
            Some(resource_version) if is_probe => Ok(page(resource_version.0, "", Vec::new())),
            _ => self.answer(&self.list_answers).await,
        }
    }

    fn streams_lists(&self) -> bool {
        self.streams_lists.load(Ordering::Relaxed)
    }

    async fn stream_list(&self, request: ListRequest) -> Result<ScriptedWatch, UpstreamError> {
        self.lists.lock().push(request);
        self.answer(&self.watch_answers).await
    }

    async fn watch(&self, request: WatchRequest) -> Result<ScriptedWatch, UpstreamError> {
        assert!(!self.panics.load(Ordering::Relaxed), "told to");
        self.watches.lock().push(request);
        self.answer(&self.watch_answers).await
    }
}

/// A watch that a [`Feed`] feeds.
pub(crate) struct ScriptedWatch {
    reads: mpsc::Receiver<Read>,
}

impl WatchStream for ScriptedWatch {
    async fn next(&mut self) -> Read {
        self.reads.recv().await.unwrap_or(Ok(None))
    }
}

/// Feeds a watch; dropping it ends the watch cleanly.
pub(crate) struct Feed(mpsc::Sender<Read>);

impl Feed {
    /// Sends events as one read.
    pub(crate) fn send(&self, events: Vec<UpstreamEvent>) {
        self.0.try_send(Ok(Some(events))).unwrap();
    }

    /// Breaks the watch.
    pub(crate) fn fail(&self, error: UpstreamError) {
        self.0.try_send(Err(error)).unwrap();
    }

    /// Whether the reflector still holds the watch.
    pub(crate) fn is_held(&self) -> bool {
        !self.0.is_closed()
    }
}

type ScriptOf = dyn Fn(&ApiResource, &Scope) -> Arc<Script> + Send + Sync;

/// Resources and their scripts, for a registry.
pub(crate) struct ScriptedSource {
    /// What discovery knows.
    pub(crate) resources: Mutex<Vec<Arc<ApiResource>>>,
    /// Counts discovery's changes.
    pub(crate) changes: watch::Sender<u64>,
    /// The upstream's version.
    pub(crate) version: watch::Sender<Option<UpstreamVersion>>,
    /// The script of each scope.
    script: Box<ScriptOf>,
}

impl ScriptedSource {
    /// One resource, and one script a scope.
    pub(crate) fn new(
        resources: Vec<ApiResource>,
        script: impl Fn(&ApiResource, &Scope) -> Arc<Script> + Send + Sync + 'static,
    ) -> Arc<Self> {
        let resources = Mutex::new(resources.into_iter().map(Arc::new).collect());
        let script = Box::new(script);
        let (changes, version) = (watch::Sender::new(0), watch::Sender::new(None));
        Arc::new(Self { resources, changes, version, script })
    }
}

impl Source for Arc<ScriptedSource> {
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

    fn version(&self) -> watch::Receiver<Option<UpstreamVersion>> {
        self.version.subscribe()
    }

    fn connect(
        &self,
        resource: &Arc<ApiResource>,
        _representation: Representation,
        scope: &Scope,
    ) -> Arc<dyn Reflectable> {
        (self.script)(resource, scope)
    }
}

/// A page of a list.
pub(crate) fn page(resource_version: u64, next: &str, objects: Vec<Object>) -> ListPage {
    ListPage {
        resource_version: ResourceVersion(resource_version),
        continue_token: next.to_owned(),
        objects,
    }
}

/// A small object in namespace `ns`.
pub(crate) fn object(name: &str, resource_version: u64) -> Object {
    let body = format!(
        r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"ns","resourceVersion":"{resource_version}"}}}}"#
    );
    json::object(body.as_bytes(), &config_maps()).unwrap()
}

/// The same object as another release, or another definition, writes it.
pub(crate) fn rewritten(object: Object) -> Object {
    let body = [object.body.trim_ascii_end(), b" "].concat().into();
    let Object { key, resource_version, attrs, layout, .. } = object;
    Object::new(key, resource_version, attrs, body, layout)
}

/// ADDED or MODIFIED.
pub(crate) fn upsert(name: &str, resource_version: u64) -> UpstreamEvent {
    UpstreamEvent::Upsert(object(name, resource_version))
}

/// A config map's bookmark.
pub(crate) fn bookmark(resource_version: u64, initial_events_end: bool) -> UpstreamEvent {
    let end = if initial_events_end {
        r#","annotations":{"k8s.io/initial-events-end":"true"}"#
    } else {
        ""
    };
    let object = format!(
        r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"resourceVersion":"{resource_version}"{end}}}}}"#
    );
    UpstreamEvent::Bookmark {
        resource_version: ResourceVersion(resource_version),
        initial_events_end,
        object: Bytes::from(object),
    }
}

/// The end of a streamed list.
pub(crate) fn listed(resource_version: u64) -> UpstreamEvent {
    let resource_version = ResourceVersion(resource_version);
    UpstreamEvent::Bookmark { resource_version, initial_events_end: true, object: Bytes::new() }
}

/// A failure status.
pub(crate) fn status(code: u16, message: &str) -> UpstreamError {
    UpstreamError::Status {
        code: StatusCode::from_u16(code).unwrap(),
        reason: String::new(),
        message: message.to_owned(),
        retry_after: None,
    }
}

/// `configmaps` of the core group.
pub(crate) fn config_maps() -> ApiResource {
    resource("configmaps", "ConfigMap")
}

/// A namespaced built-in resource of the core group.
pub(crate) fn resource(plural: &str, kind: &str) -> ApiResource {
    built_in(GroupVersionResource::new("", "v1", plural), kind)
}

/// Generous limits, pages of two.
pub(crate) fn config() -> CacheConfig {
    CacheConfig {
        include: Vec::new(),
        exclude: Vec::new(),
        warm: Vec::new(),
        idle_timeout: Duration::from_secs(600),
        resource_bytes_max: 1 << 20,
        total_bytes_max: 1 << 30,
        history_bytes_max: 1 << 20,
        gzip_bytes_max: 1 << 20,
        on_relist: OnRelist::KeepStreams,
        forward_budget: 2,
        page_size: 2,
    }
}
