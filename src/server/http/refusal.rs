//! Statuses of requests that Weir itself refuses.

use std::ops::RangeInclusive;
use std::time::Duration;

use http::StatusCode;

use crate::api::status::Status;

/// Returns a status for a fault in the request itself, because of which Weir does not forward it.
pub(crate) fn refusal(code: StatusCode, reason: &'static str, message: String) -> Status {
    Status { code, reason, message, details: None, retry_after_seconds: None }
}

pub(crate) fn bad_request(message: String) -> Status {
    refusal(StatusCode::BAD_REQUEST, "BadRequest", message)
}

pub(crate) fn not_understood(why: &str) -> Status {
    bad_request(format!("weir does not understand this request: {why}"))
}

pub(crate) fn target_too_long() -> Status {
    let message = "weir accepts at most 64 KiB in the target of a request".to_owned();
    refusal(StatusCode::URI_TOO_LONG, "RequestURITooLong", message)
}

pub(crate) fn forbidden(message: String) -> Status {
    refusal(StatusCode::FORBIDDEN, "Forbidden", message)
}

/// Returns a 429 for a client that has too many requests open. It is the code of an overloaded API
/// server, after which clients retry.
pub(crate) fn too_many_requests(message: &str) -> Status {
    Status {
        retry_after_seconds: Some(BUSY_RETRY_AFTER_SECONDS),
        ..refusal(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message.to_owned())
    }
}

/// Returns a 429 for a request that found no seats of the API server. `retry_after` is when another
/// one of the same flow may find some.
pub(crate) fn shed(retry_after: Duration) -> Status {
    limited(retry_after, SHED.to_owned())
}

/// Returns a 429 for a request beyond a limit. `retry_after` is when another one may pass.
pub(crate) fn limited(retry_after: Duration, message: String) -> Status {
    let seconds = retry_after.as_secs_f64().ceil().clamp(1.0, SHED_RETRY_AFTER_SECONDS_MAX);
    Status {
        retry_after_seconds: Some(seconds as u32),
        ..refusal(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message)
    }
}

/// Returns a 429 for a watch beyond the open ones that its client may have. Nobody knows when one
/// of them ends. The `Retry-After` is random in part, so that the refused come back apart.
pub(crate) fn too_many_watches(message: String) -> Status {
    limited(Duration::from_secs(fastrand::u64(WATCHES_RETRY_AFTER_SECONDS)), message)
}

pub(crate) fn come_again(seconds: u32, message: &str) -> Status {
    Status { retry_after_seconds: Some(seconds), ..too_many_requests(message) }
}

/// Returns a 503 for the time until Weir has read the cluster's settings for client certificates
/// and front proxies. Without them it can neither authenticate the client nor forward its identity.
pub(crate) fn settings_unknown() -> Status {
    let message = "weir: the cluster's settings for client certificates are not known yet";
    Status {
        retry_after_seconds: Some(SETTINGS_RETRY_AFTER_SECONDS),
        ..refusal(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message.to_owned())
    }
}

/// Returns a 503 for a request of which nothing was sent, because no API server is usable. The
/// `Retry-After` is random, so that clients do not come back together.
pub(crate) fn unreachable() -> Status {
    Status::upstream_unreachable(fastrand::u32(UNREACHABLE_RETRY_AFTER_SECONDS))
}

const UNREACHABLE_RETRY_AFTER_SECONDS: RangeInclusive<u32> = 1..=5;
const WATCHES_RETRY_AFTER_SECONDS: RangeInclusive<u64> = 24..=30;
/// The words of kube-apiserver.
const SHED: &str = "Too many requests, please try again later.";
/// Estimates of more are worth little.
const SHED_RETRY_AFTER_SECONDS_MAX: f64 = 30.0;
/// The settings arrive with the first response of the upstream.
const SETTINGS_RETRY_AFTER_SECONDS: u32 = 1;
/// Queues are short, and permits are released as responses end.
const BUSY_RETRY_AFTER_SECONDS: u32 = 1;
