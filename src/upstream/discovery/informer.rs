//! A small informer for the two resources that tell who serves what: CRDs and APIServices. It keeps the few facts that
//! are read out of each object, follows them by a watch, and says when they changed.

use std::collections::BTreeMap;
use std::time::Duration;

use http::StatusCode;
use http_body_util::BodyExt;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use crate::api::media_type::Encoding;
use crate::codec::frame::FrameSplitter;
use crate::upstream::error::UpstreamError;
use crate::upstream::{TrafficClass, Upstream, fetch, pool};

/// What is known of a collection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Facts<T> {
    /// Nothing yet.
    Pending,
    /// Weir's identity may not list it.
    Forbidden,
    /// The facts by object name.
    Known(BTreeMap<String, T>),
}

impl<T> Facts<T> {
    /// The facts, where they are known.
    pub(super) fn known(&self) -> Option<&BTreeMap<String, T>> {
        match self {
            Self::Known(facts) => Some(facts),
            Self::Pending | Self::Forbidden => None,
        }
    }

    fn known_mut(&mut self) -> Option<&mut BTreeMap<String, T>> {
        match self {
            Self::Known(facts) => Some(facts),
            Self::Pending | Self::Forbidden => None,
        }
    }
}

/// Follows a collection for as long as anybody receives.
pub(super) async fn follow<T>(
    upstream: Upstream,
    path: &'static str,
    facts: watch::Sender<Facts<T>>,
) where
    T: DeserializeOwned + Clone + PartialEq + Send + Sync + 'static,
{
    while !facts.is_closed() {
        let pause = match once(&upstream, path, &facts).await {
            Ok(()) => Duration::ZERO,
            // An upstream may have neither (404), as a virtual cluster.
            Err(UpstreamError::Status {
                code: StatusCode::FORBIDDEN | StatusCode::NOT_FOUND,
                ..
            }) => {
                set(&facts, |held| *held = Facts::Forbidden);
                FORBIDDEN_PAUSE
            }
            Err(error) => {
                tracing::debug!(path, %error, "cannot follow what discovery needs; trying again");
                PAUSE
            }
        };
        // A watch that ends at once, again and again, must not become a busy loop.
        tokio::time::sleep(pause.max(PAUSE_MIN)).await;
    }
}

/// One list, and a watch from it until it ends.
async fn once<T>(
    upstream: &Upstream,
    path: &str,
    facts: &watch::Sender<Facts<T>>,
) -> Result<(), UpstreamError>
where
    T: DeserializeOwned + Clone + PartialEq,
{
    let list = format!("{path}?resourceVersion=0");
    let answer = fetch::get(upstream, &list, JSON, None, LIST_BYTES_MAX).await?;
    let malformed = || UpstreamError::Malformed(format!("the list {path}"));
    let list: List<T> = serde_json::from_slice(answer.body()).map_err(|_| malformed())?;
    drop(answer);
    let resource_version = list.metadata.resource_version;
    let now: BTreeMap<_, _> =
        list.items.into_iter().map(|object| (object.metadata.name, object.facts)).collect();
    set(facts, |held| *held = Facts::Known(now));

    let watch = format!(
        "{path}?watch=1&allowWatchBookmarks=true&resourceVersion={resource_version}&timeoutSeconds={}",
        WATCH.as_secs()
    );
    let get = fetch::Get { class: TrafficClass::Stream, ..fetch::Get::json(&watch) };
    let response = get.send(upstream).await?;
    watch_events(response.into_body(), facts).await
}

async fn watch_events<T>(
    mut body: pool::Body,
    facts: &watch::Sender<Facts<T>>,
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
                    set(facts, |held| {
                        if let Some(known) = held.known_mut() {
                            known.insert(object.metadata.name, object.facts);
                        }
                    });
                }
                "DELETED" => {
                    let object: Named =
                        serde_json::from_slice(&frame.object).map_err(|_| malformed())?;
                    set(facts, |held| {
                        if let Some(known) = held.known_mut() {
                            known.remove(&object.metadata.name);
                        }
                    });
                }
                "BOOKMARK" => drop(
                    serde_json::from_slice::<serde::de::IgnoredAny>(&frame.object)
                        .map_err(|_| malformed())?,
                ),
                // An ERROR: list anew.
                _ => return Ok(()),
            }
        }
    }
    Ok(())
}

/// Changes the facts, and tells of it only if they are other facts now.
fn set<T: Clone + PartialEq>(facts: &watch::Sender<Facts<T>>, change: impl FnOnce(&mut Facts<T>)) {
    facts.send_if_modified(|held| {
        let before = held.clone();
        change(held);
        *held != before
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

/// The metadata and the facts are both read from the whole object.
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
/// A watch's length; client-go's informers take 5 to 10 minutes.
const WATCH: Duration = Duration::from_secs(480);
/// Between tries after a failure.
const PAUSE: Duration = Duration::from_secs(2);
/// Between the end of a watch and the next.
const PAUSE_MIN: Duration = Duration::from_millis(200);
/// Rights seldom change; asking for them is cheap, but the upstream's audit log shows it.
const FORBIDDEN_PAUSE: Duration = Duration::from_secs(60);
/// CRDs carry schemas: a hundred of them can be tens of megabytes.
const LIST_BYTES_MAX: usize = 256 * 1024 * 1024;
