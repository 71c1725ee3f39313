//! One request, and what Weir has learnt about it.

use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{HeaderValue, Version};
use tokio::time::Instant;

use crate::api::request_info::{RequestInfo, Verb};
use crate::api::resource::ApiResource;
use crate::flow::habit::Habit;
use crate::server::connection::client::Client;
use crate::server::flow_control::rules::Admission;
use crate::server::metrics::ResourceMetrics;
use crate::server::open_watches::CountedWatch;
use crate::server::request::auth::AuthContext;
use crate::server::request::explain::Explanation;
use crate::server::shadow::copy::AnswerCopy;

/// One request, and what Weir has learnt about it.
pub(crate) struct RequestContext<'a> {
    /// When its head was read.
    pub(crate) started: Instant,
    /// The client that sent it.
    pub(crate) client: &'a Arc<Client>,
    /// Its head. Forwarding takes it out.
    pub(crate) parts: Parts,
    /// Whether it has a body.
    pub(crate) has_body: bool,
    /// The one parse of its path and query, which is what is authorized and what is served.
    pub(crate) info: RequestInfo,
    /// Its resource as discovery describes it, looked up once. `None` if it is not known yet.
    pub(crate) resource: Option<Arc<ApiResource>>,
    /// The metrics of the resource.
    pub(crate) metrics: Arc<ResourceMetrics>,
    /// The results of authentication and authorization.
    pub(crate) auth: AuthContext,
    /// Its User-Agent, if clients' costs are added up. Forwarding takes the head out.
    pub(crate) agent: Option<HeaderValue>,
    /// The version of HTTP. Forwarding takes the head out.
    pub(crate) version: Version,
    /// How a list or a watch is asked for, if clients' costs are added up.
    pub(crate) habit: Habit,
    /// The explanation for the client, if it asks for one.
    pub(crate) explanation: Option<Box<Explanation>>,
    /// What it holds since operators' rules were applied; `None` before, and without rules.
    pub(crate) admission: Option<Box<Admission>>,
    /// Counts it among the open watches of its sender; `None` before, and for other verbs.
    pub(crate) watch: Option<Arc<CountedWatch>>,
    /// Whether the present stage of overload admitted it already, as a request for a cache.
    pub(crate) is_checked: bool,
    /// When it was forwarded; `None` before.
    pub(crate) forwarded: Option<Instant>,
    /// For how long the API server had it, until the head of the response; `None` if it sent none.
    pub(crate) upstream_time: Option<Duration>,
    /// Copies its answer for a comparison with the cache.
    pub(crate) copy: Option<Box<AnswerCopy>>,
}

impl RequestContext<'_> {
    /// Notes that a stage of it has ended, if the client asks for that.
    pub(crate) fn ended(&self, stage: &'static str) {
        if let Some(explanation) = &self.explanation {
            explanation.ended(stage);
        }
    }

    /// Whether the API server's priority and fairness counts it: all but long-lived connections.
    pub(crate) fn takes_seats(&self) -> bool {
        self.info.verb == Verb::Watch || !self.info.is_long_running()
    }
}
