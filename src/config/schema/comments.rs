//! The descriptions of settings: the comment above each in the example configurations. It counts
//! for all settings that follow without a line between. A setting that an example only shows in a
//! comment (`# kubeconfig: ...`) counts too.

use std::collections::BTreeMap;

use crate::config::schema::trace::Shape;

/// Returns the descriptions by path. The first example with a comment for a setting decides.
pub(super) fn descriptions(examples: [&str; 2], shape: &Shape) -> BTreeMap<String, String> {
    let mut texts = BTreeMap::new();
    for example in examples {
        let mut reader = Reader { shape, parents: Vec::new(), comment: Vec::new(), before: None };
        for line in example.lines() {
            if let Some((path, description)) = reader.take(line) {
                texts.entry(path).or_insert(description);
            }
        }
    }
    texts
}

/// The path of a field; items of a list have their list's path.
pub(in crate::config) fn joined(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

struct Reader<'a> {
    shape: &'a Shape,
    /// The settings that the next line may be within, with their columns.
    parents: Vec<(usize, String)>,
    /// The lines of the comment that precedes the next line.
    comment: Vec<String>,
    /// The column and the description of the setting on the line before.
    before: Option<(usize, String)>,
}

impl Reader<'_> {
    /// Takes a line. Returns the setting on it and its description, if it has one.
    fn take(&mut self, line: &str) -> Option<(String, String)> {
        let text = line.trim_start();
        if text.is_empty() {
            self.comment.clear();
            self.before = None;
            return None;
        }
        let column = line.len() - text.len();
        let Some(comment) = text.strip_prefix('#') else {
            let (column, name) = setting(text, column)?;
            return self.enter(column, name);
        };
        let comment = comment.strip_prefix(' ').unwrap_or(comment);
        let inner = comment.trim_start();
        let example = setting(inner, column + comment.len() - inner.len());
        match example.filter(|(column, name)| self.is_setting(*column, name)) {
            Some((column, name)) => self.enter(column, name),
            None => {
                self.comment.push(inner.trim_start_matches(['#', ' ']).to_owned());
                None
            }
        }
    }

    fn enter(&mut self, column: usize, name: &str) -> Option<(String, String)> {
        let path = self.path(column, name);
        self.parents.retain(|(parent, _)| *parent < column);
        self.parents.push((column, name.to_owned()));
        let comment = std::mem::take(&mut self.comment).join(" ");
        let before = self.before.take().filter(|(comment_column, _)| *comment_column == column);
        let description = match before {
            Some((_, description)) if comment.is_empty() => description,
            _ => comment,
        };
        self.before = Some((column, description.clone()));
        (!description.is_empty()).then_some((path, description))
    }

    fn path(&self, column: usize, name: &str) -> String {
        let parents = self.parents.iter().filter(|(parent, _)| *parent < column);
        let path = parents.fold(String::new(), |path, (_, name)| joined(&path, name));
        joined(&path, name)
    }

    fn is_setting(&self, column: usize, name: &str) -> bool {
        let path = self.path(column, name);
        path.split('.').try_fold(self.shape, child).is_some()
    }
}

/// Returns the shape of a field.
fn child<'a>(shape: &'a Shape, name: &str) -> Option<&'a Shape> {
    match shape {
        Shape::List(items) => child(items, name),
        Shape::Fields(fields) => {
            fields.iter().find(|(field, _)| *field == name).map(|(_, shape)| shape)
        }
        Shape::Text | Shape::Integer | Shape::Boolean => None,
    }
}

/// Returns the name of the setting on a line, and its column.
fn setting(text: &str, column: usize) -> Option<(usize, &str)> {
    let (text, column) = match text.strip_prefix("- ") {
        Some(rest) => (rest, column + "- ".len()),
        None => (text, column),
    };
    let (name, rest) = text.split_once(':')?;
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
    (is_name && (rest.is_empty() || rest.starts_with(' '))).then_some((column, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_describes_the_setting_below_it() {
        let shape = Shape::Fields(vec![(
            "outer",
            Shape::Fields(["one", "same", "two", "three"].map(|name| (name, Shape::Text)).to_vec()),
        )]);
        let example = "# Not about a setting.\n\n# Outer,\n# it is.\nouter:\n  # One.\n  one: a\n  same: a\n\n  two: b\n  # Three: it may be left out.\n  # three: c\n  # Note: no setting.\n";
        let texts = descriptions([example, "outer:\n  # Two.\n  two: c\n"], &shape);
        let wanted = [
            ("outer", "Outer, it is."),
            ("outer.one", "One."),
            ("outer.same", "One."),
            ("outer.three", "Three: it may be left out."),
            ("outer.two", "Two."),
        ];
        let wanted = wanted.map(|(path, text)| (path.to_owned(), text.to_owned()));
        assert_eq!(texts, BTreeMap::from(wanted));
    }
}
