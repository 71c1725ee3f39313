//! The requests of siblings for the state of a cache, which are answered from the cache or refused.

use http::{Response, StatusCode};

use super::Router;
use crate::api::request_info::Verb;
use crate::api::seed::SeedRequest;
use crate::cache::refusal::Refusal;
use crate::server::cached::seed;
use crate::server::delegate::Reason;
use crate::server::http::body::Body;
use crate::server::http::response::Reply;
use crate::server::request::auth::Caller;
use crate::server::request::bypass::{Bypass, Rejection};
use crate::server::request::context::RequestContext;
use crate::server::request::refusal_reason::RefusalReason;

impl Router {
    /// Answers a request for the state of a cache; `None` for any other request. Shadow mode
    /// refuses it.
    pub(super) async fn answer_sibling(
        &self,
        context: &mut RequestContext<'_>,
        caller: &Caller,
    ) -> Option<Reply> {
        if !SeedRequest::is_in(&context.parts.headers) {
            return None;
        }
        let rejection = match self.list_for_sibling(context, caller).await {
            Ok(response) => return Some(Reply::hit(response)),
            Err(rejection) => rejection,
        };
        Some(self.reject(context, &rejection).await)
    }

    /// Returns the list, or why there is none. Each refusal of a known sender counts once: those
    /// of [`seed::serve_list`] there, and all others here.
    async fn list_for_sibling(
        &self,
        context: &mut RequestContext<'_>,
        caller: &Caller,
    ) -> Result<Response<Body>, Rejection> {
        let registry = &self.caches.registry;
        let refuse = |outcome, reason| {
            registry.note_seed(outcome);
            seed::rejection(reason)
        };
        if context.info.verb != Verb::List {
            return Err(refuse("options", "options"));
        }
        if self.shadow.is_some() {
            return Err(refuse("shadow", "shadow"));
        }
        let served = Box::pin(self.serve_cached(context, caller)).await;
        context.ended("cache");
        served.map_err(|bypass| match bypass {
            Bypass::Refuse(rejection) => {
                if let Some(outcome) = outcome_of(&rejection) {
                    registry.note_seed(outcome);
                }
                rejection
            }
            Bypass::Forward(reason) => refuse(outcome_of_reason(reason), reason.as_str()),
        })
    }
}

/// Returns the outcome of a refusal, unless it was counted.
fn outcome_of(rejection: &Rejection) -> Option<&'static str> {
    match rejection.status.code {
        _ if rejection.reason == RefusalReason::Seed => None,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Some("denied"),
        _ => Some("limited"),
    }
}

/// Returns the outcome of a request that would be forwarded without its header.
fn outcome_of_reason(reason: Reason) -> &'static str {
    match reason {
        Reason::Impersonation => "denied",
        Reason::Refused(Refusal::Unknown) => "absent",
        // Without an answer of the API server nobody was denied anything.
        Reason::Identity | Reason::Authorization | Reason::Refused(_) => "unready",
        _ => "options",
    }
}
