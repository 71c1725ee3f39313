//! All faults of a configuration file at once, each with its place: fields that do not exist,
//! values of a wrong type, and values that are refused. `weir check` prints them.
//!
//! The parser stops at the first unknown field, so that an operator would need one attempt for each
//! mistake. Here the file is read as a tree with places ([`located`]), and compared with the
//! [`Shape`] from which the schema is made. The file without the faulty fields is validated as
//! usual.
//!
//! Invariant: no message repeats a value of a wrong type or of an unknown field, since the file may
//! be another one, with a token in it.

mod located;

use std::fmt;

use serde_json::{Map, Value};

use self::located::{Located, Node};
use crate::config::Config;
use crate::config::file::ConfigFile;
use crate::config::resolve::{Overrides, Problem, Problems};
use crate::config::schema::{Shape, joined, shape};

/// One fault.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    /// Line and column, counted from 1; `None` for what stands nowhere in the file.
    pub place: Option<(u64, u64)>,
    /// The field, such as `server.listeners[0].listen`.
    pub path: String,
    /// The description.
    pub message: String,
}

/// `LINE:COLUMN: FIELD: MESSAGE`.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, path, message } = self;
        match place {
            Some((line, column)) => write!(f, "{line}:{column}: {path}: {message}"),
            None => write!(f, " {path}: {message}"),
        }
    }
}

/// Returns the faults of a file, in its order. None if it has none, or if it is no YAML: then the
/// parser's own error says where.
pub fn faults(text: &str) -> Vec<Fault> {
    let Ok(root) = serde_saphyr::from_str::<Node>(text) else { return Vec::new() };
    let mut walk = Walk { faults: Vec::new() };
    let value = walk.value("", &root, &shape()).unwrap_or_else(|| Value::Object(Map::new()));
    let mut faults = walk.faults;
    match serde_json::from_value::<ConfigFile>(value) {
        Ok(file) => {
            if let Err(Problems(problems)) = Config::resolve(file, Overrides::default()) {
                faults.extend(problems.into_iter().map(|problem| located_problem(&root, problem)));
            }
        }
        // A field that is missing stands nowhere.
        Err(error) if faults.is_empty() => {
            let message = error.to_string();
            faults.push(Fault { place: None, path: "the file".to_owned(), message });
        }
        Err(_) => {}
    }
    faults.sort_by_key(|fault| fault.place.unwrap_or_default());
    faults
}

fn located_problem(root: &Node, Problem { path, message }: Problem) -> Fault {
    Fault { place: root.place_of(&path), path, message }
}

/// Compares a file with its shape.
struct Walk {
    faults: Vec<Fault>,
}

impl Walk {
    /// Returns a value without what is faulty.
    fn value(&mut self, path: &str, node: &Node, shape: &Shape) -> Option<Value> {
        let value = match (shape, node.located()) {
            // As if it were absent.
            (_, Located::Nothing) => return None,
            (Shape::Fields(fields), Located::Fields(entries)) => {
                return Some(self.fields(path, entries, fields));
            }
            (Shape::List(item_shape), Located::List(items)) => {
                let items = items.iter().enumerate();
                // An item keeps its number.
                let item = |(index, item)| {
                    self.value(&format!("{path}[{index}]"), item, item_shape)
                        .unwrap_or_else(|| empty(item_shape))
                };
                return Some(items.map(item).collect());
            }
            (Shape::Text, Located::Scalar(Value::String(text))) => Some(text.clone().into()),
            (Shape::Text, Located::Scalar(value)) => Some(value.to_string().into()),
            (Shape::Integer, Located::Scalar(value)) => match value {
                Value::String(text) => text.parse::<u64>().ok().map(Value::from),
                value => value.as_u64().map(Value::from),
            },
            (Shape::Boolean, Located::Scalar(Value::Bool(value))) => Some((*value).into()),
            _ => None,
        };
        if value.is_none() {
            self.add(node.place(), path, format!("must be {}", name_of(shape)));
        }
        value
    }

    fn fields(
        &mut self,
        path: &str,
        entries: &[(Node, String, Node)],
        fields: &[(&'static str, Shape)],
    ) -> Value {
        let mut object = Map::new();
        for (key, name, node) in entries {
            let path = joined(path, &shown(name));
            match fields.iter().find(|(field, _)| field == name) {
                Some((_, shape)) => {
                    if let Some(value) = self.value(&path, node, shape) {
                        object.insert(name.clone(), value);
                    }
                }
                None => self.add(key.place(), &path, unknown(name, fields)),
            }
        }
        object.into()
    }

    fn add(&mut self, place: Option<(u64, u64)>, path: &str, message: String) {
        if self.faults.len() < FAULTS_MAX {
            let path = if path.is_empty() { "the file" } else { path };
            self.faults.push(Fault { place, path: path.to_owned(), message });
        }
    }
}

/// Describes a field that does not exist, and the one that is meant.
fn unknown(name: &str, fields: &[(&'static str, Shape)]) -> String {
    let near = fields.iter().map(|(field, _)| (distance(name, field), *field));
    match near.filter(|(distance, _)| *distance <= DISTANCE_MAX).min() {
        Some((_, nearest)) => format!("there is no such field; did you mean {nearest}?"),
        None => {
            let mut names: Vec<_> = fields.iter().map(|(field, _)| *field).collect();
            names.sort_unstable();
            format!("there is no such field; there are {}", names.join(", "))
        }
    }
}

/// A name as it is printed: one that cannot be a field's is not repeated.
fn shown(name: &str) -> String {
    let is_plain =
        name.len() <= NAME_BYTES_MAX && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if is_plain { name.to_owned() } else { "(another field)".to_owned() }
}

fn name_of(shape: &Shape) -> &'static str {
    match shape {
        Shape::Text => "a text",
        Shape::Integer => "an integer, not below zero",
        Shape::Boolean => "true or false",
        Shape::List(_) => "a list",
        Shape::Fields(_) => "a section with fields",
    }
}

/// What stands for an item that is faulty.
fn empty(shape: &Shape) -> Value {
    match shape {
        Shape::Text => "".into(),
        Shape::Integer => 0.into(),
        Shape::Boolean => false.into(),
        Shape::List(_) => Value::Array(Vec::new()),
        Shape::Fields(_) => Map::new().into(),
    }
}

/// Returns the edit distance of two names (Levenshtein), in which upper and lower case are equal.
fn distance(one: &str, other: &str) -> usize {
    let [one, other] = [one, other].map(str::to_lowercase);
    if one.len().abs_diff(other.len()) > DISTANCE_MAX {
        return usize::MAX;
    }
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (place, letter) in one.bytes().enumerate() {
        let mut next = vec![place + 1];
        for ((above, with), beside) in row.iter().zip(other.bytes()).zip(row.iter().skip(1)) {
            let left = next.last().copied().unwrap_or_default();
            let changed = above + usize::from(letter != with);
            next.push(changed.min(left + 1).min(beside + 1));
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

/// Two letters in the wrong order, or two that are missing.
const DISTANCE_MAX: usize = 2;
/// A file of another kind has many.
const FAULTS_MAX: usize = 50;
/// Longer than the longest field name.
const NAME_BYTES_MAX: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    fn found(body: &str) -> Vec<String> {
        let text = format!("apiVersion: weir.dev/v1alpha1\nkind: WeirConfiguration\n{body}");
        faults(&text).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn all_faults_are_found_with_their_places() {
        let body = "cache:\n  forwardBudgit: 1\n  idleTimeout: never\n  warm: v1/pods\n  http: {}\nserver: { listeners: [ { listen: \"https://127.0.0.1:1\", cert: x } ] }\nadmin: { readyWhenAway: 5, listen: nowhere }\n";
        let faults = found(body);
        let expected = [
            "4:3: cache.forwardBudgit: there is no such field; did you mean forwardBudget?",
            "5:16: cache.idleTimeout: ",
            "6:9: cache.warm: must be a list",
            "7:3: cache.http: there is no such field; there are ",
            "8:57: server.listeners[0].cert: there is no such field; there are certificate, ",
            "9:25: admin.readyWhenAway: must be true or false",
            "9:36: admin.listen: ",
        ];
        assert_eq!(faults.len(), expected.len(), "{faults:#?}");
        for (fault, expected) in faults.iter().zip(expected) {
            assert!(fault.starts_with(expected), "{fault}\n{expected}");
        }
    }

    #[test]
    fn a_good_file_has_none_and_no_yaml_has_none() {
        assert_eq!(
            found("cache: { forwardBudget: 7, idleTimeout: 10m, gzipBytesMax: 1048576 }\n"),
            [""; 0]
        );
        assert_eq!(found("logging:\n"), [""; 0]);
        assert_eq!(faults("a: [\n"), []);
    }

    #[test]
    fn no_value_and_no_strange_name_is_repeated() {
        let problems = found(
            "admin: [ SECRET ]\n\"SECRET token\": SECRET\ncache: { forwardBudget: SECRET }\n",
        );
        assert_eq!(problems.len(), 3);
        assert!(!problems.concat().contains("SECRET"), "{problems:?}");
    }

    #[test]
    fn near_names_are_those_of_two_edits() {
        for (one, other, edits) in [
            ("forwardBudgit", "forwardBudget", 1),
            ("forwardbudget", "forwardBudget", 0),
            ("idelTimeout", "idleTimeout", 2),
            ("", "ab", 2),
            ("warm", "verify", 5),
            ("a", "abcdef", usize::MAX),
        ] {
            assert_eq!(distance(one, other), edits, "{one} {other}");
        }
    }
}
