//! One request, and what Weir has learnt about it.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{HeaderMap, Response};
use tokio::time::Instant;

use crate::api::request_info::Verb;
use crate::api::resource::ApiResource;
use crate::auth::user::User;
use crate::server::flow_control::requester::Requester;
use crate::server::metrics::ResourceMetrics;
use crate::server::request::auth::AuthContext;
use crate::server::request::explain::Explanation;
use crate::server::request::holds::Holds;
use crate::server::request::resolved::Resolved;
use crate::server::request::trace::{AnswerSummary, RequestTrace, UpstreamCall};
use crate::upstream::error::UpstreamError;

/// One request, and the facts that Weir has learnt about it. It derefs to the resolved request.
pub(crate) struct RequestContext<'a> {
    pub(crate) resolved: Resolved<'a>,
    /// Its head, which lies where the request does and not a second time in each future that has a
    /// context. Forwarding takes it out.
    pub(crate) parts: &'a mut Parts,
    /// Its resource as discovery describes it, looked up once. `None` if it is not known yet.
    pub(crate) resource: Option<Arc<ApiResource>>,
    pub(crate) metrics: Arc<ResourceMetrics>,
    pub(crate) auth: AuthContext,
    pub(crate) explanation: Option<Box<Explanation>>,
    pub(crate) trace: Option<Box<RequestTrace>>,
    pub(crate) holds: Holds,
    /// The time at which it was forwarded; `None` before.
    pub(crate) forwarded: Option<Instant>,
    /// The time that the API server took until the head of its response; `None` if it sent none.
    pub(crate) upstream_time: Option<Duration>,
}

impl<'a> Deref for RequestContext<'a> {
    type Target = Resolved<'a>;

    fn deref(&self) -> &Resolved<'a> {
        &self.resolved
    }
}

impl<'a> RequestContext<'a> {
    pub(crate) fn new(
        resolved: Resolved<'a>,
        parts: &'a mut Parts,
        metrics: Arc<ResourceMetrics>,
    ) -> Self {
        Self {
            resolved,
            parts,
            resource: None,
            metrics,
            auth: AuthContext::default(),
            explanation: None,
            trace: None,
            holds: Holds::default(),
            forwarded: None,
            upstream_time: None,
        }
    }
}

impl RequestContext<'_> {
    /// Notes that a stage of it has ended, if the client asks for that or it is sampled.
    pub(crate) fn ended(&self, stage: &'static str) {
        self.explain_stage(stage);
        if let Some(trace) = &self.trace {
            trace.ended(stage);
        }
    }

    /// Notes that a stage has ended that is part of another one's span, or of none.
    pub(crate) fn ended_without_span(&self, stage: &'static str) {
        self.explain_stage(stage);
        if let Some(trace) = &self.trace {
            trace.skip();
        }
    }

    /// Notes that the cache is done with it. Only what a cache answers has a span of its encoding.
    pub(crate) fn ended_in_cache(&self, is_answered: bool) {
        self.explain_stage("cache");
        match &self.trace {
            Some(trace) if is_answered && self.info.verb == Verb::List => trace.ended("list"),
            Some(trace) if is_answered => trace.ended("splice"),
            Some(trace) => trace.skip(),
            None => {}
        }
    }

    /// Notes that it had what it needed, after a wait or at once.
    pub(crate) fn ended_wait(&self, cause: &'static str, has_waited: bool) {
        self.explain_stage(cause);
        match &self.trace {
            Some(trace) if has_waited => trace.waited(cause),
            Some(trace) => trace.skip(),
            None => {}
        }
    }

    fn explain_stage(&self, stage: &'static str) {
        if let Some(explanation) = &self.explanation {
            explanation.ended(stage);
        }
    }

    /// Decides whether its trace is sampled, if its sender is known.
    pub(crate) fn settle_trace(&self) {
        if let Some(trace) = &self.trace
            && self.user().is_some()
        {
            trace.settle_for(self.is_trusted_parent());
        }
    }

    /// Begins a call of the API server with these headers, if it is sampled.
    pub(crate) fn begin_call(&self, headers: &mut HeaderMap) -> Option<UpstreamCall> {
        self.trace.as_ref()?.call(self.is_trusted_parent(), headers)
    }

    pub(crate) fn end_call<B>(
        &self,
        call: Option<UpstreamCall>,
        sent: &Result<Response<B>, UpstreamError>,
    ) {
        if let (Some(trace), Some(call)) = (&self.trace, call) {
            trace.called(call, sent.as_ref().ok().map(|response| response.status().as_u16()));
        }
    }

    pub(crate) fn finish_trace(&mut self, answer: &AnswerSummary<'_>) {
        if let Some(trace) = self.trace.take() {
            let info = self.resource.is_some().then_some(&self.info);
            trace.export(self.is_trusted_parent(), info, Some(answer));
        }
    }

    /// Whether the client's trace context counts as the parent of Weir's span. In a gateway it does
    /// for those for whom it does in kube-apiserver: others could make Weir export whatever they
    /// want.
    pub(crate) fn is_trusted_parent(&self) -> bool {
        let is_trusted =
            |user: &User| user.groups.iter().any(|group| TRUSTED_GROUPS.contains(&&**group));
        matches!(self.sender(), Requester::Sidecar) || self.user().is_some_and(is_trusted)
    }
}

/// The groups whose members kube-apiserver trusts with a trace context
/// (`apiserver/pkg/endpoints/filters/traces.go`).
const TRUSTED_GROUPS: [&str; 2] = ["system:masters", "system:monitoring"];
