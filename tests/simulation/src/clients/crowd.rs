//! The requests of the clients of a crowd, and the record of how each ended.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use tokio::time::Instant;

use super::Client;
use crate::caller::Answer;
use crate::checker::{Ending, SentRequest};
use crate::resources::{RESOURCES, Selection};

/// A request of a crowd that is being sent.
pub(super) struct Sent {
    request: SentRequest,
    what: String,
}

impl Sent {
    /// Begins a request of a client; `number` is its own among those of the client.
    pub(super) fn new(client: &Client, number: u64, method: &Method, path: &str) -> Self {
        let request = SentRequest {
            audit_id: format!("{}-{number:07}", client.name),
            is_read: *method == Method::GET,
            what: format!("{method} {path} of {} from {}", client.name, client.caller.target()),
            begun: Instant::now(),
            ended: Instant::now(),
            ending: Ending::GivenUp,
        };
        Self { request, what: format!("{method} {path}") }
    }

    /// Returns the id of the request.
    pub(super) fn audit_id(&self) -> &str {
        &self.request.audit_id
    }

    /// Notes that the client went away.
    pub(super) fn given_up(self, client: &Client) {
        client.trace_failure(&self.what, "given up");
        self.end(client, Ending::GivenUp);
    }

    /// Notes the answer. Returns after which time the client is to come back, if it was refused.
    pub(super) fn ended(
        self,
        client: &Client,
        answer: &Result<Answer, String>,
    ) -> Option<Duration> {
        let answer = match answer {
            Ok(answer) => answer,
            Err(why) => {
                client.trace_failure(&self.what, why);
                self.end(client, Ending::Failed(why.clone()));
                return None;
            }
        };
        let header = |name| answer.headers.get(name).and_then(|value| value.to_str().ok());
        let retry_after = header("retry-after").and_then(|text| text.parse().ok());
        let shed = header("x-weir-shed").map(str::to_owned);
        let answered_by = shed.as_deref().unwrap_or(&answer.cache);
        client.trace(&self.what, answer.status, answered_by, &answer.body);
        let status = answer.status;
        let body = if status == 429 { answer.whole.clone() } else { Bytes::new() };
        self.end(client, Ending::Answered { status, retry_after, shed, body });
        (status == 429).then(|| Duration::from_secs(retry_after.unwrap_or(1)))
    }

    fn end(mut self, client: &Client, ending: Ending) {
        self.request.ended = Instant::now();
        self.request.ending = ending;
        client.setting.checker.ended(self.request);
    }
}

/// Draws a request that Weir cannot answer from a cache, but for some lists: a list, a GET or a
/// write.
pub(super) fn draw_request(rng: &mut fastrand::Rng) -> (Method, String, Bytes) {
    let resource = &RESOURCES[rng.usize(..RESOURCES.len())];
    let object = resource.object(rng);
    let word = |pointer: &str| {
        object.pointer(pointer).and_then(|value| value.as_str()).unwrap_or_default().to_owned()
    };
    let (namespace, name) = (word("/metadata/namespace"), word("/metadata/name"));
    let collection = format!("{}/namespaces/{namespace}/{}", resource.root, resource.plural);
    let one = format!("{collection}/{name}");
    let body = Bytes::from(object.to_string());
    match rng.u8(..8) {
        0 => (Method::POST, collection, body),
        1 => (Method::PUT, one, body),
        2 => (Method::DELETE, one, Bytes::new()),
        3 | 4 => (Method::GET, Selection::draw(rng).path(""), Bytes::new()),
        _ => (Method::GET, one, Bytes::new()),
    }
}
