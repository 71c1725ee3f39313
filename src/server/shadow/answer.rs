//! Compares a whole answer: of a GET or a LIST, or a refusal.
//!
//! Before a difference counts, the upstream is asked whether it repeats its answer for the same
//! state. If it does not, it is the upstream that is inconsistent. A few differences are confirmed
//! at once. Others are not, so that an upstream whose every answer differs is not asked everything
//! twice.

use std::io::Write;
use std::time::Duration;

use bytes::{Buf, Bytes};
use flate2::write::GzDecoder;
use http::header::CONTENT_ENCODING;
use http::uri::PathAndQuery;
use http::{Response, StatusCode, Uri};
use http_body_util::BodyExt;

use crate::api::resource_version::ResourceVersion;
use crate::server::cached::at_state::{StateAnswer, absent_since, get_at, list_at};
use crate::server::cached::read::CachedRead;
use crate::server::delegate::{CachedDecision, Reason};
use crate::server::http::body::Body;
use crate::server::request::auth::Caller;
use crate::server::request::context::RequestContext;
use crate::server::router::Router;
use crate::server::shadow::beside::{Beside, Compared};
use crate::server::shadow::body::{Comparer, header_difference, joined};
use crate::server::shadow::copy::COPY_BYTES_MAX;
use crate::server::shadow::ledger::{DifferingPart, Measured};
use crate::server::shadow::outcome::{Cause, Outcome};
use crate::server::shadow::request::{AnswerHead, CopiedChunk};
use crate::server::shadow::version;
use crate::upstream::bounded::read_body;
use crate::upstream::pool;

/// The upstream's answer, with its body as one piece.
struct WholeAnswer {
    head: AnswerHead,
    body: Bytes,
}

impl Beside<'_> {
    pub(super) async fn compare_answer(
        &self,
        head: AnswerHead,
        chunks: Vec<CopiedChunk>,
    ) -> Compared {
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
            // The upstream refuses a client that Weir lets read from a cache.
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
                let (_, at) = version::identify(&whole.body).ok_or(Cause::Malformed)?;
                get_at(read, at, permits).await
            }
            Ok(CachedDecision::Get(_)) => absent_since(read, self.request.began, permits).await,
            Ok(CachedDecision::List(..) | CachedDecision::Watch(..)) | Err(_) => {
                return Err(Cause::UpstreamError.into());
            }
        };
        answered.map_err(Outcome::from)
    }

    /// Returns the outcome of a whole answer that differs.
    async fn confirm_answer(
        &self,
        context: &mut RequestContext<'_>,
        caller: &Caller,
        whole: &WholeAnswer,
    ) -> Outcome {
        let unconfirmed = Outcome::NotComparable(Cause::Unconfirmed);
        let query = self.request.parts.uri.query().unwrap_or_default();
        let query = match (&self.request.decision, version::list_version(&whole.body)) {
            (Ok(CachedDecision::List(plan, _)), Some(at)) if plan.start_key.is_none() => {
                exact_query(query, at, plan.limit.is_some())
            }
            _ => query.to_owned(),
        };
        let Ok(permit) = self.shadow.confirmations.try_acquire() else { return unconfirmed };
        let asked = async {
            let response = self.ask(context, caller, &query).await?;
            let (parts, body) = response.into_parts();
            let body = read_body(body, COPY_BYTES_MAX).await.ok()?;
            let is_gzip = parts.headers.contains_key(CONTENT_ENCODING);
            Some((parts.status, joined(vec![body], is_gzip, COPY_BYTES_MAX)?))
        };
        let repeated = tokio::time::timeout(CONFIRM_TIMEOUT, asked).await.ok().flatten();
        drop(permit);
        let Some((status, body)) = repeated else { return unconfirmed };
        if (status, &body) == (whole.head.status, &whole.body) {
            return Outcome::Different;
        }
        // Only the same state can show that the upstream contradicts itself.
        let at = |status, body| {
            (status == StatusCode::OK).then_some(()).and(version::identify(body)).map(|(_, at)| at)
        };
        let is_same_state = match &self.request.decision {
            Ok(CachedDecision::List(..)) => {
                version::list_version(&body) == version::list_version(&whole.body)
            }
            _ => {
                at(status, &body).is_some()
                    && at(status, &body) == at(whole.head.status, &whole.body)
            }
        };
        if is_same_state { Outcome::UpstreamInconsistent } else { unconfirmed }
    }

    async fn ask(
        &self,
        context: &mut RequestContext<'_>,
        caller: &Caller,
        query: &str,
    ) -> Option<Response<pool::Body>> {
        let path = self.request.parts.uri.path();
        let target = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
        let parsed =
            target.parse::<PathAndQuery>().ok().filter(|parsed| parsed.as_str() == target)?;
        context.parts.uri = Uri::from(parsed);
        let Router { access, forwarder, .. } = self.router;
        let identity = access.forwarded_identity(caller).ok()?;
        let standing = access.standing(context.client, caller).await;
        let prepared = forwarder.prepare(&identity, standing, context).ok()?;
        forwarder.fetch(&prepared, context, None, Reason::Shadow).await.ok()
    }
}

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

/// Returns the query of a list with its state made exact.
fn exact_query(query: &str, at: ResourceVersion, has_limit: bool) -> String {
    let is_kept = |pair: &&str| match pair.split('=').next().unwrap_or_default() {
        "" | "resourceVersion" | "resourceVersionMatch" => false,
        name => name != "limit" || has_limit,
    };
    let kept: String = query.split('&').filter(is_kept).map(|pair| format!("{pair}&")).collect();
    format!("{kept}resourceVersion={at}&resourceVersionMatch=Exact")
}

const CONFIRM_TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_asked_for_at_its_state() {
        let at = ResourceVersion(7);
        assert_eq!(
            exact_query("limit=5&resourceVersion=0&labelSelector=a%3Db", at, false),
            "labelSelector=a%3Db&resourceVersion=7&resourceVersionMatch=Exact"
        );
        assert_eq!(
            exact_query("limit=5", at, true),
            "limit=5&resourceVersion=7&resourceVersionMatch=Exact"
        );
    }
}
