//! Holds back what needs the upstream while no API server is usable
//! (`docs/decisions/upstream-away.md`).
//!
//! Nothing was sent yet, so that the 503 has a `Retry-After`. Reads wait until
//! [`FAILOVER_WAIT_MAX`] after their arrival, so that a failover shows nothing. Everything else
//! waits only while the upstream may be back within a second.

use std::time::Duration;

use tokio::time::Instant;

use crate::api::request_info::Verb;
use crate::server::http::headers;
use crate::server::http::refusal::unreachable;
use crate::server::request::context::RequestContext;
use crate::server::request::rejection::{Rejection, RejectionCause};
use crate::upstream::availability::Availability;

/// Waits for an API server, and fails with a 503 if none is usable in time.
pub(crate) async fn pass(
    availability: &Availability,
    context: &RequestContext<'_>,
) -> Result<(), Rejection> {
    if availability.is_usable() {
        return Ok(());
    }
    let deadline = context.started + FAILOVER_WAIT_MAX;
    let is_usable = match is_read(context) {
        true => availability.usable_by(deadline).await,
        false => returns_soon(availability, deadline).await,
    };
    if is_usable {
        Ok(())
    } else {
        Err(Rejection::new(unreachable(), RejectionCause::UpstreamAway))
    }
}

/// Waits until an API server is usable, and returns whether one is. Returns false at `deadline`,
/// and as soon as the upstream is away.
pub(crate) async fn returns_soon(availability: &Availability, deadline: Instant) -> bool {
    tokio::select! {
        biased;
        is_usable = availability.usable_by(deadline) => is_usable,
        () = availability.until_away() => false,
    }
}

fn is_read(context: &RequestContext<'_>) -> bool {
    let is_subresource =
        context.info.resource.as_ref().is_some_and(|resource| !resource.subresource.is_empty());
    context.parts.method.is_safe()
        && matches!(context.info.verb, Verb::Get | Verb::List | Verb::Watch)
        && !is_subresource
        && headers::upgrade(&context.parts.headers).is_none()
}

/// How long a request waits for an API server, from its arrival: a failover takes less.
pub(crate) const FAILOVER_WAIT_MAX: Duration = Duration::from_secs(1);
