//! What kube-aggregator does: a request for a group and version whose APIService names a service
//! goes to that service, whatever kinds the simulator knows (`docs/semantics.md` §10.4).

use std::collections::HashMap;
use std::sync::Arc;

use ::http::Response;
use parking_lot::RwLock;
use serde_json::{Value, json};

use super::answer::{self, Body};
use super::json::array;
use super::request::Request;
use super::status::ApiError;
use super::store::Store;

/// Answers a request of a user for a path, in JSON; `None` is a 404.
type Answer = dyn Fn(&str, &str) -> Option<Value> + Send + Sync;

/// The aggregated API servers.
#[derive(Default)]
pub(super) struct Aggregation {
    /// Fixed responses, by path.
    pub(super) fixed: RwLock<HashMap<String, Value>>,
    /// What answers by user, by `GROUP/VERSION`.
    by_user: RwLock<HashMap<String, Arc<Answer>>>,
}

impl Aggregation {
    /// Registers what answers for a group and version.
    pub(super) fn register(
        &self,
        group: &str,
        version: &str,
        answer: impl Fn(&str, &str) -> Option<Value> + Send + Sync + 'static,
    ) {
        self.by_user.write().insert(format!("{group}/{version}"), Arc::new(answer));
    }

    /// Returns the answer of an aggregated API server; `None` if the API server itself answers.
    pub(super) fn answer(
        &self,
        store: &Store,
        request: &Request,
        user: &str,
    ) -> Option<Result<Response<Body>, ApiError>> {
        let path = request.path.trim_end_matches('/');
        if let Some(value) = self.fixed.read().get(path) {
            return Some(Ok(answer::value(request, 200, value)));
        }
        let mut segments = path.strip_prefix("/apis/")?.split('/');
        let (group, version) = (segments.next()?, segments.next()?);
        let kind = store.registry().find("apiregistration.k8s.io", "v1", "apiservices")?;
        let service = store.get(&kind, &format!("{version}.{group}"))?;
        service.value().pointer("/spec/service").filter(|service| !service.is_null())?;
        let of_user = self.by_user.read().get(&format!("{group}/{version}")).cloned();
        let Some(of_user) = of_user else {
            let is_fixed = self.fixed.read().contains_key(&format!("/apis/{group}/{version}"));
            return (!is_fixed).then(|| Ok(answer::plain(503, "service unavailable\n")));
        };
        let Some(value) = of_user(user, path) else { return Some(Err(ApiError::unknown_path())) };
        if request.verb() != "watch" {
            return Some(Ok(answer::value(request, 200, &value)));
        }
        let events = array(&value, "/items").iter();
        let frames = events.map(|item| json!({"type": "ADDED", "object": item}).to_string() + "\n");
        Some(Ok(answer::plain(200, &frames.collect::<String>())))
    }
}

weir_api::opaque!(Aggregation);
