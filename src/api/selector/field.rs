//! Field selectors (semantics.md §7.1, §7.2).

use crate::api::selectable::{Field, SelectableFields};

/// A parsed field selector bound to the fields of one kind. The default one matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    requirements: Vec<Requirement>,
}

/// One term, its label resolved to where the value is found.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    field: Field,
    equal: bool,
    value: Box<str>,
}

impl FieldSelector {
    /// Parses the text of `fieldSelector` and binds each term to the kind's fields (rewriting
    /// `spec.host` and the like); `None` if the upstream would refuse it.
    pub fn parse(text: &str, fields: &SelectableFields) -> Option<Self> {
        let requirements = parse_terms(text)?
            .into_iter()
            .map(|term| {
                let field = fields.find(term.label)?;
                Some(Requirement { field, equal: term.equal, value: term.value.into() })
            })
            .collect::<Option<_>>()?;
        Some(Self { requirements })
    }

    /// Whether it matches everything by having no requirement.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// The indices of the kind's own fields that it asks for.
    pub fn values(&self) -> impl Iterator<Item = usize> {
        self.requirements.iter().filter_map(|requirement| match requirement.field {
            Field::Value(index) => Some(index),
            Field::Name | Field::Namespace => None,
        })
    }

    /// Whether an object of this name, namespace (empty for none) and field values matches. `value_of` tells one by its number in
    /// the [`SelectableFields`] it was bound to; a missing one counts as empty.
    pub fn matches<'a>(
        &self,
        name: &'a str,
        namespace: &'a str,
        value_of: impl Fn(usize) -> &'a str,
    ) -> bool {
        self.requirements.iter().all(|requirement| {
            let value = match requirement.field {
                Field::Name => name,
                Field::Namespace => namespace,
                Field::Value(index) => value_of(index),
            };
            (value == &*requirement.value) == requirement.equal
        })
    }

    /// How many comparisons it may take to see whether an object matches.
    pub fn terms(&self) -> usize {
        self.requirements.len()
    }

    /// The one name it requires by `metadata.name=`, if it does. It may be one that no object can have: the
    /// empty one, or one with a `/`. Of several, the first in the order of the terms, as upstream; the
    /// others still count in [`matches`](Self::matches).
    pub fn required_name(&self) -> Option<&str> {
        self.required(|field| field == Field::Name)
    }

    /// The one namespace it requires by `metadata.namespace=`, if it does.
    pub fn required_namespace(&self) -> Option<&str> {
        self.required(|field| field == Field::Namespace)
    }

    /// An equality it requires of one of the kind's own fields: the field's index and value. Watchers are
    /// indexed by it, so that an event wakes only those whom it may concern.
    pub fn required_value(&self) -> Option<(usize, &str)> {
        self.requirements.iter().find_map(|requirement| match requirement.field {
            Field::Value(index) if requirement.equal => Some((index, &*requirement.value)),
            Field::Value(_) | Field::Name | Field::Namespace => None,
        })
    }

    /// The value it requires of one of the kind's own fields, if it does.
    pub fn required_value_of(&self, index: usize) -> Option<&str> {
        self.required(|field| field == Field::Value(index))
    }

    fn required(&self, wanted: impl Fn(Field) -> bool) -> Option<&str> {
        self.requirements
            .iter()
            .find(|requirement| requirement.equal && wanted(requirement.field))
            .map(|requirement| &*requirement.value)
    }
}

/// A term as written, before its label is looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Term<'a> {
    /// The left side.
    pub(crate) label: &'a str,
    /// Whether the operator is `=` or `==`, and not `!=`.
    pub(crate) equal: bool,
    /// The right side without its escapes.
    pub(crate) value: String,
}

/// Parses the grammar alone, in the order in which the upstream evaluates the terms; `None` if it refuses them.
pub(crate) fn parse_terms(text: &str) -> Option<Vec<Term<'_>>> {
    let mut terms = split_terms(text);
    terms.sort_unstable();
    terms.into_iter().filter(|term| !term.is_empty()).map(parse_term).collect()
}

/// Splits at the commas that no backslash precedes.
fn split_terms(text: &str) -> Vec<&str> {
    let mut escaped = false;
    text.split(|character| match character {
        _ if escaped => {
            escaped = false;
            false
        }
        '\\' => {
            escaped = true;
            false
        }
        other => other == ',',
    })
    .collect()
}

/// Splits at the first operator. `!` alone is none, so the first `=` decides, with what stands beside it.
fn parse_term(term: &str) -> Option<Term<'_>> {
    let (left, right) = term.split_once('=')?;
    let (label, equal, right) = match left.strip_suffix('!') {
        Some(label) => (label, false, right),
        None => (left, true, right.strip_prefix('=').unwrap_or(right)),
    };
    Some(Term { label, equal, value: unescape(right)? })
}

/// Removes the escapes of `\`, `,` and `=`; `None` for any other escape, and for those characters bare.
fn unescape(text: &str) -> Option<String> {
    let mut value = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some(escaped @ ('\\' | ',' | '=')) => value.push(escaped),
                Some(_) | None => return None,
            },
            ',' | '=' => return None,
            other => value.push(other),
        }
    }
    Some(value)
}

#[cfg(test)]
mod tests;
