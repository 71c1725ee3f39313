//! What of a resource a list or watch is about: a place (namespace, name) and two selectors.
//!
//! The place that a filter demands, from its own fields or lifted from the field selector, narrows walks
//! of the store and picks the index under which the dispatcher keeps a watcher. Narrowing may be too wide,
//! never too narrow: [`WatchFilter::matches`] has the last word.

use std::sync::Arc;

use crate::api::selector::field::FieldSelector;
use crate::api::selector::label::LabelSelector;
use crate::codec::object::Object;

/// What of a resource a list or watch is about.
#[derive(Clone, Debug, Default)]
pub struct WatchFilter {
    /// One namespace, from the path; `None` (or an empty one) for all.
    pub namespace: Option<Arc<str>>,
    /// One name, from the path or lifted from the field selector; `None` for all.
    pub name: Option<Arc<str>>,
    /// The label selector.
    pub labels: LabelSelector,
    /// The field selector (also where it repeats the name).
    pub fields: FieldSelector,
}

impl WatchFilter {
    /// Whether an object is meant.
    pub fn matches(&self, object: &Object) -> bool {
        // What is not asked for is not looked up: most filters ask for little, and it is done for each watcher.
        let key = &object.key;
        let field = |number| object.attrs.field(number);
        self.path_namespace().is_none_or(|own| own == key.namespace())
            && self.name.as_deref().is_none_or(|own| own == key.name())
            && self.labels.matches(|label| object.attrs.label(label))
            && (self.fields.is_empty() || self.fields.matches(key.name(), key.namespace(), field))
    }

    /// How many comparisons a look at an object may take, besides those of its place.
    pub fn terms(&self) -> usize {
        self.labels.terms() + self.fields.terms()
    }

    /// The namespace that every object it matches has; never empty.
    pub fn required_namespace(&self) -> Option<&str> {
        self.path_namespace()
            .or_else(|| self.fields.required_namespace())
            .filter(|namespace| !namespace.is_empty())
    }

    /// The name that every object it matches has.
    pub fn required_name(&self) -> Option<&str> {
        self.name.as_deref().or_else(|| self.fields.required_name())
    }

    /// The namespace that the path names, or that the list is narrowed to; never empty.
    pub fn path_namespace(&self) -> Option<&str> {
        self.namespace.as_deref().filter(|namespace| !namespace.is_empty())
    }
}
