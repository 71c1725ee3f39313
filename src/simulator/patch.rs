//! PATCH: merge patches, JSON patches, and strategic merge patches as plain `kubectl apply` sends
//! them.

use http::Response;
use serde_json::Value;

use super::answer::Body;
use super::kinds::Kind;
use super::request::{Request, Target};
use super::shared::Shared;
use super::status::ApiError;
use super::strategic_merge;
use super::write;
use super::writes::{dry_run, respond, write_target};

/// Answers a PATCH of an object or of its status.
pub(super) fn patch(
    shared: &Shared,
    request: &Request,
    kind: &Kind,
    target: &Target,
) -> Result<Response<Body>, ApiError> {
    let change = parse(request, kind)?;
    let changed = write::modify(
        &shared.store,
        kind,
        write_target(kind, target),
        dry_run(request)?,
        |object| apply(&change, object),
    )?;
    respond(request, kind, 200, changed)
}

/// A decoded patch.
#[derive(Debug)]
pub(super) enum Change {
    Merge(Value),
    Json(json_patch::Patch),
    Strategic(Value),
}

/// Decodes the patch of a request by its media type.
pub(super) fn parse(request: &Request, kind: &Kind) -> Result<Change, ApiError> {
    let media = request.header("content-type").split(';').next().unwrap_or_default().trim();
    let bad =
        |error: serde_json::Error| ApiError::bad_request(format!("error decoding patch: {error}"));
    match media {
        "application/merge-patch+json" => {
            serde_json::from_slice(&request.body).map(Change::Merge).map_err(bad)
        }
        "application/json-patch+json" => {
            serde_json::from_slice(&request.body).map(Change::Json).map_err(bad)
        }
        "application/strategic-merge-patch+json" if !kind.custom => {
            serde_json::from_slice(&request.body).map(Change::Strategic).map_err(bad)
        }
        other => {
            let message = format!(
                "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json; got {other}"
            );
            Err(ApiError::new(415, "UnsupportedMediaType", message))
        }
    }
}

/// Applies a patch.
pub(super) fn apply(change: &Change, mut object: Value) -> Result<Value, ApiError> {
    match change {
        Change::Merge(patch) => json_patch::merge(&mut object, patch),
        Change::Strategic(patch) => strategic_merge::merge(&mut object, patch),
        Change::Json(patch) => json_patch::patch(&mut object, patch).map_err(|error| {
            let message =
                format!("the server rejected our request due to an error in our request: {error}");
            ApiError::new(422, "Invalid", message)
        })?,
    }
    Ok(object)
}
