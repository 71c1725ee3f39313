//! A request, resolved once, when its head has arrived.
//!
//! Only the sender becomes known later, by a review of its token. Then [`Resolved::identify`]
//! replaces it, and its placement with it. The placement and the size of the collection take time,
//! and are looked up when they are first needed, and kept: most reads from a cache need neither.

use std::sync::{Arc, OnceLock};

use http::request::Parts;
use http::{HeaderValue, Version};
use tokio::time::Instant;

use crate::api::request_info::{RequestInfo, Verb};
use crate::auth::impersonation::Impersonation;
use crate::auth::user::User;
use crate::cache::registry::Registry;
use crate::config::ConsistentLists;
use crate::flow::habit::Habit;
use crate::flow::work::CollectionSize;
use crate::server::connection::client::Client;
use crate::server::delegate::{self, CachedDecision, Reason};
use crate::server::flow_control::Placement;
use crate::server::flow_control::requester::Requester;
use crate::server::http::headers;

pub(crate) struct Resolved<'a> {
    /// The time at which its head was read.
    pub(crate) started: Instant,
    pub(crate) client: &'a Arc<Client>,
    /// The one parse of its path and query, which is both authorized and served.
    pub(crate) info: RequestInfo,
    pub(crate) has_body: bool,
    /// Whether its headers [are plain](headers::are_plain).
    pub(crate) is_plain: bool,
    /// The version of HTTP. Forwarding takes the head out.
    pub(crate) version: Version,
    /// The user as whom a read is sent in place of its sender, if roles may decide about it.
    pub(crate) impersonation: Option<Impersonation>,
    /// The way in which a cache answers it, or the reason why the API server does.
    pub(crate) decision: Result<CachedDecision, Reason>,
    /// Its User-Agent, if clients' costs are added up, or if it changes an object. Forwarding takes
    /// the head out.
    pub(crate) agent: Option<HeaderValue>,
    /// The way in which a list or a watch is asked for, if clients' costs are added up.
    pub(crate) habit: Habit,
    sender: Requester,
    placement: OnceLock<Placement>,
    size: OnceLock<Option<CollectionSize>>,
}

impl<'a> Resolved<'a> {
    /// Resolves a request that has just arrived. `impersonation` is that of its headers, if roles
    /// may decide about it.
    pub(crate) fn new(
        client: &'a Arc<Client>,
        parts: &Parts,
        has_body: bool,
        consistent_lists: impl FnOnce() -> ConsistentLists,
        impersonation: Option<Impersonation>,
    ) -> Self {
        let query = parts.uri.query().unwrap_or_default();
        let info = RequestInfo::parse(&parts.method, parts.uri.path(), query);
        let (is_plain, may_impersonate) =
            (headers::are_plain(&parts.headers), impersonation.is_some());
        let head = (has_body, is_plain);
        let decision = delegate::decide(parts, head, &info, consistent_lists, may_impersonate);
        Self {
            started: Instant::now(),
            client,
            has_body,
            is_plain,
            version: parts.version,
            decision,
            impersonation,
            info,
            agent: None,
            habit: Habit::default(),
            sender: Requester::default(),
            placement: OnceLock::new(),
            size: OnceLock::new(),
        }
    }

    /// Decides as if consistent lists came from caches.
    pub(crate) fn decide_with_proofs(
        &self,
        parts: &Parts,
        may_impersonate: bool,
    ) -> Result<CachedDecision, Reason> {
        let (head, lists) = ((self.has_body, self.is_plain), || ConsistentLists::Always);
        delegate::decide(parts, head, &self.info, lists, may_impersonate)
    }

    pub(crate) fn sender(&self) -> &Requester {
        &self.sender
    }

    pub(crate) fn user(&self) -> Option<&User> {
        self.sender.user()
    }

    /// Sets the sender.
    pub(crate) fn identify(&mut self, sender: Requester) {
        self.sender = sender;
        self.placement = OnceLock::new();
    }

    /// Returns its class and flow, which `place` finds.
    pub(crate) fn placement(&self, place: impl FnOnce() -> Placement) -> &Placement {
        self.placement.get_or_init(place)
    }

    /// Returns the size of its collection, if a cache knows it.
    pub(crate) fn size(&self, registry: &Registry) -> Option<CollectionSize> {
        *self.size.get_or_init(|| {
            let (objects, bytes) = registry.size_of(&self.info.resource.as_ref()?.gvr)?;
            Some(CollectionSize { objects, bytes })
        })
    }

    /// Whether the API server's priority and fairness counts it: all but long-lived connections.
    pub(crate) fn takes_seats(&self) -> bool {
        self.info.verb == Verb::Watch || !self.info.is_long_running()
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;
    use crate::auth::peer::Peer;
    use crate::config::Config;
    use crate::flow::rules::rank;
    use crate::server::accept::listener::ListenerKind;
    use crate::server::connection::client::ConnectionStanding;
    use crate::server::drain::Drain;
    use crate::server::flow_control::FlowControl;
    use crate::server::flow_control::memo::FlowMemo;
    use crate::server::flow_control::metrics::FlowMetrics;

    /// A token's user becomes known by its review. Its request has the user's level then.
    #[tokio::test]
    async fn a_new_sender_has_a_placement_of_its_own() {
        let metrics = FlowMetrics::register(&prometheus::Registry::new()).unwrap();
        let flow = FlowControl::new(true, &Config::default().flow_control, metrics);
        let client = Arc::new(Client {
            number: 0,
            listener: ListenerKind::Tls,
            peer: Peer::default(),
            flows: FlowMemo::default(),
            drain: Drain::default().connect(),
            standing: ConnectionStanding::default(),
            listed: None,
        });
        let (parts, ()) = Request::get("/api/v1/pods").body(()).unwrap().into_parts();
        let mut request = Resolved::new(&client, &parts, false, || ConsistentLists::Auto, None);
        assert_eq!(request.decision.as_ref().err(), None);
        assert_eq!((flow.rank(&request), flow.rank(&request)), (u8::MAX, u8::MAX));
        let groups = vec!["system:masters".to_owned()];
        let admin = User::new("admin".to_owned(), String::new(), groups, [].into());
        request.identify(Requester::User(Arc::new(admin)));
        assert_eq!(flow.rank(&request), rank("exempt"));
    }
}
