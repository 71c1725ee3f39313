//! Signs of a client's habits in its requests and their responses, beside their cost.

use std::hash::BuildHasher;
use std::net::IpAddr;
use std::time::Duration;

use http::header::WARNING;
use http::{HeaderMap, Response, StatusCode, Version};
use tokio::time::Instant;

use crate::api::request_info::{RequestInfo, RequestScope, ResourceRequest, Verb};
use crate::api::retry_after::parse_retry_after;
use crate::flow::cost::Cost;
use crate::flow::costs::Origin;
use crate::flow::deprecation::deprecation_of;
use crate::flow::doctor::says_who;
use crate::flow::habit::{Habit, Start};
use crate::server::flow_control::requester;
use crate::server::flow_control::twins::OpenTwin;
use crate::server::flow_control::{FlowControl, selectors};
use crate::server::http::body::Body;
use crate::server::request::context::RequestContext;
use crate::server::request::resolved::Resolved;

impl FlowControl {
    /// Whether the same list was asked for several times before over the same connection. `origin`
    /// stands for the client, the verb and the resource.
    pub(super) fn is_list_repeated(
        &self,
        context: &Resolved<'_>,
        origin: u64,
        habit: Habit,
    ) -> bool {
        let info = &context.info;
        if info.verb != Verb::List || habit.start == Start::Continue {
            return false;
        }
        let namespace = info.resource.as_ref().map(|resource| &resource.namespace);
        let list = self.hasher.hash_one((origin, habit, namespace, selectors(info)));
        let second = context.started.saturating_duration_since(self.started).as_secs();
        context.client.flows.is_repeated(list, u32::try_from(second).unwrap_or(u32::MAX))
    }

    /// Whether a request is a GET of an object that was read just before over the same connection.
    /// `client` is what [`Self::client`] returns.
    pub(super) fn is_read_again(&self, context: &RequestContext<'_>, client: u64) -> bool {
        let is_object = |request: &&ResourceRequest| {
            context.info.verb == Verb::Get && request.subresource.is_empty()
        };
        context.info.resource.as_ref().filter(is_object).is_some_and(|request| {
            let object = self.hasher.hash_one((client, &request.namespace, &request.name));
            context.client.flows.is_read_again(object, context.started)
        })
    }

    /// Adds the sign of a response that refuses, and of a request that comes too early, to the
    /// cost.
    pub(super) fn add_signs(
        &self,
        context: &RequestContext<'_>,
        response: &Response<Body>,
        origin: u64,
        cost: &mut Cost,
    ) {
        let memo = &context.client.flows;
        let refused_for = refused_for(response);
        if (memo.has_refusals(context.started) || refused_for.is_some())
            && is_distinct(&context.info)
        {
            let info = &context.info;
            let request =
                info.resource.as_ref().map(|resource| (&resource.namespace, &resource.name));
            let path = info.non_resource.as_ref().map(|non_resource| &non_resource.path);
            let request =
                self.hasher.hash_one((origin, context.habit, request, path, selectors(info)));
            cost.early_retries += f64::from(u8::from(memo.is_early(request, context.started)));
            if let Some(wait) = refused_for {
                memo.refuse(request, Instant::now(), wait);
            }
        }
    }

    /// Counts and keeps the API server's warning that the API of a request is deprecated, if it has
    /// one.
    pub(super) fn note_warning(
        &self,
        context: &RequestContext<'_>,
        response: &Response<Body>,
        cost: &mut Cost,
        origin: impl FnOnce() -> Origin,
    ) {
        if let Some(warning) = deprecation(response.headers(), &context.info) {
            cost.deprecated += 1.0;
            let origin = origin();
            self.costs.lock().note_warning(&origin.resource, warning);
        }
    }

    /// Counts a watch of the pods of all nodes for the address that it comes from. Returns what
    /// stands for the address, if it is counted.
    pub(super) fn open_reader(
        &self,
        context: &RequestContext<'_>,
        response: &Response<Body>,
        origin: &Origin,
    ) -> Option<u64> {
        let is_counted = response.status().is_success() && watches_all_pods(&context.info);
        let address = context.client.peer.address.filter(|_| is_counted)?;
        let (now, address) = (self.started.elapsed(), self.hasher.hash_one(address));
        self.costs.lock().open_reader(now, &origin.user, &origin.agent, address);
        Some(address)
    }

    pub(super) fn close_reader(&self, origin: &Origin, address: u64) {
        self.costs.lock().close_reader(&origin.user, &origin.agent, address);
    }

    /// Counts a watch of a collection among the open ones of its process, if that is known. Returns
    /// also whether two others of the same were open. A watch of one object costs hardly anything,
    /// and each program that delegates its authentication has three of a config map of kube-system.
    pub(super) fn open_twin(&self, context: &RequestContext<'_>) -> Option<(OpenTwin, bool)> {
        let agent = requester::agent(context.agent.as_ref());
        let client = context.client;
        let is_remote = |address: &IpAddr| !address.is_loopback();
        let process = if context.version == Version::HTTP_2 {
            (Some(client.number), None)
        } else {
            (None, Some(client.peer.address.filter(is_remote).filter(|_| says_who(agent))?))
        };
        let info = &context.info;
        if info.scope() == RequestScope::Resource {
            return None;
        }
        let subject = info.resource.as_ref().map(|resource| (&resource.gvr, &resource.namespace));
        let form = context.habit.form;
        let watch = (process, context.sender(), agent, subject, selectors(info), form);
        self.twins.open(self.hasher.hash_one(watch))
    }
}

fn refused_for(response: &Response<Body>) -> Option<Duration> {
    let is_refused = matches!(
        response.status(),
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
    );
    if !is_refused {
        return None;
    }
    let wait = parse_retry_after(response.headers())?;
    // A timer of the client may be a little early.
    Some(wait.min(RETRY_AFTER_MAX).mul_f64(0.9))
}

/// Whether two requests that look like this one are the same request. The name of an object that is
/// created is in the body, which is not read: any two creations in a namespace look the same.
fn is_distinct(info: &RequestInfo) -> bool {
    let has_name = info.resource.as_ref().is_some_and(|resource| !resource.name.is_empty());
    info.verb != Verb::Create || has_name
}

/// Returns the API server's warning that the API of a request is deprecated.
fn deprecation<'a>(headers: &'a HeaderMap, info: &RequestInfo) -> Option<&'a str> {
    let texts = headers.get_all(WARNING).iter().filter_map(|warning| warning.to_str().ok());
    // Most responses have none.
    let mut texts = texts.peekable();
    texts.peek()?;
    let version = info.resource.as_ref()?.gvr.api_version();
    texts.find_map(|text| deprecation_of(text, &version))
}

fn watches_all_pods(info: &RequestInfo) -> bool {
    let is_pods = |request: &ResourceRequest| {
        request.gvr.group.is_empty()
            && &*request.gvr.resource == "pods"
            && request.subresource.is_empty()
    };
    info.verb == Verb::Watch
        && info.scope() == RequestScope::Cluster
        && info.resource.as_ref().is_some_and(is_pods)
        && !selectors(info).into_iter().flatten().any(|selector| selector.contains("spec.nodeName"))
}

/// A longer wait is not remembered.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    #[test]
    fn a_response_tells_of_refusals_and_warnings() {
        let response = |status: u16, name: &str, value: &str| {
            let body = Body::empty();
            Response::builder().status(status).header(name, value).body(body).unwrap()
        };
        let wait = |status, value| refused_for(&response(status, "retry-after", value));
        assert_eq!(wait(429, "10"), Some(Duration::from_secs(9)));
        assert_eq!(wait(503, "1"), Some(Duration::from_millis(900)));
        assert_eq!(wait(200, "1"), None);
        assert_eq!(wait(429, "soon"), None);
        let warned = |warnings: &[&str], path: &str| {
            let mut headers = HeaderMap::new();
            for warning in warnings {
                headers.append(WARNING, warning.parse().unwrap());
            }
            let info = RequestInfo::parse(&Method::GET, path, "");
            deprecation(&headers, &info).map(str::to_owned)
        };
        let of_webhook = r#"299 - "image "db:1" of pod secret-project is deprecated""#;
        let of_server = r#"299 - "v1 ComponentStatus is deprecated in v1.19+""#;
        let path = "/api/v1/componentstatuses";
        let text = Some("v1 ComponentStatus is deprecated in v1.19+".to_owned());
        assert_eq!(warned(&[of_webhook, of_server], path), text);
        assert_eq!(warned(&[of_webhook], path), None);
        assert_eq!(warned(&[of_server], "/apis/apps/v1/deployments"), None, "another API");
        assert_eq!(warned(&[of_server], "/healthz"), None);
        assert_eq!(warned(&[], path), None);
    }

    #[test]
    fn creations_look_the_same_and_other_requests_do_not() {
        let is_one =
            |method: &Method, path: &str| is_distinct(&RequestInfo::parse(method, path, ""));
        assert!(!is_one(&Method::POST, "/api/v1/namespaces/ns1/events"));
        assert!(!is_one(&Method::POST, "/apis/authorization.k8s.io/v1/subjectaccessreviews"));
        assert!(is_one(&Method::POST, "/api/v1/namespaces/ns1/pods/one/eviction"));
        for method in [Method::GET, Method::PUT, Method::PATCH, Method::DELETE] {
            assert!(is_one(&method, "/api/v1/namespaces/ns1/pods/one"), "{method}");
        }
        assert!(is_one(&Method::GET, "/api/v1/pods"));
    }

    #[test]
    fn the_pods_of_all_nodes_are_all_pods() {
        let reads = |path: &str, query: &str| {
            watches_all_pods(&RequestInfo::parse(&Method::GET, path, query))
        };
        assert!(reads("/api/v1/pods", "watch=1"));
        assert!(reads("/api/v1/pods", "watch=1&fieldSelector=status.phase%3DRunning"));
        assert!(!reads("/api/v1/pods", "watch=1&fieldSelector=spec.nodeName%3Dn1"));
        assert!(!reads("/api/v1/pods", ""), "a list, as of a job");
        assert!(!reads("/api/v1/namespaces/ns1/pods", "watch=1"));
        assert!(!reads("/api/v1/nodes", "watch=1"));
    }
}
