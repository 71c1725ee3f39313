//! Finds the filters that an event may concern, by what each requires of an object.
//!
//! A filter is held under one term that every object has which it matches: its name, a value of a
//! field or a label, or a label with any value; within the namespace that it requires, or within
//! all. An event looks up the terms of its object, before and after it, and finds the filters
//! there. A filter that requires none of these (`!k`, `k!=v`, a shard) is found with every event of
//! its namespace, and one of a user who may see a few parts of the collection with every event of
//! these.
//!
//! A term is a path of up to three steps: the namespace, the attribute and its value. Its key is
//! the hash of the last step and of the key before it, so that a look-up builds no string. Terms
//! with equal keys are found together, which is no error, since the caller evaluates each filter.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher as _, Hash};
use std::iter::once;
use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use crate::api::keyed_hash::BuildKeyedHash;
use crate::api::selector::label::LabelOperator;
use crate::cache::core::event::Event;
use crate::cache::core::filter::WatchFilter;

/// Filters with their ids, by term.
#[derive(Debug, Default)]
pub(super) struct TermIndex {
    terms: HashMap<u64, Term, BuildKeyedHash>,
    hash: BuildKeyedHash,
    /// The number of the field over which the API server has an index. Its values come before those
    /// of labels. Set while there are no filters.
    pub(super) indexed: Option<usize>,
}

#[derive(Debug, Default)]
struct Term {
    /// The filters under exactly this term.
    filters: BTreeMap<u64, Arc<WatchFilter>>,
    /// The number of filters under this term and under longer ones. An event looks for a longer one
    /// only if this one is there.
    uses: usize,
}

/// A part of an object that a filter may require.
#[derive(Clone, Copy, Debug, Hash)]
enum Attribute<'a> {
    Name,
    Field(usize),
    Label(&'a [u8]),
}

/// An attribute, and its value unless any will do.
type Required<'a> = (Attribute<'a>, Option<&'a [u8]>);

/// The keys of a term and of those with which it begins.
type Path = SmallVec<[u64; 3]>;

impl TermIndex {
    pub(super) fn add(&mut self, id: u64, filter: &Arc<WatchFilter>) {
        for path in self.paths(filter) {
            for key in &path {
                self.terms.entry(*key).or_default().uses += 1;
            }
            if let Some(term) = path.last().and_then(|key| self.terms.get_mut(key)) {
                term.filters.insert(id, Arc::clone(filter));
            }
        }
    }

    pub(super) fn remove(&mut self, id: u64, filter: &WatchFilter) {
        for key in self.paths(filter).into_iter().flatten() {
            let Entry::Occupied(mut term) = self.terms.entry(key) else { continue };
            term.get_mut().filters.remove(&id);
            term.get_mut().uses -= 1;
            if term.get().uses == 0 {
                term.remove();
            }
        }
    }

    /// Calls `visit` with all filters that the event may concern and some others, with some of them
    /// more than once.
    pub(super) fn for_each(&self, event: &Event, mut visit: impl FnMut(u64, &WatchFilter)) {
        let mut visit_all = |term: &Term| {
            term.filters.iter().for_each(|(id, filter)| visit(*id, filter));
        };
        let key = &event.object().key;
        let namespace = Some(key.namespace()).filter(|namespace| !namespace.is_empty());
        for namespace in once("").chain(namespace) {
            let Some((within, term)) = self.find(ROOT, namespace) else { continue };
            visit_all(term);
            for attrs in event.attrs() {
                let fields = attrs.fields().enumerate();
                let fields = fields.map(|(number, value)| (Attribute::Field(number), value));
                let labels = attrs.labels().map(|(label, value)| (Attribute::Label(label), value));
                let name = (Attribute::Name, key.names().1);
                for (attribute, value) in once(name).chain(fields).chain(labels) {
                    let Some((present, term)) = self.find(within, attribute) else { continue };
                    visit_all(term);
                    let with_value = self.find(present, value);
                    with_value.into_iter().for_each(|(_, term)| visit_all(term));
                }
            }
        }
    }

    /// Removes all filters.
    pub(super) fn clear(&mut self) {
        self.terms.clear();
    }

    /// Returns whether there are no filters.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    fn find(&self, path: u64, step: impl Hash) -> Option<(u64, &Term)> {
        let key = self.hash.hash_one((path, step));
        Some((key, self.terms.get(&key)?))
    }

    /// Returns the paths of the terms under which a filter is held.
    fn paths(&self, filter: &WatchFilter) -> Vec<Path> {
        let namespace = filter.required_namespace().unwrap_or_default();
        let required = self.required(filter);
        if !required.is_empty() {
            let path = |required| self.path(namespace, Some(required));
            return required.into_iter().map(path).collect();
        }
        let is_held_by_parts = |parts: usize| namespace.is_empty() && parts <= VALUES_MAX;
        let visible = filter.visible.as_ref().filter(|one| is_held_by_parts(one.parts().count()));
        let Some(visible) = visible else { return vec![self.path(namespace, None)] };
        let path = |part: &str| match part.strip_suffix('/') {
            Some(namespace) => self.path(namespace, None),
            None => self.path("", Some((Attribute::Name, Some(part.as_bytes())))),
        };
        visible.parts().map(path).collect()
    }

    fn path(&self, namespace: &str, required: Option<Required<'_>>) -> Path {
        let within = self.hash.hash_one((ROOT, namespace));
        let Some((attribute, value)) = required else { return smallvec![within] };
        let present = self.hash.hash_one((within, attribute));
        let with_value = value.map(|value| self.hash.hash_one((present, value)));
        [within, present].into_iter().chain(with_value).collect()
    }

    /// Returns what a filter requires of an object besides its namespace: one of these, or nothing
    /// if it is empty.
    fn required<'a>(&self, filter: &'a WatchFilter) -> SmallVec<[Required<'a>; 1]> {
        if let Some(name) = filter.required_name() {
            return smallvec![(Attribute::Name, Some(name.as_bytes()))];
        }
        // An object without fields has the empty value in all of them.
        let field = |(number, value): (usize, &'a str)| {
            (!value.is_empty())
                .then(|| smallvec![(Attribute::Field(number), Some(value.as_bytes()))])
        };
        let fields = &filter.fields;
        let indexed =
            self.indexed.and_then(|number| Some((number, fields.required_value_of(number)?)));
        let labels = filter.labels.requirements().filter_map(|(key, operator, values)| {
            let label = Attribute::Label(key.as_bytes());
            match operator {
                LabelOperator::In if values.len() <= VALUES_MAX => Some((label, values)),
                LabelOperator::In | LabelOperator::Exists => Some((label, &[][..])),
                LabelOperator::NotIn | LabelOperator::DoesNotExist => None,
            }
        });
        let label = labels.min_by_key(|(_, values)| (values.is_empty(), values.len()));
        let with_value = label.filter(|(_, values)| !values.is_empty()).map(|(label, values)| {
            values.iter().map(|value| (label, Some(value.as_bytes()))).collect()
        });
        let required = indexed.and_then(field).or(with_value);
        required
            .or_else(|| fields.required_values().find_map(field))
            .unwrap_or_else(|| label.into_iter().map(|(label, _)| (label, None)).collect())
    }
}

/// The path without steps.
const ROOT: u64 = 0;
/// The most values of a label, or visible parts, under which one filter is held. With more of
/// them, it is held under the label or under no term: each takes some hundred bytes.
const VALUES_MAX: usize = 16;
