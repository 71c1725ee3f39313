//! A list of names in a rule, of which `*` alone means all.

use crate::flow::object::{InvalidObject, check};

/// The names that a rule lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Names {
    /// `*`.
    All,
    /// These.
    Listed(Box<[Box<str>]>),
}

impl Names {
    /// Returns the names of a list, which may have `*` only as its sole member.
    pub(super) fn parse(list: Vec<Box<str>>, field: &'static str) -> Result<Self, InvalidObject> {
        let is_any = list.iter().any(|name| &**name == "*");
        check(!is_any || list.len() == 1, field, "has other names beside \"*\"")?;
        Ok(if is_any { Self::All } else { Self::Listed(list.into()) })
    }

    /// Fails if the list is empty.
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
    pub(super) fn all(&self, matches: impl Fn(&str) -> bool) -> bool {
        match self {
            Self::All => true,
            Self::Listed(names) => names.iter().all(|name| matches(name)),
        }
    }
}
