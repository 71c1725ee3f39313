//! Whether an API server has reached a resourceVersion: a list of no objects that is not older
//! makes its watch cache ask etcd for its progress, and waits for that for up to three seconds
//! (`docs/semantics.md` §2.3).
//!
//! The list has no limit: API servers before 1.34 read one with a limit from etcd, which says
//! nothing about their watch caches (`docs/semantics.md` §14).

use std::fmt::Display;
use std::time::Duration;

use http::StatusCode;

use crate::upstream::RequestPurpose;
use crate::upstream::bounded::{read_body, with_timeout};
use crate::upstream::error::UpstreamError;
use crate::upstream::fetch::{Get, MATCH_NOTHING};
use crate::upstream::one_server::OneServer;

/// Returns the connection of `connect` once the watch cache of its API server, for the collection
/// at a path, has reached `resource_version`; `None` if it has not `within` this time.
pub(super) async fn server_at(
    connect: impl Future<Output = Result<OneServer, UpstreamError>>,
    path: &str,
    resource_version: impl Display,
    purpose: RequestPurpose,
    within: Duration,
) -> Result<Option<OneServer>, UpstreamError> {
    let not_older = not_older(path, resource_version);
    let reached = async {
        let mut server = connect.await?;
        let get = Get { purpose, timeout: within, ..Get::json(&not_older) };
        let response = get.send_to(&mut server).await?;
        read_body(response.into_body(), BODY_BYTES_MAX).await?;
        Ok(server)
    };
    in_time(with_timeout(within, reached).await)
}

/// Returns the target of the list, for the collection at a path.
pub(super) fn not_older(path: &str, resource_version: impl Display) -> String {
    format!(
        "{path}?resourceVersion={resource_version}&resourceVersionMatch=NotOlderThan{MATCH_NOTHING}"
    )
}

/// Returns the answer to the list; `None` if the API server has not come that far in time.
pub(super) fn in_time<T>(answer: Result<T, UpstreamError>) -> Result<Option<T>, UpstreamError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(UpstreamError::Timeout(_)) => Ok(None),
        Err(UpstreamError::Status { code: StatusCode::GATEWAY_TIMEOUT, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// How long an API server has to reach what another one has shown. It waits for 3 s itself.
pub(super) const REACH_TIMEOUT: Duration = Duration::from_secs(4);
/// The largest answer: a list without objects.
const BODY_BYTES_MAX: usize = 1 << 20;
