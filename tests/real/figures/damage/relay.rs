//! A relay between Weir and an API server that damages one event of Weir's watches, once.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::{Bytes, BytesMut};
use futures::{StreamExt, TryStreamExt, future};
use http::{HeaderName, Request, Response, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use kube::Client;
use kube::client::Body;
use memchr::memmem;
use tempfile::TempDir;
use tokio::net::TcpListener;

/// The kinds of damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Damage {
    LostCreation,
    LostChange,
    LostDeletion,
    /// The deleted object is there again, as after an old event that came a second time.
    Undeleted,
    /// The object has its old content under the new resourceVersion, as after two events in the
    /// wrong order.
    OldBody,
    /// The object is in another namespace.
    OtherNamespace,
    /// An event comes after the one that follows it.
    LateEvent,
    /// An event comes twice in a row.
    DoubledEvent,
}

impl Damage {
    pub(super) const ALL: [Self; 8] = [
        Self::LostCreation,
        Self::LostChange,
        Self::LostDeletion,
        Self::Undeleted,
        Self::OldBody,
        Self::OtherNamespace,
        Self::LateEvent,
        Self::DoubledEvent,
    ];

    /// Returns the name of the object whose event is damaged.
    pub(super) fn victim(self) -> &'static str {
        match self {
            Self::LostCreation => "victim-created",
            Self::LostChange => "victim-changed",
            Self::LostDeletion => "victim-deleted",
            Self::Undeleted => "victim-there-again",
            Self::OldBody => "victim-with-its-old-body",
            Self::OtherNamespace => "victim-elsewhere",
            Self::LateEvent => "victim-late",
            Self::DoubledEvent => "victim-twice",
        }
    }

    /// Whether it makes the cache wrong.
    pub(super) fn is_harmful(self) -> bool {
        self != Self::DoubledEvent
    }
}

/// Listens with plain HTTP, and stops with its runtime.
pub(super) struct Relay {
    dir: TempDir,
    damager: Arc<Damager>,
}

struct Damager {
    upstream: Client,
    damage: Damage,
    /// Whether the next event of the victim is damaged.
    is_armed: AtomicBool,
}

impl Relay {
    pub(super) async fn start(upstream: Client, damage: Damage) -> Self {
        let damager = Arc::new(Damager { upstream, damage, is_armed: AtomicBool::new(false) });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let kubeconfig = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: t\n\
             clusters: [{{name: t, cluster: {{server: \"http://{address}\"}}}}]\n\
             users: [{{name: t, user: {{}}}}]\n\
             contexts: [{{name: t, context: {{cluster: t, user: t}}}}]\n"
        );
        std::fs::write(dir.path().join(KUBECONFIG), kubeconfig).unwrap();
        let accepting = Arc::clone(&damager);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let damager = Arc::clone(&accepting);
                let service = service_fn(move |request| Arc::clone(&damager).relay(request));
                tokio::spawn(async move {
                    let server = Builder::new(TokioExecutor::new());
                    drop(server.serve_connection(TokioIo::new(stream), service).await);
                });
            }
        });
        Self { dir, damager }
    }

    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join(KUBECONFIG)
    }

    /// Lets the next event of the victim be damaged.
    pub(super) fn arm(&self) {
        self.damager.is_armed.store(true, Ordering::Release);
    }
}

type Answer = Response<UnsyncBoxBody<Bytes, kube::Error>>;

impl Damager {
    async fn relay(self: Arc<Self>, request: Request<Incoming>) -> Result<Answer, Infallible> {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        let mut forwarded = Request::builder().method(parts.method).uri(path);
        for (name, value) in parts.headers.iter().filter(|(name, _)| !OWN_HEADERS.contains(name)) {
            forwarded = forwarded.header(name, value);
        }
        let body = body.collect().await.map(|body| body.to_bytes().to_vec()).unwrap_or_default();
        let forwarded = forwarded.body(Body::from(body)).unwrap();
        let is_watch = path.contains("/configmaps?") && path.contains("watch=");
        let Ok(response) = self.upstream.send(forwarded).await else {
            let empty = http_body_util::Empty::new().map_err(|never| match never {});
            return Ok(Response::builder().status(502).body(empty.boxed_unsync()).unwrap());
        };
        let is_binary = response
            .headers()
            .get(header::CONTENT_TYPE)
            .is_some_and(|value| value.to_str().is_ok_and(|value| value.contains("protobuf")));
        let (mut head, body) = response.into_parts();
        OWN_HEADERS.iter().for_each(|name| drop(head.headers.remove(name)));
        let body = match is_watch {
            true => self.damaged(body, is_binary),
            false => body.boxed_unsync(),
        };
        Ok(Response::from_parts(head, body))
    }

    /// Passes on the whole frames of a watch.
    fn damaged(self: Arc<Self>, body: Body, is_binary: bool) -> UnsyncBoxBody<Bytes, kube::Error> {
        let (mut pending, mut late) = (BytesMut::new(), Vec::new());
        let chunks = body.into_data_stream();
        let frames = chunks.map_ok(move |chunk| {
            pending.extend_from_slice(&chunk);
            let mut out = Vec::new();
            while let Some(length) = frame_length(&pending, is_binary) {
                out.extend(self.one(pending.split_to(length).to_vec(), &mut late));
            }
            out
        });
        let frames = frames.try_filter(|out| future::ready(!out.is_empty()));
        StreamBody::new(frames.map_ok(|out| Frame::data(Bytes::from(out))).boxed()).boxed_unsync()
    }

    /// Returns what is sent in place of a frame. `late` is sent after the next one.
    fn one(&self, frame: Vec<u8>, late: &mut Vec<u8>) -> Vec<u8> {
        let is_victims = memmem::find(&frame, self.damage.victim().as_bytes()).is_some();
        if !is_victims || !self.is_armed.swap(false, Ordering::AcqRel) {
            return [frame, std::mem::take(late)].concat();
        }
        match self.damage {
            Damage::LostCreation | Damage::LostChange | Damage::LostDeletion => Vec::new(),
            Damage::Undeleted => replaced(&frame, "\"DELETED\"", "\"MODIFIED\""),
            Damage::OldBody => replaced(&frame, super::AFTER, super::BEFORE),
            Damage::OtherNamespace => {
                replaced(&frame, "\"namespace\":\"default\"", "\"namespace\":\"elsewhere\"")
            }
            Damage::LateEvent => {
                *late = frame;
                Vec::new()
            }
            Damage::DoubledEvent => frame.repeat(2),
        }
    }
}

/// Replaces a text in a frame of JSON.
fn replaced(frame: &[u8], old: &str, new: &str) -> Vec<u8> {
    let at = memmem::find(frame, old.as_bytes()).expect("the text is there");
    let (before, after) = (&frame[..at], &frame[at + old.len()..]);
    [before, new.as_bytes(), after].concat()
}

/// Returns the length of the first frame, if it is whole.
fn frame_length(bytes: &[u8], is_binary: bool) -> Option<usize> {
    if !is_binary {
        return memchr::memchr(b'\n', bytes).map(|end| end + 1);
    }
    let (size, rest) = bytes.split_first_chunk::<4>()?;
    let size = usize::try_from(u32::from_be_bytes(*size)).ok()?;
    (rest.len() >= size).then_some(4 + size)
}

const KUBECONFIG: &str = "kubeconfig";
/// Headers of one connection, and the credential: the relay has its own.
const OWN_HEADERS: [HeaderName; 6] = [
    header::HOST,
    header::AUTHORIZATION,
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];
