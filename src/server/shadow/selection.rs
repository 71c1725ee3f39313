//! Which reads are compared.

use std::sync::Arc;

use crate::api::request_info::Verb;
use crate::server::delegate::{CachedDecision, Freshness, Reason};
use crate::server::http::headers;
use crate::server::request::context::RequestContext;
use crate::server::shadow::Shadow;
use crate::server::shadow::copy::AnswerCopy;
use crate::server::shadow::ledger::Measured;
use crate::server::shadow::outcome::{Cause, Outcome};
use crate::server::shadow::request::{ReadKind, ShadowRequest, head_of};

/// Prepares the copy of a read's answer, if it is to be compared. Returns the reason to forward the
/// request, which every one is in shadow mode.
pub(crate) fn copy_answer(shadow: &Arc<Shadow>, context: &mut RequestContext<'_>) -> Reason {
    let (parts, info) = (&*context.parts, &context.info);
    let is_read = matches!(info.verb, Verb::Get | Verb::List | Verb::Watch);
    let forwards = context.decision.as_ref().err().copied();
    let decision = match forwards {
        // A cache has the same states, and lacks only the proof that they are fresh.
        Some(Reason::Consistent) if info.verb == Verb::Get => {
            Ok(CachedDecision::Get(Freshness::Any))
        }
        Some(Reason::Consistent) => {
            context.decide_with_proofs(parts, context.impersonation.is_some())
        }
        _ => context.decision.clone(),
    };
    let forwards = forwards.filter(|reason| *reason == Reason::Consistent);
    if let Err(reason) = decision {
        let is_counted =
            !matches!(reason, Reason::Write | Reason::NonResource | Reason::Subresource);
        if is_counted && is_read {
            let kind = ReadKind::from_request(info, &parts.headers);
            shadow.record(&kind, Outcome::NotHeld(reason), &Measured::default());
        }
        return reason;
    }
    let request = ShadowRequest {
        client: Arc::clone(context.client),
        parts: head_of(parts),
        decision,
        forwards,
        began: context.started,
        kind: ReadKind::from_request(info, &parts.headers),
    };
    match headers::upgrade(&parts.headers) {
        Some(_) => shadow.count(&request, Cause::WebSocket.into()),
        None => {
            let copy = AnswerCopy::new(Arc::clone(shadow), Box::new(request));
            context.holds.copy = Some(Box::new(copy));
        }
    }
    forwards.unwrap_or(Reason::Shadow)
}
