//! The parts that FlowSchemas and PriorityLevelConfigurations have in common as JSON.
//!
//! Unknown fields are ignored and `null` is an empty list, as in kube-apiserver.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

/// The reason why an object is left out of the plan.
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
        /// The reason why the field is rejected.
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

/// The names that a rule lists, of which `*` alone means all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Names {
    /// `*`.
    All,
    Listed(Box<[Box<str>]>),
}

impl Names {
    /// Returns the names of a list, which may have `*` only as its sole member.
    pub(super) fn parse(list: Vec<Box<str>>, field: &'static str) -> Result<Self, InvalidObject> {
        let is_any = list.iter().any(|name| &**name == "*");
        check(!is_any || list.len() == 1, field, "has other names beside \"*\"")?;
        Ok(if is_any { Self::All } else { Self::Listed(list.into()) })
    }

    pub(super) fn not_empty(self, field: &'static str) -> Result<Self, InvalidObject> {
        let is_empty = matches!(&self, Self::Listed(names) if names.is_empty());
        check(!is_empty, field, "is empty").map(|()| self)
    }

    /// Whether a listed name matches, or all do.
    pub(super) fn any(&self, matches: impl Fn(&str) -> bool) -> bool {
        match self {
            Self::All => true,
            Self::Listed(names) => names.iter().any(|name| matches(name)),
        }
    }

    /// Whether every listed name matches. Holds for `*`.
    pub(super) fn all_match(&self, matches: impl Fn(&str) -> bool) -> bool {
        match self {
            Self::All => true,
            Self::Listed(names) => names.iter().all(|name| matches(name)),
        }
    }
}
