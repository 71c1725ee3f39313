//! Links between pages: the file exists, and has the heading that the link names.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::{pages, root};

#[test]
fn links_lead_to_files_and_headings() {
    let mut broken = Vec::new();
    let directories = [".", "benches", "deploy", "docs", "docs/decisions", "tests/simulation"];
    let files: BTreeSet<_> = directories
        .iter()
        .flat_map(|directory| fs::read_dir(root().join(directory)).unwrap().flatten())
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == "md"))
        .chain(pages(&root().join("docs")))
        .collect();
    for path in &files {
        let text = fs::read_to_string(path).unwrap();
        for target in targets(&text) {
            if !leads_somewhere(path, target) {
                let page = path.strip_prefix(root()).unwrap_or(path);
                broken.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(files.len() > 80, "only {} pages", files.len());
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// The targets of links in a page, without those to other sites.
fn targets(page: &str) -> impl Iterator<Item = &str> {
    let parts = page.split("](").skip(1).filter_map(|rest| rest.split([')', '\n']).next());
    parts.filter(|target| !target.contains("://") && !target.contains('*') && !target.is_empty())
}

fn leads_somewhere(page: &Path, target: &str) -> bool {
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    let path = match file {
        "" => page.to_owned(),
        _ => page.parent().unwrap_or(page).join(file),
    };
    if heading.is_empty() {
        return path.exists();
    }
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().filter(|line| line.starts_with('#')).any(|line| anchor(line) == heading)
}

/// The anchor that GitHub gives a heading.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
    kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

#[test]
fn anchors_are_those_of_headings() {
    assert_eq!(anchor("## X-Weir-Shed, and `why`"), "x-weir-shed-and-why");
}
