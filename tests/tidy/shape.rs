//! Every file says what it is, stays small, and leaves nothing unfinished.

use crate::files::{self, TextFile};
use crate::{finish, root};

#[test]
fn every_file_says_what_it_is() {
    let complaints = each(&files::rust(), opens_with_documentation);
    finish("every file opens with its module's documentation", &complaints);
}

fn opens_with_documentation(file: &TextFile) -> Vec<String> {
    let mut complaints = Vec::new();
    if !file.text.starts_with("//! ") {
        complaints.push(file.complaint(1, "must open with //!"));
    }
    if file.path.ends_with("mod.rs") {
        complaints.push(file.complaint(1, "must be foo.rs beside foo/, not foo/mod.rs"));
    }
    complaints
}

#[test]
fn files_stay_small() {
    finish("files stay small", &each(&files::rust(), is_small));
}

/// Long files are hard to keep in mind, so they must be split.
fn is_small(file: &TextFile) -> Vec<String> {
    let lines = file.text.lines().count();
    let lines_max = if file.is_test() { TEST_LINES_MAX } else { LINES_MAX };
    if lines <= lines_max {
        return Vec::new();
    }
    vec![file.complaint(lines, &format!("more than {lines_max} lines"))]
}

const LINES_MAX: usize = 400;
const TEST_LINES_MAX: usize = 500;

#[test]
fn nothing_unfinished_is_left() {
    let files: Vec<_> =
        files::rust().into_iter().filter(|file| !file.path.starts_with("tests/tidy")).collect();
    finish("nothing unfinished is left", &each(&files, is_finished));
}

fn is_finished(file: &TextFile) -> Vec<String> {
    let mut complaints = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        for word in UNFINISHED {
            if line.contains(word) && !line.trim_start().starts_with("//") {
                complaints.push(file.complaint(index + 1, word));
            }
        }
    }
    complaints
}

/// Left behind by unfinished or debugging work.
const UNFINISHED: [&str; 3] = ["todo!(", "unimplemented!(", "dbg!("];

#[test]
fn the_changelog_has_a_section_for_the_next_release() {
    let text = std::fs::read_to_string(root().join("CHANGELOG.md")).unwrap();
    assert!(
        text.lines().any(|line| line.trim() == "## Unreleased"),
        "CHANGELOG.md: needs a section \"## Unreleased\""
    );
}

/// Applies a rule to every file.
pub(crate) fn each(files: &[TextFile], rule: impl Fn(&TextFile) -> Vec<String>) -> Vec<String> {
    files.iter().flat_map(rule).collect()
}

/// A file with this path and text, for the tests of rules.
pub(crate) fn file(path: &str, text: &str) -> TextFile {
    TextFile { path: path.into(), text: text.to_owned() }
}

#[test]
fn each_rule_fails_when_broken() {
    assert_eq!(opens_with_documentation(&file("src/a.rs", "use b;\n")).len(), 1);
    assert_eq!(opens_with_documentation(&file("src/a/mod.rs", "//! A.\n")).len(), 1);
    assert!(opens_with_documentation(&file("src/a.rs", "//! A.\n")).is_empty());
    assert_eq!(is_small(&file("src/a.rs", &"\n".repeat(LINES_MAX + 1))).len(), 1);
    assert!(is_small(&file("tests/a.rs", &"\n".repeat(LINES_MAX + 1))).is_empty());
    assert_eq!(is_small(&file("tests/a.rs", &"\n".repeat(TEST_LINES_MAX + 1))).len(), 1);
    assert_eq!(is_finished(&file("src/a.rs", "let a = 1;\n    todo!()\n")).len(), 1);
}
