//! A small informer for CRDs and APIServices. It keeps a few facts of each object, follows them
//! with a watch, and notifies its receivers when they change.
//!
//! Lists are consistent, because an instance of the upstream that lags could bring back a
//! definition that is gone, and with it the caches of that definition. A 403 or 404 ends what is
//! known only if it lasts ([`Refusals`]).

use std::collections::BTreeMap;
use std::time::Duration;

use http::StatusCode;
use http_body_util::BodyExt;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use crate::api::media_type::Encoding;
use crate::codec::frame::FrameSplitter;
use crate::upstream::discovery::refusals::Refusals;
use crate::upstream::error::UpstreamError;
use crate::upstream::self_review::may_list_and_watch;
use crate::upstream::status::status_error;
use crate::upstream::{TrafficClass, Upstream, fetch, pool};

/// A collection that discovery needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Collection {
    /// Its path.
    pub(super) path: &'static str,
    /// Its group.
    pub(super) group: &'static str,
    /// Its plural name.
    pub(super) resource: &'static str,
}

/// The state of a collection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum InformerState<T> {
    /// Not listed yet.
    Pending,
    /// Weir's identity may not list it.
    Forbidden,
    /// The facts of each object, by name.
    Synced(BTreeMap<String, T>),
}

impl<T> InformerState<T> {
    /// Returns the facts, if the collection was listed.
    pub(super) fn synced(&self) -> Option<&BTreeMap<String, T>> {
        match self {
            Self::Synced(facts) => Some(facts),
            Self::Pending | Self::Forbidden => None,
        }
    }

    fn synced_mut(&mut self) -> Option<&mut BTreeMap<String, T>> {
        match self {
            Self::Synced(facts) => Some(facts),
            Self::Pending | Self::Forbidden => None,
        }
    }
}

/// Follows a collection while `state` has receivers.
pub(super) async fn follow<T>(
    upstream: Upstream,
    collection: Collection,
    state: watch::Sender<InformerState<T>>,
) where
    T: DeserializeOwned + Clone + PartialEq + Send + Sync + 'static,
{
    let path = collection.path;
    let mut refusals = Refusals::default();
    while !state.is_closed() {
        let delay = match list_and_watch(&upstream, path, &state, &mut refusals).await {
            // Watches that end immediately must not cause a busy loop.
            Ok(()) => DELAY_MIN,
            // 404: an upstream such as a virtual cluster may not serve the collection.
            Err(UpstreamError::Status {
                code: code @ (StatusCode::FORBIDDEN | StatusCode::NOT_FOUND),
                ..
            }) => {
                let is_known = state.borrow().synced().is_some();
                let delay = refusals.next_delay(is_known);
                let is_believed = refusals.are_believed(is_known);
                if is_believed && (!is_known || is_denied(&upstream, collection, code).await) {
                    update(&state, |state| *state = InformerState::Forbidden);
                }
                delay
            }
            Err(error) => {
                tracing::debug!(path, %error, "cannot list or watch a collection that discovery needs; retrying");
                RETRY_DELAY
            }
        };
        let is_pending = *state.borrow() == InformerState::Pending;
        let delay = if is_pending { delay.min(FIRST_RETRY_DELAY) } else { delay };
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            () = upstream.availability().returned() => {}
        }
    }
}

/// Whether a refusal that has lasted is final: access reviews must deny what was forbidden.
async fn is_denied(upstream: &Upstream, collection: Collection, code: StatusCode) -> bool {
    let Collection { path, group, resource } = collection;
    if code != StatusCode::FORBIDDEN {
        return true;
    }
    match may_list_and_watch(upstream, group, resource, "").await {
        Ok(is_allowed) => !is_allowed,
        Err(error) => {
            tracing::debug!(path, %error, "an access review of Weir's own failed");
            false
        }
    }
}

/// Lists the collection and watches it until the watch ends.
async fn list_and_watch<T>(
    upstream: &Upstream,
    path: &str,
    state: &watch::Sender<InformerState<T>>,
    refusals: &mut Refusals,
) -> Result<(), UpstreamError>
where
    T: DeserializeOwned + Clone + PartialEq,
{
    let answer = fetch::get(upstream, path, JSON, None, LIST_BYTES_MAX).await?;
    let malformed = || UpstreamError::Malformed(format!("the list {path}"));
    let list: List<T> = serde_json::from_slice(answer.body()).map_err(|_| malformed())?;
    drop(answer);
    let resource_version = list.metadata.resource_version;
    let facts: BTreeMap<_, _> =
        list.items.into_iter().map(|object| (object.metadata.name, object.facts)).collect();
    update(state, |state| *state = InformerState::Synced(facts));
    refusals.note_list();

    let watch = format!(
        "{path}?watch=1&allowWatchBookmarks=true&resourceVersion={resource_version}&timeoutSeconds={}",
        WATCH_TIMEOUT.as_secs()
    );
    let get = fetch::Get { class: TrafficClass::Stream, ..fetch::Get::json(&watch) };
    let response = get.send(upstream).await?;
    refusals.note_watch();
    watch_events(response.into_body(), state).await
}

async fn watch_events<T>(
    mut body: pool::Body,
    state: &watch::Sender<InformerState<T>>,
) -> Result<(), UpstreamError>
where
    T: DeserializeOwned + Clone + PartialEq,
{
    let malformed = || UpstreamError::Malformed("a watch frame".to_owned());
    let mut splitter = FrameSplitter::new(Encoding::Json, LIST_BYTES_MAX);
    let mut frames = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| UpstreamError::Lost(error.to_string()))?;
        let Ok(data) = frame.into_data() else { continue };
        splitter.push(data, &mut frames).map_err(|_| malformed())?;
        for frame in frames.drain(..) {
            match &*frame.event {
                "ADDED" | "MODIFIED" => {
                    let object: Object<T> =
                        serde_json::from_slice(&frame.object).map_err(|_| malformed())?;
                    update(state, |state| {
                        if let Some(facts) = state.synced_mut() {
                            facts.insert(object.metadata.name, object.facts);
                        }
                    });
                }
                "DELETED" => {
                    let object: Named =
                        serde_json::from_slice(&frame.object).map_err(|_| malformed())?;
                    update(state, |state| {
                        if let Some(facts) = state.synced_mut() {
                            facts.remove(&object.metadata.name);
                        }
                    });
                }
                "BOOKMARK" => drop(
                    serde_json::from_slice::<serde::de::IgnoredAny>(&frame.object)
                        .map_err(|_| malformed())?,
                ),
                // ERROR: list again, but not at once, since every watch may end so.
                _ => {
                    let code = StatusCode::INTERNAL_SERVER_ERROR;
                    return Err(status_error(&frame.object, code));
                }
            }
        }
    }
    Ok(())
}

/// Changes the state, and notifies the receivers only if it differs.
fn update<T: Clone + PartialEq>(
    state: &watch::Sender<InformerState<T>>,
    change: impl FnOnce(&mut InformerState<T>),
) {
    state.send_if_modified(|state| {
        let before = state.clone();
        change(state);
        *state != before
    });
}

#[derive(Deserialize)]
#[serde(bound = "T: DeserializeOwned")]
struct List<T> {
    metadata: ListMeta,
    items: Vec<Object<T>>,
}

#[derive(Deserialize)]
struct ListMeta {
    #[serde(rename = "resourceVersion")]
    resource_version: String,
}

struct Object<T> {
    metadata: Metadata,
    facts: T,
}

/// Deserializes both the metadata and the facts from the whole object.
impl<'de, T: DeserializeOwned> Deserialize<'de> for Object<T> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        let raw = Box::<serde_json::value::RawValue>::deserialize(deserializer)?;
        let Named { metadata } = serde_json::from_str(raw.get()).map_err(D::Error::custom)?;
        let facts = serde_json::from_str(raw.get()).map_err(D::Error::custom)?;
        Ok(Self { metadata, facts })
    }
}

#[derive(Deserialize)]
struct Named {
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
}

const JSON: &str = "application/json";
/// The time-out of a watch. client-go's informers use 5 to 10 minutes.
const WATCH_TIMEOUT: Duration = Duration::from_secs(480);
/// The delay after a failure.
const RETRY_DELAY: Duration = Duration::from_secs(2);
/// The delay after a failure of the first list, for which requests wait.
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(500);
/// The least delay between two watches.
const DELAY_MIN: Duration = Duration::from_millis(200);
/// CRDs carry schemas: a hundred of them can be tens of megabytes.
const LIST_BYTES_MAX: usize = 256 * 1024 * 1024;
