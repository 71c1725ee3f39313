//! Compares a whole answer: of a GET or a LIST, or a refusal.

use std::io::Write;

use bytes::{Buf, Bytes};
use flate2::write::GzDecoder;
use http::header::CONTENT_ENCODING;
use http::{Response, StatusCode};
use http_body_util::BodyExt;

use crate::server::cached::at_state::{StateAnswer, absent_since, get_at, list_at};
use crate::server::cached::read::CachedRead;
use crate::server::delegate::CachedDecision;
use crate::server::http::body::Body;
use crate::server::shadow::beside::{Beside, Compared};
use crate::server::shadow::body::{Comparer, header_difference, joined};
use crate::server::shadow::copy::COPY_BYTES_MAX;
use crate::server::shadow::ledger::{DifferingPart, Measured};
use crate::server::shadow::outcome::{Cause, Outcome};
use crate::server::shadow::request::{AnswerHead, CopiedAnswer};
use crate::server::shadow::version;

/// The upstream's answer, with its body as one piece.
pub(super) struct WholeAnswer {
    pub(super) head: AnswerHead,
    pub(super) body: Bytes,
}

impl Beside<'_> {
    /// Compares an answer with that of the cache.
    pub(super) async fn compare_answer(&self, answer: CopiedAnswer) -> Compared {
        let CopiedAnswer { head, chunks } = answer;
        let bytes: usize = chunks.iter().map(|chunk| chunk.bytes.len()).sum();
        let measured = Measured { bytes: bytes as u64, ..Measured::default() };
        let unusual = match head.status {
            StatusCode::GONE => Some(Cause::Expired),
            StatusCode::OK
            | StatusCode::UNAUTHORIZED
            | StatusCode::FORBIDDEN
            | StatusCode::NOT_FOUND => None,
            _ => Some(Cause::UpstreamError),
        };
        if let Some(cause) = unusual {
            return Compared::new(cause).with(measured);
        }
        // The chunks stay counted until the piece that they are joined to is made.
        let Some(_claim) = self.shadow.claim(bytes) else {
            return Compared::new(Cause::Busy).with(measured);
        };
        let parts = chunks.iter().map(|chunk| chunk.bytes.clone()).collect();
        let Some(body) = joined(parts, head.is_gzip(), COPY_BYTES_MAX) else {
            return Compared::new(Cause::TooLarge).with(measured);
        };
        drop(chunks);
        let Some(_claim) = self.shadow.claim(body.len().saturating_sub(bytes)) else {
            return Compared::new(Cause::Busy).with(measured);
        };
        let whole = WholeAnswer { head, body };
        match self.compare_whole(&whole, measured).await {
            Ok(compared) => compared,
            Err(outcome) => Compared::new(outcome).with(measured),
        }
    }

    async fn compare_whole(
        &self,
        whole: &WholeAnswer,
        mut measured: Measured,
    ) -> Result<Compared, Outcome> {
        let mut head = self.request.parts.clone();
        let (mut context, caller, refused) = self.begin(&mut head).await?;
        let status = whole.head.status;
        let is_refused = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        let held = self.shadow.made().clone();
        let read = self.read(&context, &held)?;
        let what = match refused {
            Some(response) => compare_response(whole, response).await?,
            // Whoever may read from a cache is refused by the upstream.
            None if is_refused && context.auth.decision.is_some() => {
                Some(DifferingPart::Status([status.as_u16(), StatusCode::OK.as_u16()]))
            }
            None if is_refused => return Err(Cause::UpstreamError.into()),
            None => {
                let StateAnswer { response, forwards } = self.repeat(&read, whole).await?;
                measured.forwards = forwards;
                compare_response(whole, response).await?
            }
        };
        let outcome = match &what {
            None => Outcome::Equal,
            Some(_) => self.confirm_answer(&mut context, &caller, whole).await,
        };
        Ok(Compared { outcome, what, measured })
    }

    /// Has the cache answer at the state of the upstream's answer.
    async fn repeat(
        &self,
        read: &CachedRead<'_>,
        whole: &WholeAnswer,
    ) -> Result<StateAnswer, Outcome> {
        let permits = &self.shadow.short_watches;
        let is_found = whole.head.status == StatusCode::OK;
        let answered = match &self.request.decision {
            Ok(CachedDecision::List(plan, _)) if is_found => {
                let at = version::list_version(&whole.body).ok_or(Cause::Malformed)?;
                list_at(read, plan, at, permits).await
            }
            Ok(CachedDecision::Get(_)) if is_found => {
                let object = version::identify(&whole.body).ok_or(Cause::Malformed)?;
                get_at(read, object.at, permits).await
            }
            Ok(CachedDecision::Get(_)) => absent_since(read, self.request.began, permits).await,
            Ok(CachedDecision::List(..) | CachedDecision::Watch(..)) | Err(_) => {
                return Err(Cause::UpstreamError.into());
            }
        };
        answered.map_err(Outcome::from)
    }
}

/// Compares two answers.
async fn compare_response(
    whole: &WholeAnswer,
    response: Response<Body>,
) -> Result<Option<DifferingPart>, Outcome> {
    let (parts, mut body) = response.into_parts();
    let WholeAnswer { head, body: upstream } = whole;
    if parts.status != head.status {
        let statuses = [head.status.as_u16(), parts.status.as_u16()];
        return Ok(Some(DifferingPart::Status(statuses)));
    }
    if let Some(name) = header_difference(&head.headers, &parts.headers) {
        return Ok(Some(DifferingPart::Header(name)));
    }
    let is_gzip = parts.headers.contains_key(CONTENT_ENCODING);
    let mut decoder = GzDecoder::new(Comparer::new(upstream));
    while let Some(frame) = body.frame().await {
        // The state was lost meanwhile.
        let Ok(mut piece) = frame.map_err(|_| Cause::Relist)?.into_data() else { continue };
        while piece.has_remaining() {
            let chunk = piece.chunk();
            let length = chunk.len();
            if is_gzip {
                decoder.write_all(chunk).map_err(|_| Cause::Malformed)?;
            } else {
                decoder.get_mut().push(chunk);
            }
            piece.advance(length);
        }
        tokio::task::yield_now().await;
    }
    let comparer = if is_gzip {
        decoder.finish().map_err(|_| Cause::Malformed)?
    } else {
        std::mem::replace(decoder.get_mut(), Comparer::new(&[]))
    };
    Ok(comparer.finish().map(DifferingPart::Body))
}
