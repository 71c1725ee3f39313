//! Asks the upstream again before a difference counts: whether it repeats its answer for the same
//! state. If it does not, it is the upstream that is inconsistent.
//!
//! A few differences are confirmed at once. Others are not confirmed, so that an upstream whose
//! every answer differs is not asked everything twice.

use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_ENCODING;
use http::uri::PathAndQuery;
use http::{Response, StatusCode, Uri};
use http_body_util::BodyExt;

use crate::api::media_type::Encoding;
use crate::api::resource_version::ResourceVersion;
use crate::server::delegate::{CachedDecision, Reason};
use crate::server::request::auth::Caller;
use crate::server::request::context::RequestContext;
use crate::server::router::Router;
use crate::server::shadow::answer::WholeAnswer;
use crate::server::shadow::beside::Beside;
use crate::server::shadow::body::joined;
use crate::server::shadow::copy::COPY_BYTES_MAX;
use crate::server::shadow::outcome::{Cause, Outcome};
use crate::server::shadow::version::{self, FrameCutter};
use crate::upstream::bounded::read_body;
use crate::upstream::pool;

impl Beside<'_> {
    /// Returns the outcome of a whole answer that differs.
    pub(super) async fn confirm_answer(
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
            (status == StatusCode::OK)
                .then_some(())
                .and(version::identify(body))
                .map(|identified| identified.at)
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

    /// Returns the outcome of a watch that differs at an event. `frame` is the upstream's; empty if
    /// it showed none there.
    pub(super) async fn confirm_event(
        &self,
        context: &mut RequestContext<'_>,
        caller: &Caller,
        encoding: Encoding,
        (at, frame): (ResourceVersion, &Bytes),
    ) -> Outcome {
        let unconfirmed = Outcome::NotComparable(Cause::Unconfirmed);
        let query = self.request.parts.uri.query().unwrap_or_default();
        let query = event_query(query, at);
        let Ok(permit) = self.shadow.confirmations.try_acquire() else { return unconfirmed };
        let asked = async {
            let response = self.ask(context, caller, &query).await?;
            if response.status() != StatusCode::OK {
                return None;
            }
            first_event(response.into_body(), encoding).await
        };
        let repeated = tokio::time::timeout(CONFIRM_TIMEOUT, asked).await.ok().flatten();
        drop(permit);
        match repeated {
            None => unconfirmed,
            // The next event is another one, or none: there is no event here.
            Some(Some((event_version, _))) if event_version != at && frame.is_empty() => {
                Outcome::Different
            }
            Some(None) if frame.is_empty() => Outcome::Different,
            Some(Some((_, again))) if again == *frame => Outcome::Different,
            Some(_) => Outcome::UpstreamInconsistent,
        }
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

/// Reads a watch up to its first event; `None` in it if a bookmark or the end comes first.
async fn first_event(
    mut body: pool::Body,
    encoding: Encoding,
) -> Option<Option<(ResourceVersion, Bytes)>> {
    let mut cutter = FrameCutter::new(encoding);
    loop {
        let Some(chunk) = body.frame().await else { return Some(None) };
        let Ok(chunk) = chunk.ok()?.into_data() else { continue };
        let Some(frame) = cutter.push(&chunk).ok()?.into_iter().next() else { continue };
        let raw = version::parse_frame(encoding, frame.clone())?;
        return match &*raw.event {
            "BOOKMARK" => Some(None),
            "ERROR" => None,
            _ => Some(Some((version::identify(&raw.object)?.at, frame))),
        };
    }
}

/// Returns the query of a list with its state made exact.
fn exact_query(query: &str, at: ResourceVersion, has_limit: bool) -> String {
    let kept = without(query, |name| {
        matches!(name, "resourceVersion" | "resourceVersionMatch")
            || (name == "limit" && !has_limit)
    });
    format!("{kept}resourceVersion={at}&resourceVersionMatch=Exact")
}

/// Returns the query of a watch that begins just before `at`.
fn event_query(query: &str, at: ResourceVersion) -> String {
    let kept = without(query, |name| {
        matches!(
            name,
            "resourceVersion"
                | "resourceVersionMatch"
                | "sendInitialEvents"
                | "timeoutSeconds"
                | "watch"
                | "allowWatchBookmarks"
        )
    });
    let before = ResourceVersion(at.0.saturating_sub(1));
    format!("{kept}watch=1&resourceVersion={before}&timeoutSeconds=5&allowWatchBookmarks=1")
}

/// Returns the pairs of a query without those of some names, each with a separator after it.
fn without(query: &str, is_left_out: impl Fn(&str) -> bool) -> String {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let kept = pairs.filter(|pair| !is_left_out(pair.split('=').next().unwrap_or_default()));
    kept.map(|pair| format!("{pair}&")).collect()
}

/// The longest wait for the upstream to repeat an answer.
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
        assert_eq!(
            event_query("watch=true&resourceVersion=3&fieldSelector=x", at),
            "fieldSelector=x&watch=1&resourceVersion=6&timeoutSeconds=5&allowWatchBookmarks=1"
        );
    }
}
