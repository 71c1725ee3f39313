//! The checks whether one API server has caught up ([`catch_up`](super::catch_up)).

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use http::StatusCode;
use serde_json::Value;
use tokio::time::Instant;

use super::catch_up::CatchUp;
use super::prober::Checked;
use crate::upstream::RequestPurpose;
use crate::upstream::bounded::{read_body, with_timeout};
use crate::upstream::error::UpstreamError;
use crate::upstream::fetch::Get;
use crate::upstream::reached::server_at;

/// Checks the collections of a server for which reads wait, until the future is dropped.
pub(super) async fn run(checked: &Checked) {
    let catch_ups = &checked.server.catch_ups;
    let wanted = stream::unfold((), async |()| Some((catch_ups.next().await, ())));
    let check_one = async |collection: Arc<str>| {
        let begun = Instant::now();
        let outcome = with_timeout(CHECK_TIMEOUT, check(checked, &collection)).await;
        let outcome = outcome.unwrap_or_else(|error| {
            tracing::debug!(%error, %collection, "cannot check whether an API server lags");
            match error {
                UpstreamError::Status { code, .. } if is_lasting(code) => CatchUp::Unknown,
                _ => CatchUp::Failed,
            }
        });
        catch_ups.note(&collection, begun, outcome);
    };
    wanted.for_each_concurrent(CHECKS_MAX, check_one).await;
}

async fn check(checked: &Checked, collection: &str) -> Result<CatchUp, UpstreamError> {
    let mut server = checked.connect().await?;
    let latest = format!("{collection}?limit=1");
    let get = Get { accept: METADATA, timeout: CHECK_TIMEOUT, ..Get::json(&latest) };
    let body = read_body(get.send_to(&mut server).await?.into_body(), BODY_MAX_BYTES).await?;
    let Some(latest) = parse(&body) else { return Ok(CatchUp::Unknown) };
    let connected = std::future::ready(Ok(server));
    let purpose = RequestPurpose::Other;
    let reached = server_at(connected, collection, latest, purpose, CHECK_TIMEOUT).await?;
    Ok(if reached.is_some() { CatchUp::Reached } else { CatchUp::Behind })
}

/// Whether a check will be refused again, since Weir lacks a right or there is no such collection.
fn is_lasting(code: StatusCode) -> bool {
    code.is_client_error() && code != StatusCode::TOO_MANY_REQUESTS
}

/// Returns the resourceVersion of a list.
fn parse(body: &[u8]) -> Option<u64> {
    let list: Value = serde_json::from_slice(body).ok()?;
    list.pointer("/metadata/resourceVersion")?.as_str()?.parse().ok()
}

const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
/// The longest time of a check. The server waits for its watch cache for up to three seconds.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);
/// The checks in progress at one server.
const CHECKS_MAX: usize = 8;
/// The largest answer: the metadata of one object.
const BODY_MAX_BYTES: usize = 2 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_resource_version_of_a_list_is_read() {
        let list = br#"{"kind":"PartialObjectMetadataList","metadata":{"resourceVersion":"7"}}"#;
        assert_eq!((parse(list), parse(b"{}")), (Some(7), None));
    }
}
