//! One request over and over without a connection, by which `benches/counts` counts what flow
//! control adds to a request. It calls what the router calls.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::USER_AGENT;
use http::request::Parts;
use http::{HeaderMap, Response, StatusCode};
use prometheus::Registry;
use tokio::time::Instant;

use crate::api::resource::{ApiResource, GroupVersionResource, built_in};
use crate::auth::peer::Peer;
use crate::auth::user::{Credential, Identity, User};
use crate::config::ConsistentLists;
use crate::server::accept::listener::ListenerKind;
use crate::server::connection::client::{Client, ConnectionStanding};
use crate::server::drain::Drain;
use crate::server::flow_control::memo::FlowMemo;
use crate::server::flow_control::meter::{Answered, Busy, Timed};
use crate::server::flow_control::queue::Seats;
use crate::server::flow_control::reading::Reading;
use crate::server::flow_control::requester::Requester;
use crate::server::flow_control::{FlowControl, habit};
use crate::server::http::body::Body;
use crate::server::metrics::{CacheStatus, ServerMetrics};
use crate::server::request::context::RequestContext;
use crate::server::request::resolved::Resolved;
use crate::upstream::Upstream;

/// A client, to which flow control was never busy.
pub struct SampleClient {
    flow: Arc<FlowControl>,
    client: Arc<Client>,
    identity: Identity,
    upstream: Upstream,
    /// Config maps, as discovery would describe them.
    resource: Arc<ApiResource>,
}

/// A request of a client, and the response to it.
pub struct SampleRequest<'a> {
    client: &'a SampleClient,
    context: RequestContext<'a>,
    response: Response<Body>,
    /// The key of the API server that it is sent to.
    server: u64,
}

impl SampleClient {
    /// Returns a client that has proved to be a user.
    pub fn new(flow: Arc<FlowControl>, user: User, upstream: Upstream) -> Self {
        let client = Client {
            number: 0,
            listener: ListenerKind::Tls,
            peer: Peer::default(),
            flows: FlowMemo::default(),
            drain: Drain::default().connect(),
            standing: ConnectionStanding::default(),
            listed: None,
        };
        let client = Arc::new(client);
        let (user, credential) = (Arc::new(user), Credential::Token);
        let identity = Identity { user, credential, not_after: None, stale: false };
        let gvr = GroupVersionResource::new("", "v1", "configmaps");
        let resource = Arc::new(built_in(gvr, "ConfigMap"));
        Self { flow, client, identity, upstream, resource }
    }

    /// Returns another user of the same connection.
    #[cfg(test)]
    pub(super) fn with_user(&self, user: User) -> Self {
        let (flow, client) = (Arc::clone(&self.flow), Arc::clone(&self.client));
        let identity = Identity { user: Arc::new(user), ..self.identity.clone() };
        let (upstream, resource) = (self.upstream.clone(), Arc::clone(&self.resource));
        Self { flow, client, identity, upstream, resource }
    }

    /// Returns the memory of the connection.
    #[cfg(test)]
    pub(super) fn memo(&self) -> &FlowMemo {
        &self.client.flows
    }

    /// Returns a request for config maps with this head, whose response has `body`.
    pub fn request<'a>(
        &'a self,
        parts: &'a mut Parts,
        body: Bytes,
    ) -> Result<SampleRequest<'a>, prometheus::Error> {
        let metrics = ServerMetrics::register(&Registry::new())?.resource(None);
        let resolved = Resolved::new(&self.client, parts, false, || ConsistentLists::Auto, None);
        let mut context = RequestContext::new(resolved, parts, metrics);
        context.resource = Some(Arc::clone(&self.resource));
        context.auth.identity = Some(self.identity.clone());
        let response = Response::new(Body::chunks(vec![body]));
        let servers = self.upstream.endpoints().servers();
        let server = servers.first().map_or(0, |server| server.key);
        Ok(SampleRequest { client: self, context, response, server })
    }
}

impl SampleRequest<'_> {
    /// Does what flow control does for a request that is answered from a cache. It came `later`
    /// than the last one.
    pub async fn hit(&mut self, later: Duration) {
        self.context.resolved.started += later;
        let busy = self.begin().await;
        self.end(CacheStatus::Hit, busy);
    }

    /// Does what flow control does for a request that is forwarded while nobody waits. Returns
    /// whether it had seats.
    pub async fn forward(&mut self) -> bool {
        let busy = self.begin().await;
        let Self { client, context, server, .. } = self;
        let asked = client.flow.ask_for_seats(context, None, client.upstream.endpoints());
        let Ok(Seats::Now(Some(mut seat))) = asked else { return false };
        context.forwarded = Some(Instant::now());
        if let Some(observer) = &seat.observer {
            observer.began(*server);
            observer.answered(StatusCode::OK, &HeaderMap::new());
        }
        seat.follow(Arc::new(Reading::ended()));
        self.end(CacheStatus::Forward, busy);
        drop(seat);
        true
    }

    async fn begin(&mut self) -> Duration {
        let Self { client, context, .. } = self;
        let resolved = &mut context.resolved;
        resolved.habit = habit(&resolved.info, &context.parts.headers);
        resolved.agent = context.parts.headers.get(USER_AGENT).cloned();
        resolved.identify(Requester::User(Arc::clone(&client.identity.user)));
        context.forwarded = None;
        let busy = Busy::new(client.flow.charges());
        let ((), busy) = Timed::new(ready(()), busy).await;
        let busy = busy.run_time(Duration::ZERO);
        if client.flow.has_rules() { Duration::ZERO } else { busy }
    }

    fn end(&mut self, status: CacheStatus, busy: Duration) {
        let Self { client, context, response, .. } = self;
        let answered = Answered { response, status, busy, size: None };
        drop(client.flow.charge_request(context, &answered));
    }
}
