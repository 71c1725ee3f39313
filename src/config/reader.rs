//! Reads a file into the sections, and collects everything that is wrong with it, each problem with
//! its place, so that an operator does not need three attempts to find three mistakes.
//!
//! Invariant: no message repeats a value of a wrong type or the name of an unknown field that is no
//! plain word, since the file may be another one, with a token in it.

use std::fmt;

use strsim::levenshtein;

use crate::config::file::Node;

/// The problems of a configuration; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Line and column, counted from 1; `None` for a problem that has no place in the file.
    pub place: Option<(u64, u64)>,
    /// The field, such as `server.listeners[0].listen`.
    pub path: String,
    /// The description.
    pub message: String,
}

/// `LINE:COLUMN: FIELD: MESSAGE`.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((line, column)) = self.place {
            write!(f, "{line}:{column}: ")?;
        }
        write!(f, "{}: {}", self.path, self.message)
    }
}

impl std::error::Error for Problems {}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{problem}")?;
        }
        Ok(())
    }
}

/// Where reading is, and what was found to be wrong.
pub(super) struct Reader<'a> {
    root: &'a Node,
    /// Whether clients are authenticated, which decides what is allowed.
    pub(super) is_gateway: bool,
    path: String,
    problems: Vec<Problem>,
    /// How many of them are from reading.
    read: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(root: &'a Node, is_gateway: bool) -> Self {
        Self { root, is_gateway, path: String::new(), problems: Vec::new(), read: 0 }
    }

    /// Adds a problem with the value that is read.
    pub(super) fn add(&mut self, place: Option<(u64, u64)>, message: impl Into<String>) {
        if self.problems.len() < PROBLEMS_MAX {
            let path = if self.path.is_empty() { "the file" } else { &self.path }.to_owned();
            self.problems.push(Problem { place, path, message: message.into() });
        }
    }

    /// Notes that all values were read.
    pub(super) fn end_reading(&mut self) {
        self.read = self.problems.len();
    }

    /// Adds a problem with a field, whose place is looked up. The members of a list of which one
    /// could not be read have other numbers than in the file, so that nothing more is said of them.
    pub(super) fn refuse(&mut self, path: impl Into<String>, message: impl Into<String>) {
        let path = path.into();
        let list = path.find('[').and_then(|end| path.get(..=end));
        let mut from_reading = self.problems.iter().take(self.read);
        if list.is_some_and(|list| from_reading.any(|problem| problem.path.starts_with(list))) {
            return;
        }
        let place = self.root.place_of(&path);
        self.problems.push(Problem { place, path, message: message.into() });
    }

    /// Reads a field, or an item such as `[3]`.
    pub(super) fn inside(&mut self, step: &str, read: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        if length > 0 && !step.starts_with('[') {
            self.path.push('.');
        }
        self.path.push_str(step);
        read(self);
        self.path.truncate(length);
    }

    /// Whether the file has a value for a field.
    pub(super) fn has(&self, path: &str) -> bool {
        self.root.get(path).is_some()
    }

    /// Returns the number of problems so far.
    pub(super) fn count(&self) -> usize {
        self.problems.len()
    }

    /// Adds a problem with a field that does not exist: it is gone, or another one is meant.
    pub(super) fn unknown(&mut self, key: &Node, name: &str, names: &[&str]) {
        let is_plain =
            name.len() <= NAME_BYTES_MAX && name.bytes().all(|b| b.is_ascii_alphanumeric());
        let printable_name = if is_plain { name } else { "(another field)" };
        let mut message = String::new();
        self.inside(printable_name, |reader| {
            let gone = GONE.iter().find(|(path, _)| *path == without_indices(&reader.path));
            message = match gone {
                Some((_, instead)) => format!("is gone: {instead}"),
                None => suggestion(name, names),
            };
            reader.add(key.place(), &*message);
        });
    }

    /// Returns the problems in the order of the file.
    pub(super) fn finish(mut self) -> Vec<Problem> {
        self.problems.sort_by_key(|problem| problem.place.unwrap_or_default());
        self.problems
    }
}

fn without_indices(path: &str) -> String {
    let parts = path.split('[').enumerate();
    let rest = |(index, part): (usize, &str)| match index {
        0 => part.to_owned(),
        _ => part.split_once(']').map_or("", |(_, rest)| rest).to_owned(),
    };
    parts.map(rest).collect()
}

/// The field that is meant, or those that there are.
fn suggestion(name: &str, names: &[&str]) -> String {
    let distance = |other: &str| levenshtein(&name.to_lowercase(), &other.to_lowercase());
    let near = names.iter().map(|other| (distance(other), other));
    match near.filter(|(distance, _)| *distance <= DISTANCE_MAX).min() {
        Some((_, nearest)) => format!("there is no such field; did you mean {nearest}?"),
        None => {
            let mut names = names.to_vec();
            names.sort_unstable();
            format!("there is no such field; there are {}", names.join(", "))
        }
    }
}

/// The settings that are gone, and what does their work.
pub(super) const GONE: &[(&str, &str)] = &[
    ("admin.readyWhenAway", "Weir stays ready while a cache can answer"),
    ("authentication.requestHeader.usernameHeaders", HEADERS),
    ("authentication.requestHeader.uidHeaders", HEADERS),
    ("authentication.requestHeader.groupHeaders", HEADERS),
    ("authentication.requestHeader.extraHeaderPrefixes", HEADERS),
    ("cache.gzipBytesMax", "it is a sixteenth of cache.totalBytesMax"),
    ("cache.historyBytesMax", "it is a sixteenth of cache.totalBytesMax"),
    ("cache.idleTimeout", "an unused cache is stopped after 10m"),
    ("flowControl.levels", "create a PriorityLevelConfiguration in the cluster"),
    ("server.connectionsPerUserMax", "it is eight times server.connectionsPerAddressMax"),
    ("server.watchesPerUserMax", "it is 32 times server.connectionsPerAddressMax"),
    ("server.listeners.certificate.caFile", "put ca.crt beside certificateFile"),
    ("upstream.connectTimeout", "it is 10s"),
    ("upstream.context", "set current-context in the kubeconfig, or the flag --context"),
];
const HEADERS: &str = "a file's front proxies use X-Remote-User, -Uid, -Group and -Extra-";

/// Two letters in the wrong order, or two that are missing.
const DISTANCE_MAX: usize = 2;
/// A file of another kind has many.
const PROBLEMS_MAX: usize = 50;
/// Longer than the longest field name.
const NAME_BYTES_MAX: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_no_part_of_a_setting() {
        assert_eq!(without_indices("server.listeners[12].certificate.caFile"), GONE[11].0);
    }
}
