//! The requests of siblings for the state of a cache, which are answered from the cache or refused.

use super::Router;
use crate::api::request_info::Verb;
use crate::api::seed::SeedRequest;
use crate::server::cached::seed;
use crate::server::http::response::Reply;
use crate::server::request::auth::Caller;
use crate::server::request::bypass::Bypass;
use crate::server::request::context::RequestContext;

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
        if context.info.verb != Verb::List {
            return Some(self.reject(context, &seed::rejection("options")).await);
        }
        if self.shadow.is_some() {
            return Some(self.reject(context, &seed::rejection("shadow")).await);
        }
        let served = Box::pin(self.serve_cached(context, caller)).await;
        context.ended("cache");
        let rejection = match served {
            Ok(response) => return Some(Reply::hit(response)),
            Err(Bypass::Refuse(rejection)) => rejection,
            Err(Bypass::Forward(reason)) => seed::rejection(reason.as_str()),
        };
        Some(self.reject(context, &rejection).await)
    }
}
