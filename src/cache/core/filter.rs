//! What of a resource a list or watch is about: a place (namespace, name) and two selectors.
//!
//! The place that a filter demands, from its own fields or lifted from the field selector, narrows walks
//! of the store and picks the index under which the dispatcher keeps a watcher. Narrowing may be too wide,
//! never too narrow: [`WatchFilter::matches`] has the last word.

use std::sync::Arc;

use crate::api::selector::field::FieldSelector;
use crate::api::selector::label::LabelSelector;
use crate::codec::attrs::Attrs;
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
        self.own_namespace().is_none_or(|own| own == key.namespace())
            && self.name.as_deref().is_none_or(|own| own == key.name())
            && self.labels_match(&object.attrs)
            && (self.fields.is_empty() || self.fields.matches(key.name(), key.namespace(), field))
    }

    /// How many comparisons a look at an object may take, besides those of its place.
    pub fn terms(&self) -> usize {
        self.labels.terms() + self.fields.terms()
    }

    /// A label is found by walking over those before it, which for few requirements is fastest; but nothing bounds labels and requirements,
    /// and both are chosen by clients.
    fn labels_match(&self, attrs: &Attrs) -> bool {
        if self.labels.len() <= REQUIREMENTS_FEW {
            return self.labels.matches(|label| attrs.label(label));
        }
        let sorted: Vec<_> = attrs.labels().collect();
        self.labels.matches(|label| {
            let at = sorted.binary_search_by(|(own, _)| (*own).cmp(label)).ok()?;
            sorted.get(at).map(|(_, value)| *value)
        })
    }

    /// The namespace that every object it matches has; never empty.
    pub fn required_namespace(&self) -> Option<&str> {
        self.own_namespace()
            .or_else(|| self.fields.required_namespace())
            .filter(|namespace| !namespace.is_empty())
    }

    /// The name that every object it matches has.
    pub fn required_name(&self) -> Option<&str> {
        self.name.as_deref().or_else(|| self.fields.required_name())
    }

    /// The namespace that the path names, or that the list is narrowed to; never empty.
    pub fn own_namespace(&self) -> Option<&str> {
        self.namespace.as_deref().filter(|namespace| !namespace.is_empty())
    }
}

/// More than selectors written by hand have.
const REQUIREMENTS_FEW: usize = 4;

#[cfg(test)]
mod tests {
    use proptest::collection::{btree_map, vec};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Few requirements and many are judged alike, for which labels are found in two ways.
        #[test]
        fn many_requirements_are_each_of_them(
            labels in btree_map("[a-e]{1,2}", "[xy]?", 0..12),
            requirements in vec(("[a-e]{1,2}", 0..4_usize, "[xy]?"), 0..12),
        ) {
            let written = requirements.iter().map(|(key, operator, value)| match operator {
                0 => key.clone(),
                1 => format!("!{key}"),
                2 => format!("{key}={value}"),
                _ => format!("{key} notin ({value},z)"),
            });
            let attrs = Attrs::new(&[], labels.iter().map(|(key, value)| (&**key, &**value)));
            let of = |text: &str| WatchFilter {
                labels: LabelSelector::parse(text).unwrap(),
                ..WatchFilter::default()
            };
            let written: Vec<_> = written.collect();
            let expected = written.iter().all(|one| of(one).labels_match(&attrs));
            prop_assert_eq!(of(&written.join(",")).labels_match(&attrs), expected);
        }
    }
}
