//! What FlowSchemas and PriorityLevelConfigurations have in common as JSON.
//!
//! Unknown fields are ignored and `null` is an empty list, as in kube-apiserver.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

/// Why an object is left out of the plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidObject {
    /// It is not the JSON of such an object.
    #[error("cannot be parsed: {0}")]
    Malformed(String),
    /// kube-apiserver would reject it.
    #[error("{field} {problem}")]
    Rejected {
        /// The path of the field.
        field: &'static str,
        /// What is wrong with it.
        problem: &'static str,
    },
}

/// An object: its name and its specification. The status is ignored.
#[derive(Deserialize)]
pub(super) struct RawObject<S> {
    metadata: RawMetadata,
    pub(super) spec: S,
}

#[derive(Deserialize)]
struct RawMetadata {
    #[serde(default)]
    name: Arc<str>,
    #[serde(default)]
    uid: Arc<str>,
}

/// The name and the uid of an object.
pub(super) struct ObjectId {
    pub(super) name: Arc<str>,
    /// Empty for objects that are built in.
    pub(super) uid: Arc<str>,
}

impl<S: DeserializeOwned> RawObject<S> {
    /// Parses an object, which must have a name.
    pub(super) fn parse(json: &[u8]) -> Result<(ObjectId, S), InvalidObject> {
        let object: Self = serde_json::from_slice(json)
            .map_err(|error| InvalidObject::Malformed(error.to_string()))?;
        check(!object.metadata.name.is_empty(), "metadata.name", "is empty")?;
        let RawMetadata { name, uid } = object.metadata;
        Ok((ObjectId { name, uid }, object.spec))
    }
}

/// Fails unless `holds`.
pub(super) fn check(
    holds: bool,
    field: &'static str,
    problem: &'static str,
) -> Result<(), InvalidObject> {
    if holds { Ok(()) } else { Err(InvalidObject::Rejected { field, problem }) }
}

/// A list that may be `null`.
pub(super) fn list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<Vec<T>, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}
