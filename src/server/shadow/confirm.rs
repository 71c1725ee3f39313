//! Asks the upstream again before a difference of a whole answer counts: whether it repeats its answer
//! for the same state. If it does not, it is the upstream that is inconsistent.
//!
//! A few differences are confirmed at once. Others are not confirmed, so that an upstream whose
//! every answer differs is not asked everything twice.

use std::time::Duration;

use http::header::CONTENT_ENCODING;
use http::uri::PathAndQuery;
use http::{Response, StatusCode, Uri};

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
use crate::server::shadow::version;
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

/// Returns the query of a list with its state made exact.
fn exact_query(query: &str, at: ResourceVersion, has_limit: bool) -> String {
    let is_kept = |pair: &&str| match pair.split('=').next().unwrap_or_default() {
        "" | "resourceVersion" | "resourceVersionMatch" => false,
        name => name != "limit" || has_limit,
    };
    let kept: String = query.split('&').filter(is_kept).map(|pair| format!("{pair}&")).collect();
    format!("{kept}resourceVersion={at}&resourceVersionMatch=Exact")
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
    }
}
