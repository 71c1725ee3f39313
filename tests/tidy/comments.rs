//! Comments fit in 100 columns, and what they cite exists.

use std::path::Path;

use crate::files::{self, TextFile};
use crate::shape::each;
use crate::{finish, root};

#[test]
fn comments_fit_in_100_columns() {
    finish("comments fit in 100 columns", &each(&files::text_files(), fits));
}

fn fits(file: &TextFile) -> Vec<String> {
    let marker = match () {
        () if file.is("rs") || file.is("js") => "//",
        () if file.is("md") => return Vec::new(),
        () => "#",
    };
    let comments = file.text.lines().enumerate().filter(|(_, line)| {
        line.trim_start().starts_with(marker) && line.chars().count() > COLUMNS_MAX
    });
    comments.map(|(index, _)| file.complaint(index + 1, "a comment over 100 columns")).collect()
}

const COLUMNS_MAX: usize = 100;

#[test]
fn cited_files_exist() {
    // It cites files that are missing on purpose.
    let mut files = files::text_files();
    files.retain(|file| file.path != Path::new("tests/tidy/comments.rs"));
    finish("cited files exist", &each(&files, cites_what_exists));
}

fn cites_what_exists(file: &TextFile) -> Vec<String> {
    let mut complaints = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        let is_comment = line.trim_start().starts_with("//");
        if file.is("rs") && !is_comment {
            continue;
        }
        for path in cited(line) {
            if !exists(&file.path, path) {
                complaints.push(file.complaint(index + 1, &format!("{path} does not exist")));
            }
        }
    }
    complaints
}

/// The relative paths on a line. A bare file name counts only where it ends in `.md`: other bare
/// names are often those of users' files.
fn cited(line: &str) -> impl Iterator<Item = &str> {
    let is_path = |letter: char| letter.is_alphanumeric() || "._-/:~$<>{}*@+".contains(letter);
    let tokens = line.split(move |letter| !is_path(letter));
    tokens.map(|token| token.trim_end_matches(['.', ':'])).filter(|token| {
        let extension = token.rsplit('.').next().unwrap_or_default();
        let is_cited = match extension {
            "md" => token.len() > ".md".len(),
            "rs" | "yaml" | "tsv" | "py" | "svg" | "sh" | "toml" => token.contains('/'),
            _ => false,
        };
        is_cited && !token.starts_with('/') && !token.contains([':', '~', '$', '<', '{', '*', '@'])
    })
}

/// Whether a path exists from the root, from the citing file's directory, or from `src/`.
fn exists(citing: &Path, path: &str) -> bool {
    let directory = root().join(citing.parent().unwrap());
    [root().to_path_buf(), directory, root().join("src")]
        .iter()
        .any(|base| base.join(path).exists())
}

#[test]
fn every_decision_is_cited() {
    finish(
        "every decision is cited by the code or ARCHITECTURE.md",
        &uncited(&files::text_files()),
    );
}

/// A decision that no code cites is found by nobody who reads that code.
fn uncited(files: &[TextFile]) -> Vec<String> {
    let is_cited = |decision: &TextFile| {
        let path = decision.path.to_string_lossy();
        files.iter().any(|file| may_cite_decisions(file) && file.text.contains(&*path))
    };
    let decisions = files.iter().filter(|file| is_decision(file));
    decisions
        .filter(|decision| !is_cited(decision))
        .map(|decision| decision.complaint(1, "cite it in the module that it is about"))
        .collect()
}

/// Whether the file is a page of `docs/decisions`, other than the list of the pages.
fn is_decision(file: &TextFile) -> bool {
    file.path.starts_with("docs/decisions") && !file.path.ends_with("README.md")
}

fn may_cite_decisions(file: &TextFile) -> bool {
    let is_code = file.path.starts_with("src") && !file.is_test();
    is_code || file.path == Path::new("ARCHITECTURE.md") || file.path == Path::new("Cargo.toml")
}

#[test]
fn each_rule_fails_when_broken() {
    let file = crate::shape::file;
    let wide = "a".repeat(COLUMNS_MAX);
    assert_eq!(fits(&file("src/a.rs", &format!("//! A.\n// {wide}"))).len(), 1);
    assert_eq!(fits(&file("config/a.yaml", &format!("# {wide}"))).len(), 1);
    assert!(fits(&file("src/a.rs", &format!("let a = \"{wide}\";"))).is_empty());
    let decisions_after = |path, text| {
        let pages = ["docs/decisions/client-connections.md", "docs/decisions/README.md"];
        let [page, list] = pages.map(|page| file(page, ""));
        uncited(&[page, list, file(path, text)]).len()
    };
    let citation = "//! See `docs/decisions/client-connections.md`.";
    assert_eq!(decisions_after("src/server/connection.rs", citation), 0);
    assert_eq!(decisions_after("ARCHITECTURE.md", citation), 0);
    assert_eq!(decisions_after("src/server/connection.rs", "//! ALPN."), 1);
    assert_eq!(decisions_after("src/server/tests.rs", citation), 1);
    assert_eq!(decisions_after("docs/operating.md", citation), 1);
    let cites = |text| cites_what_exists(&file("src/a.rs", text)).len();
    assert_eq!(cites("// See docs/missing.md."), 1);
    assert_eq!(cites("// See missing.md, section 2."), 1);
    assert_eq!(cites("//! `tests/nowhere.rs` has it."), 1);
    assert_eq!(cites("// README.md, src/main.rs and main.rs exist; /etc/a.md is elsewhere."), 0);
}
