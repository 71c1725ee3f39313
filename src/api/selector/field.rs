//! Field selectors (`docs/semantics.md` §7.1, §7.2).

use crate::selectable::{Field, SelectableFields};
use crate::selector::ALLOCATION_BYTES;

/// A parsed field selector, bound to the fields of one resource. The default matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FieldSelector {
    requirements: Vec<Requirement>,
}

/// One term with its resolved label.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Requirement {
    field: Field,
    equal: bool,
    value: Box<str>,
}

impl FieldSelector {
    /// Parses the text of `fieldSelector` and binds each term to a field of the resource (older
    /// labels such as `spec.host` are rewritten); `None` if the API server would reject it.
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

    /// Whether it has no requirement and so matches everything.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Returns the indices of the resource's own fields that it names.
    pub fn values(&self) -> impl Iterator<Item = usize> {
        self.requirements.iter().filter_map(|requirement| match requirement.field {
            Field::Value(index) => Some(index),
            Field::Name | Field::Namespace => None,
        })
    }

    /// Whether an object with this name, namespace (empty for none) and field values matches.
    /// `value_of` returns the value at an index of the [`SelectableFields`] that the selector is
    /// bound to; empty if the object has none.
    pub fn matches<'a>(
        &self,
        name: &'a [u8],
        namespace: &'a [u8],
        value_of: impl Fn(usize) -> &'a [u8],
    ) -> bool {
        self.requirements.iter().all(|requirement| {
            let value = match requirement.field {
                Field::Name => name,
                Field::Namespace => namespace,
                Field::Value(index) => value_of(index),
            };
            (value == requirement.value.as_bytes()) == requirement.equal
        })
    }

    /// Whether a value contains U+FFFD, which in JSON stands for any byte that is not UTF-8
    /// (`docs/semantics.md` §3.6). It must not be compared with what an object in JSON has.
    pub fn is_ambiguous(&self) -> bool {
        self.requirements.iter().any(|requirement| requirement.value.contains('\u{fffd}'))
    }

    /// Returns the maximum number of comparisons for one object.
    pub fn terms(&self) -> usize {
        self.requirements.len()
    }

    /// Returns the approximate memory in bytes. If there are many short terms, the text is the
    /// smallest part.
    pub fn weight_bytes(&self) -> usize {
        let term = size_of::<Requirement>() + ALLOCATION_BYTES;
        self.requirements.iter().map(|requirement| term + requirement.value.len()).sum()
    }

    /// Returns the name that it requires by `metadata.name=`, if any. The name may be one that no
    /// object can have: the empty one, or one with a `/`. If there are several, returns the first
    /// in the order of the terms, as the API server does; [`matches`](Self::matches) checks all.
    pub fn required_name(&self) -> Option<&str> {
        self.required(|field| field == Field::Name)
    }

    /// Returns the namespace that it requires by `metadata.namespace=`, if any.
    pub fn required_namespace(&self) -> Option<&str> {
        self.required(|field| field == Field::Namespace)
    }

    /// Returns the values that it requires of the resource's own fields: each field's index and the
    /// value.
    pub fn required_values(&self) -> impl Iterator<Item = (usize, &str)> {
        self.requirements.iter().filter_map(|requirement| match requirement.field {
            Field::Value(index) if requirement.equal => Some((index, &*requirement.value)),
            Field::Value(_) | Field::Name | Field::Namespace => None,
        })
    }

    /// Returns the value that it requires of the field at `index`, if any.
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

/// A parsed term before its label is resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term<'a> {
    /// The left side.
    pub label: &'a str,
    /// Whether the operator is `=` or `==`; otherwise it is `!=`.
    pub equal: bool,
    /// The right side without its escapes.
    pub value: String,
}

/// Parses the terms without resolving their labels, in the order in which the API server evaluates
/// them; `None` if it rejects them.
pub fn parse_terms(text: &str) -> Option<Vec<Term<'_>>> {
    let mut terms = split_terms(text);
    terms.sort_unstable();
    terms.into_iter().filter(|term| !term.is_empty()).map(parse_term).collect()
}

/// Splits at commas without a backslash before them.
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

/// Splits at the first operator. `!` alone is not an operator, so the first `=` and its neighbours
/// decide.
fn parse_term(term: &str) -> Option<Term<'_>> {
    let (left, right) = term.split_once('=')?;
    let (label, equal, right) = match left.strip_suffix('!') {
        Some(label) => (label, false, right),
        None => (left, true, right.strip_prefix('=').unwrap_or(right)),
    };
    Some(Term { label, equal, value: unescape(right)? })
}

/// Removes the escapes of `\`, `,` and `=`; `None` for any other escape, and for an unescaped `,`
/// or `=`.
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
