//! A sibling that is none: it answers with what a Weir sent, also long ago, altered, or in part.
//!
//! The lists of before are the worst of it: each was right once, with its description, and may be
//! of a history that is lost meanwhile, or of another cluster.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use hyper::body::{Body, Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use weir::api::seed::{SEED_HEADER, SeedRequest};

use crate::caller::{Answer, Caller};
use crate::network::Network;
use crate::siblings::IMPOSTOR;
use crate::trace::Trace;

/// The impostor. Cheap to clone.
#[derive(Clone)]
struct Impostor {
    network: Network,
    trace: Trace,
    /// The Weirs whose lists it takes.
    weirs: Arc<Vec<String>>,
    state: Arc<Mutex<State>>,
}

struct State {
    rng: fastrand::Rng,
    /// The lists that Weirs have sent, by path and form.
    sent: BTreeMap<String, Vec<List>>,
}

/// A list of a Weir, with the header that describes it.
#[derive(Clone)]
struct List {
    headers: HeaderMap,
    body: Bytes,
}

/// The way in which it misuses a list.
#[derive(Clone, Copy, Debug)]
enum Trick {
    /// Nothing.
    Honest,
    /// It sends one of before.
    Old,
    /// It describes it as another one.
    Mixed,
    /// It alters a byte.
    Altered,
    /// It leaves out the description.
    Undescribed,
    /// It breaks off.
    Half,
    /// It sends nothing after the first half.
    Silent,
}

/// A body with what follows it.
struct Piece {
    bytes: Option<Bytes>,
    trick: Trick,
}

/// Lets the impostor accept connections.
pub(crate) fn listen(network: &Network, trace: &Trace, weirs: Vec<String>, rng: fastrand::Rng) {
    let impostor = Impostor {
        network: network.clone(),
        trace: trace.clone(),
        weirs: Arc::new(weirs),
        state: Arc::new(Mutex::new(State { rng, sent: BTreeMap::new() })),
    };
    network.listen(IMPOSTOR, move |pipe| {
        let impostor = impostor.clone();
        let service = service_fn(move |request| {
            let impostor = impostor.clone();
            async move { Ok::<_, Infallible>(impostor.answer(request).await) }
        });
        let connection = http1::Builder::new().serve_connection(TokioIo::new(pipe), service);
        tokio::spawn(async move { drop(connection.await) });
        true
    });
}

impl Impostor {
    async fn answer(&self, request: Request<Incoming>) -> Response<Piece> {
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let accept = request.headers().get(http::header::ACCEPT);
        let accept = accept.and_then(|accept| accept.to_str().ok()).unwrap_or_default().to_owned();
        let seed = SeedRequest::from_headers(request.headers());
        let weir = {
            let mut state = self.state.lock();
            self.weirs[state.rng.usize(..self.weirs.len())].clone()
        };
        let mut caller = Caller::new(self.network.clone(), IMPOSTOR, &weir, false);
        let fresh = match seed {
            Some(seed) => caller.seed(&path, &accept, &seed).await.ok(),
            None => None,
        };
        let (trick, list) = self.choose(format!("{path} {accept}"), fresh);
        self.trace.line(&format!("{IMPOSTOR} {path}: {trick:?}, {}", list.is_some()));
        match list {
            Some(list) => list.into_response(trick),
            None => {
                let piece = Piece { bytes: None, trick: Trick::Honest };
                let mut response = Response::new(piece);
                *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
                response
            }
        }
    }

    /// Returns what is sent. Keeps what a Weir has sent.
    fn choose(&self, key: String, fresh: Option<Answer>) -> (Trick, Option<List>) {
        let mut state = self.state.lock();
        let State { rng, sent } = &mut *state;
        let trick = TRICKS[rng.usize(..TRICKS.len())];
        let sent = sent.entry(key).or_default();
        let is_list =
            |answer: &Answer| answer.status == 200 && answer.headers.contains_key(SEED_HEADER);
        let fresh = fresh.filter(is_list).map(|answer| {
            let list = List { headers: answer.headers, body: answer.whole };
            if sent.len() == KEPT_MAX {
                sent.remove(rng.usize(..KEPT_MAX));
            }
            sent.push(list.clone());
            list
        });
        if sent.is_empty() {
            return (trick, None);
        }
        let old = sent[rng.usize(..sent.len())].clone();
        let list = match trick {
            Trick::Old => Some(old),
            Trick::Mixed => fresh.map(|list| List { headers: old.headers, ..list }),
            Trick::Altered => fresh.map(|list| {
                let mut body = list.body.to_vec();
                let at = rng.usize(..body.len().max(1));
                body.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1);
                List { body: body.into(), ..list }
            }),
            _ => fresh,
        };
        (trick, list)
    }
}

impl List {
    fn into_response(self, trick: Trick) -> Response<Piece> {
        let Self { headers, body } = self;
        let half = match trick {
            Trick::Half | Trick::Silent => body.slice(..body.len() / 2),
            _ => body,
        };
        let mut response = Response::new(Piece { bytes: Some(half), trick });
        let names = [http::header::CONTENT_TYPE, SEED_HEADER];
        for name in names {
            let is_kept = name != SEED_HEADER || !matches!(trick, Trick::Undescribed);
            if let Some(value) = headers.get(&name).filter(|_| is_kept) {
                response.headers_mut().insert(name, value.clone());
            }
        }
        response
    }
}

impl Body for Piece {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        if let Some(bytes) = self.bytes.take() {
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        match self.trick {
            Trick::Half => Poll::Ready(Some(Err(std::io::ErrorKind::ConnectionReset.into()))),
            // Until the other end gives up.
            Trick::Silent => Poll::Pending,
            _ => Poll::Ready(None),
        }
    }
}

/// Lists of before are the worst, and four times as likely as each other trick.
const TRICKS: [Trick; 10] = [
    Trick::Honest,
    Trick::Old,
    Trick::Old,
    Trick::Old,
    Trick::Old,
    Trick::Mixed,
    Trick::Altered,
    Trick::Undescribed,
    Trick::Half,
    Trick::Silent,
];
/// The lists that are kept of each path and form.
const KEPT_MAX: usize = 16;
