//! The comparisons beside the clients' requests, each with a head of its own and the same sender.
//!
//! One goes the way of a request for a cache, by the same steps: the resource, the user and the
//! permission, the cache. It is not logged to the audit log, and takes nothing from its client's
//! limits.

use std::sync::Arc;

use http::Response;
use http::request::Parts;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::codec::held_bytes::HeldBytes;
use crate::config::ConsistentLists;
use crate::server::cached::at_state::NoAnswer;
use crate::server::cached::read::{CachedRead, target};
use crate::server::http::body::Body;
use crate::server::http::response::error_response;
use crate::server::request::auth::Caller;
use crate::server::request::context::RequestContext;
use crate::server::request::rejection::Bypass;
use crate::server::request::resolved::Resolved;
use crate::server::router::Router;
use crate::server::shadow::ledger::{DifferingPart, Measured};
use crate::server::shadow::outcome::{Cause, Outcome};
use crate::server::shadow::request::{Comparison, Copied, ShadowRequest};
use crate::server::shadow::{Charged, Shadow};

/// Compares answers as they arrive. Ends when it is dropped, with all its comparisons.
pub(crate) async fn run(
    router: Arc<Router>,
    shadow: Arc<Shadow>,
    mut queue: mpsc::Receiver<Comparison>,
) {
    let mut open = JoinSet::new();
    loop {
        let comparison = tokio::select! {
            Some(_) = open.join_next(), if !open.is_empty() => continue,
            comparison = queue.recv() => comparison,
        };
        let Some(comparison) = comparison else { return };
        if open.len() >= OPEN_MAX || router.caches.overload.is_saving() {
            shadow.count(&comparison.request, Cause::Busy.into());
            shadow.end_comparison();
            continue;
        }
        let compared = compare(Arc::clone(&router), Arc::clone(&shadow), comparison);
        open.spawn(Charged::new(Arc::clone(&shadow), compared));
    }
}

async fn compare(router: Arc<Router>, shadow: Arc<Shadow>, comparison: Comparison) {
    let Comparison { request, answer } = comparison;
    let beside = Beside { router: &router, shadow: &shadow, request: &request };
    let Compared { outcome, what, mut measured } = match answer {
        Copied::Whole(head, chunks) => Box::pin(beside.compare_answer(head, chunks)).await,
        Copied::Watch(head, chunks) => {
            let compared = Box::pin(beside.compare_watch(&head, chunks)).await;
            compared.unwrap_or_else(Compared::new)
        }
    };
    measured.forwards = measured.forwards.or(request.forwards);
    if let Some(what) = what {
        shadow.keep(&request, outcome, what);
    }
    shadow.record(&request.kind, outcome, &measured);
}

pub(super) struct Compared {
    pub(super) outcome: Outcome,
    pub(super) what: Option<DifferingPart>,
    pub(super) measured: Measured,
}

impl Compared {
    pub(super) fn new(outcome: impl Into<Outcome>) -> Self {
        Self { outcome: outcome.into(), what: None, measured: Measured::default() }
    }

    pub(super) fn with(self, measured: Measured) -> Self {
        Self { measured, ..self }
    }
}

impl From<NoAnswer> for Outcome {
    fn from(missing: NoAnswer) -> Self {
        match missing {
            NoAnswer::Forwards(reason) => Self::NotHeld(reason),
            NoAnswer::Late => Cause::Slow.into(),
            NoAnswer::BeforeCache => Cause::BeforeCache.into(),
        }
    }
}

/// A request beside that of a client.
pub(super) struct Beside<'a> {
    pub(super) router: &'a Router,
    pub(super) shadow: &'a Shadow,
    pub(super) request: &'a ShadowRequest,
}

impl<'a> Beside<'a> {
    /// Takes the request to where a cache is asked. Returns Weir's own refusal as well, which the
    /// upstream would send; `None` if the sender may read.
    pub(super) async fn begin<'b>(
        &self,
        parts: &'b mut Parts,
    ) -> Result<(RequestContext<'b>, Caller, Option<Response<Body>>), Outcome>
    where
        'a: 'b,
    {
        let Router { caches, access, metrics, .. } = self.router;
        let impersonation = access.impersonation(parts);
        let client = &self.request.client;
        let resolved =
            Resolved::new(client, parts, false, || ConsistentLists::Always, impersonation);
        // Comparisons are not the work that the metrics of a resource count.
        let mut context = RequestContext::new(resolved, parts, metrics.resource(None));
        caches.find_resource(&mut context).await.map_err(Outcome::NotHeld)?;
        let caller = access.caller(&mut context).map_err(|_| Cause::Refused)?;
        let refusal = match access.authorize(&mut context, &caller, &caches.herd).await {
            Ok(_) => None,
            Err(Bypass::Forward(reason)) => return Err(Outcome::NotHeld(reason)),
            Err(Bypass::Refuse(rejection)) if rejection.shed().is_some() => {
                return Err(Cause::Refused.into());
            }
            Err(Bypass::Refuse(rejection)) => {
                let (headers, query) = (&context.parts.headers, &context.info.query);
                Some(error_response(headers, query, &rejection.status))
            }
        };
        Ok((context, caller, refusal))
    }

    pub(super) fn read<'b>(
        &'b self,
        context: &'b RequestContext<'b>,
        held: &'b HeldBytes,
    ) -> Result<CachedRead<'b>, Outcome> {
        let mut target = target(context).map_err(Outcome::NotHeld)?;
        // The upstream's answers have them.
        target.form.view = target.form.view.with_managed_fields();
        CachedRead::new(context, &self.router.caches, target, held).map_err(Outcome::NotHeld)
    }
}

/// Open comparisons, most of them of watches.
const OPEN_MAX: usize = 4_096;
