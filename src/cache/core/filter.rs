//! The filter of a list or watch: namespace, name, three selectors, and what the user may see.
//!
//! The namespace and name that a filter requires (from its own fields or from the field selector)
//! narrow scans of the store, and the events for which the filter of a watch is evaluated. The
//! narrowed set may contain objects that do not match, but it never misses one:
//! [`WatchFilter::matches`] decides.

use std::sync::Arc;

use crate::api::selector::field::FieldSelector;
use crate::api::selector::label::LabelSelector;
use crate::api::selector::shard::ShardSelector;
use crate::cache::core::visible::VisibleObjects;
use crate::codec::object::Object;

/// The filter of a list or watch of one resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct WatchFilter {
    /// The namespace from the path; `None` or empty for all namespaces.
    pub namespace: Option<Arc<str>>,
    /// The name from the path or from the field selector; `None` for all names.
    pub name: Option<Arc<str>>,
    /// The label selector.
    pub labels: LabelSelector,
    /// The field selector. It may repeat the name.
    pub fields: FieldSelector,
    /// The shard selector.
    pub shard: Option<Arc<ShardSelector>>,
    /// The objects that the user may see; `None` for all.
    pub visible: Option<Arc<VisibleObjects>>,
}

impl WatchFilter {
    /// Returns whether the filter matches `object`.
    pub fn matches(&self, object: &Object) -> bool {
        // Conditions that the filter does not have are skipped first: most filters have few, and
        // this runs for each watcher.
        let key = &object.key;
        let field = |number| object.attrs().field(number);
        let has_fields = |(namespace, name)| self.fields.matches(name, namespace, field);
        self.path_namespace().is_none_or(|wanted| key.names().0 == wanted.as_bytes())
            && self.name.as_deref().is_none_or(|wanted| key.names().1 == wanted.as_bytes())
            && self.labels.matches(|label| object.attrs().label(label))
            && (self.fields.is_empty() || has_fields(key.names()))
            && self
                .shard
                .as_ref()
                .is_none_or(|shard| shard.matches(object.shard_hash(shard.field())))
            && self.visible.as_ref().is_none_or(|visible| visible.has(key))
    }

    /// Returns whether the filter may match an object of which only these names are known; an empty
    /// one is unknown. What is not visible must not show.
    pub(super) fn may_match(&self, (namespace, name): (&str, &str)) -> bool {
        if let Some(visible) = &self.visible {
            return visible.may_have(namespace, name);
        }
        [(namespace, self.required_namespace()), (name, self.required_name())]
            .iter()
            .all(|(known, required)| known.is_empty() || required.is_none_or(|name| name == *known))
    }

    /// Returns how many comparisons a match may take, in addition to namespace and name.
    pub fn terms(&self) -> usize {
        let shard = self.shard.as_ref().map_or(0, |shard| shard.terms());
        self.labels.terms() + self.fields.terms() + shard
    }

    /// Returns what a match costs in a scan: usually 1, and more before the uid was hashed.
    pub(super) fn scan_cost(&self, object: &Object) -> usize {
        let needs_hash =
            self.shard.as_ref().is_some_and(|shard| !object.has_shard_hash(shard.field()));
        if needs_hash { UID_HASH_COST } else { 1 }
    }

    /// Returns the namespace that every matching object has; never empty.
    pub fn required_namespace(&self) -> Option<&str> {
        self.path_namespace()
            .or_else(|| self.fields.required_namespace())
            .filter(|namespace| !namespace.is_empty())
    }

    /// Returns the name that every matching object has.
    pub fn required_name(&self) -> Option<&str> {
        self.name.as_deref().or_else(|| self.fields.required_name())
    }

    /// Returns the namespace from the path, or the one that the list is restricted to; never empty.
    pub fn path_namespace(&self) -> Option<&str> {
        self.namespace.as_deref().filter(|namespace| !namespace.is_empty())
    }
}

/// The objects that are scanned in the time that reading and hashing one uid takes.
const UID_HASH_COST: usize = 20;
