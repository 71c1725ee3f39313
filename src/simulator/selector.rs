//! Label and field selectors of lists and watches, with the upstream's messages for malformed ones
//! (`docs/semantics.md` §7). It shares no code with `api::selector`, which the tests compare with
//! it.

use super::kinds::Kind;
use super::object::{Object, labels_of};
use super::shard::ShardSelector;
use super::status::ApiError;

/// The selectors of a request.
#[derive(Clone, Debug, Default)]
pub(super) struct Selector {
    labels: Vec<LabelTerm>,
    fields: Vec<FieldTerm>,
    /// The name that the path or the selector requires.
    pub(super) name: Option<String>,
    /// The namespace of the path.
    pub(super) namespace: Option<String>,
    pub(super) shard: Option<ShardSelector>,
}

#[derive(Clone, Debug)]
struct FieldTerm {
    label: String,
    equal: bool,
    value: String,
}

#[derive(Clone, Debug)]
enum LabelTerm {
    Exists(String),
    Missing(String),
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Greater(String, i64),
    Less(String, i64),
}

impl Selector {
    /// Parses both selectors for a kind.
    pub(super) fn parse(kind: &Kind, labels: &str, fields: &str) -> Result<Self, ApiError> {
        let labels = Labels::new(labels).parse().map_err(ApiError::bad_request)?;
        let fields = parse_fields(kind, fields).map_err(ApiError::bad_request)?;
        Ok(Self { labels, fields, ..Self::default() })
    }

    /// Returns whether it has no requirement besides the path's.
    pub(super) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Returns the value that a field must have, if it is a valid path segment.
    pub(super) fn required(&self, label: &str) -> Option<String> {
        let term = self.fields.iter().find(|term| term.equal && term.label == label)?;
        is_path_segment(&term.value).then(|| term.value.clone())
    }

    /// Returns whether at most one object can match, whose key is known (`docs/semantics.md`
    /// §1.6.2).
    pub(super) fn is_single(&self, kind: &Kind) -> bool {
        self.name.is_some() && (!kind.namespaced || self.namespace.is_some())
    }

    pub(super) fn matches(&self, object: &Object) -> bool {
        self.name.as_ref().is_none_or(|name| **name == *object.name)
            && self.namespace.as_ref().is_none_or(|name| **name == *object.namespace)
            && self.fields.iter().all(|term| term.matches(object))
            && self.labels.iter().all(|term| term.matches(object))
            && self.shard.as_ref().is_none_or(|shard| shard.matches(object))
    }
}

impl FieldTerm {
    fn matches(&self, object: &Object) -> bool {
        let value = match self.label.as_str() {
            "metadata.name" => &*object.name,
            "metadata.namespace" => &*object.namespace,
            label => {
                let field = object.fields.iter().find(|(name, _)| **name == *label);
                field.map_or("", |(_, value)| &**value)
            }
        };
        (value == self.value) == self.equal
    }
}

impl LabelTerm {
    fn matches(&self, object: &Object) -> bool {
        let get = |key: &str| {
            let label = object.labels.iter().find(|(name, _)| **name == *key);
            label.map(|(_, value)| &**value)
        };
        let number = |key: &str| get(key).and_then(|value| value.parse::<i64>().ok());
        match self {
            Self::Exists(key) => get(key).is_some(),
            Self::Missing(key) => get(key).is_none(),
            Self::In(key, values) => get(key).is_some_and(|v| values.iter().any(|w| w == v)),
            Self::NotIn(key, values) => !get(key).is_some_and(|v| values.iter().any(|w| w == v)),
            Self::Greater(key, bound) => number(key).is_some_and(|value| value > *bound),
            Self::Less(key, bound) => number(key).is_some_and(|value| value < *bound),
        }
    }
}

/// Returns whether a name is a valid path segment.
fn is_path_segment(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '%'])
}

/// Returns the name that the selectors require, if both can be parsed and it is a valid path
/// segment (`docs/semantics.md` §1.1).
pub(super) fn required_name(labels: &str, fields: &str) -> Option<String> {
    Labels::new(labels).parse().ok()?;
    let terms = field_terms(fields).ok()?;
    let term = terms.into_iter().find(|term| term.equal && term.label == "metadata.name")?;
    is_path_segment(&term.value).then_some(term.value)
}

/// Parses a field selector and checks its labels against the kind (`docs/semantics.md` §7.1, §7.2).
fn parse_fields(kind: &Kind, text: &str) -> Result<Vec<FieldTerm>, String> {
    let mut terms = field_terms(text)?;
    for term in &mut terms {
        if term.label == "spec.host" {
            term.label = "spec.nodeName".to_owned();
        }
        check_field(kind, &term.label)?;
    }
    Ok(terms)
}

/// Parses the terms of a field selector, in the order of their evaluation.
fn field_terms(text: &str) -> Result<Vec<FieldTerm>, String> {
    let mut escaped = false;
    let separates = |c: char| {
        let separates = c == ',' && !escaped;
        escaped = c == '\\' && !escaped;
        separates
    };
    let mut terms: Vec<&str> = text.split(separates).filter(|term| !term.is_empty()).collect();
    terms.sort_unstable();
    let mut parsed = Vec::new();
    for term in terms {
        let missing = || format!("invalid selector: '{text}'; can't understand '{term}'");
        let at = term.find(['!', '=']).ok_or_else(missing)?;
        let (label, rest) = term.split_at_checked(at).ok_or_else(missing)?;
        let (equal, value) = if let Some(value) = rest.strip_prefix("!=") {
            (false, value)
        } else if let Some(value) = rest.strip_prefix("==") {
            (true, value)
        } else {
            (true, rest.strip_prefix('=').ok_or_else(missing)?)
        };
        let value = value.replace("\\=", "=").replace("\\,", ",").replace("\\\\", "\\");
        parsed.push(FieldTerm { label: label.to_owned(), equal, value });
    }
    Ok(parsed)
}

fn check_field(kind: &Kind, label: &str) -> Result<(), String> {
    let named = labels_of(kind);
    if kind.custom {
        let declared = kind.selectable.iter().any(|path| path.trim_start_matches('.') == label);
        let is_metadata =
            label == "metadata.name" || (kind.namespaced && label == "metadata.namespace");
        return if declared || is_metadata {
            Ok(())
        } else {
            Err(format!("field label not supported: {label}"))
        };
    }
    let namespace = label == "metadata.namespace"
        && !matches!((kind.group.as_str(), kind.resource.as_str()), ("", "nodes" | "namespaces"));
    if label == "metadata.name" || namespace || named.contains(&label) {
        return Ok(());
    }
    Err(match kind.resource.as_str() {
        "jobs" => format!("field label \"{label}\" not supported for Job"),
        _ if named.is_empty() => format!(
            "\"{label}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
        ),
        _ => format!("field label not supported: {label}"),
    })
}

/// A parser of label selectors over a list of tokens (`docs/semantics.md` §7.3).
struct Labels {
    tokens: Vec<String>,
    position: usize,
}

impl Labels {
    fn new(text: &str) -> Self {
        let mut tokens: Vec<String> = Vec::new();
        let mut word = String::new();
        let mut chars = text.chars().peekable();
        while let Some(ch) = chars.next() {
            let blank = matches!(ch, ' ' | '\t' | '\r' | '\n');
            if !blank && !"(),!=><".contains(ch) {
                word.push(ch);
                continue;
            }
            if !word.is_empty() {
                tokens.push(std::mem::take(&mut word));
            }
            if blank {
                continue;
            }
            let mut symbol = ch.to_string();
            if matches!(ch, '=' | '!') && chars.peek() == Some(&'=') {
                symbol.extend(chars.next());
            }
            tokens.push(symbol);
        }
        if !word.is_empty() {
            tokens.push(word);
        }
        Self { tokens, position: 0 }
    }

    fn peek(&self) -> &str {
        self.tokens.get(self.position).map_or("", String::as_str)
    }

    fn next(&mut self) -> String {
        let token = self.peek().to_owned();
        self.position += 1;
        token
    }

    fn parse(&mut self) -> Result<Vec<LabelTerm>, String> {
        let mut terms = Vec::new();
        if self.tokens.is_empty() {
            return Ok(terms);
        }
        let first = self.peek();
        if is_symbol(first) && first != "!" {
            return Err(format!("found '{first}', expected: !, identifier, or 'end of string'"));
        }
        loop {
            terms.push(self.term()?);
            match self.next().as_str() {
                "" => return Ok(terms),
                "," => {
                    let after = self.peek();
                    if after.is_empty() || (is_symbol(after) && after != "!") {
                        return Err(format!("found '{after}', expected: identifier after ','"));
                    }
                }
                other => {
                    return Err(format!("found '{other}', expected: ',' or 'end of string'"));
                }
            }
        }
    }

    fn term(&mut self) -> Result<LabelTerm, String> {
        const PREFIX: &str = "unable to parse requirement:";
        if self.peek() == "!" {
            self.next();
            let key = self.next();
            if key.is_empty() || is_symbol(&key) {
                return Err(format!("{PREFIX} found '{key}', expected: identifier"));
            }
            return Ok(LabelTerm::Missing(key));
        }
        let key = self.next();
        check_key(&key)?;
        let operator = self.peek().to_owned();
        match operator.as_str() {
            "" | "," => Ok(LabelTerm::Exists(key)),
            "=" | "==" | "!=" => {
                self.next();
                let value = match self.peek() {
                    "" | "," => String::new(),
                    symbol if is_symbol(symbol) => {
                        return Err(format!("{PREFIX} found '{symbol}', expected: identifier"));
                    }
                    _ => self.next(),
                };
                let values = vec![value];
                let negative = operator == "!=";
                Ok(if negative {
                    LabelTerm::NotIn(key, values)
                } else {
                    LabelTerm::In(key, values)
                })
            }
            ">" | "<" => {
                self.next();
                let value = self.next();
                let bound = value.parse().map_err(|_| format!(
                    "{PREFIX} values[0]: Invalid value: \"{value}\": for 'Gt', 'Lt' operators, the value must be an integer"
                ))?;
                let greater = operator == ">";
                Ok(if greater {
                    LabelTerm::Greater(key, bound)
                } else {
                    LabelTerm::Less(key, bound)
                })
            }
            "in" | "notin" => {
                self.next();
                let values = self.values()?;
                let negative = operator == "notin";
                Ok(if negative {
                    LabelTerm::NotIn(key, values)
                } else {
                    LabelTerm::In(key, values)
                })
            }
            other if is_symbol(other) => Ok(LabelTerm::Exists(key)),
            other => {
                Err(format!("{PREFIX} found '{other}', expected: in, notin, =, ==, !=, gt, lt"))
            }
        }
    }

    fn values(&mut self) -> Result<Vec<String>, String> {
        const PREFIX: &str = "unable to parse requirement:";
        let open = self.next();
        if open != "(" {
            return Err(format!("{PREFIX} found '{open}' expected: '('"));
        }
        let mut values = Vec::new();
        loop {
            let token = self.next();
            match token.as_str() {
                "," => values.push(String::new()),
                ")" => {
                    values.push(String::new());
                    return Ok(values);
                }
                "" => {
                    return Err(format!("{PREFIX} found '', expected: ',', ')' or identifier"));
                }
                _ => {
                    values.push(token);
                    match self.next().as_str() {
                        "," => {}
                        ")" => return Ok(values),
                        other => {
                            return Err(format!("{PREFIX} found '{other}', expected: ',' or ')'"));
                        }
                    }
                }
            }
        }
    }
}

fn is_symbol(token: &str) -> bool {
    token.starts_with(['(', ')', ',', '!', '=', '>', '<'])
}

/// Rejects keys whose name part is not a qualified name. Some rare errors in prefixes are not
/// detected.
fn check_key(key: &str) -> Result<(), String> {
    let name = key.rsplit('/').next().unwrap_or_default();
    let edge = |ch: Option<char>| ch.is_some_and(|ch| ch.is_ascii_alphanumeric());
    let inner = |ch: char| ch.is_ascii_alphanumeric() || matches!(ch, '-' | '_' | '.');
    let valid =
        edge(name.chars().next()) && edge(name.chars().next_back()) && name.chars().all(inner);
    if valid {
        return Ok(());
    }
    Err(format!(
        "unable to parse requirement: <nil>: Invalid value: \"{key}\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
    ))
}
