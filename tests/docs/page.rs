//! The commands of a page, and what they print.

/// A step of the reader.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Command(Command),
    /// `<!-- test: stop the demo -->`: the reader presses Ctrl-C.
    StopDemo,
}

/// A command, and the lines that it is to print.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Command {
    pub(crate) text: String,
    pub(crate) output: Vec<String>,
}

/// Returns the steps of a page.
pub(crate) fn steps(page: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut indent = None;
    for line in page.lines() {
        let text = line.trim_start();
        match indent {
            None if text == "```console" => indent = Some(line.len() - text.len()),
            None if text == "<!-- test: stop the demo -->" => steps.push(Step::StopDemo),
            None => {}
            Some(_) if text == "```" => indent = None,
            Some(indent) => take(&mut steps, line.get(indent..).unwrap_or_default()),
        }
    }
    steps
}

fn take(steps: &mut Vec<Step>, line: &str) {
    if let Some(text) = line.strip_prefix("$ ") {
        steps.push(Step::Command(Command { text: text.to_owned(), output: Vec::new() }));
    } else if let Some(Step::Command(command)) = steps.last_mut() {
        if command.output.is_empty() && command.text.ends_with('\\') {
            command.text.push('\n');
            command.text.push_str(line);
        } else {
            command.output.push(line.to_owned());
        }
    }
}

/// Whether lines match patterns. No pattern at all matches everything.
pub(crate) fn matches(patterns: &[String], lines: &[&str]) -> bool {
    patterns.is_empty() || lines_match(patterns, lines)
}

fn lines_match(patterns: &[String], lines: &[&str]) -> bool {
    match (patterns, lines) {
        ([], []) => true,
        ([first, rest @ ..], _) if first == "..." => {
            (0..=lines.len()).any(|skipped| lines_match(rest, lines.get(skipped..).unwrap()))
        }
        ([first, patterns @ ..], [line, lines @ ..]) => {
            line_matches(first, line) && lines_match(patterns, lines)
        }
        _ => false,
    }
}

fn line_matches(pattern: &str, line: &str) -> bool {
    match pattern.split_once("...") {
        None => pattern == line,
        Some((start, rest)) => line.strip_prefix(start).is_some_and(|line| {
            line.char_indices()
                .map(|(index, _)| index)
                .chain([line.len()])
                .any(|index| line_matches(rest, line.get(index..).unwrap()))
        }),
    }
}

#[test]
fn commands_and_their_output_are_found() {
    let page = "text\n```sh\n$ no\n```\n1. a\n\n   ```console\n   $ one \\\n     two\n   out\n   $ three\n   ```\n<!-- test: stop the demo -->\n";
    let command = |text: &str, output: &[&str]| {
        let output = output.iter().map(|&line| line.to_owned()).collect();
        Step::Command(Command { text: text.to_owned(), output })
    };
    let wanted = [command("one \\\n  two", &["out"]), command("three", &[]), Step::StopDemo];
    assert_eq!(steps(page), wanted);
}

#[test]
fn dots_match_any_text_and_any_lines() {
    let does = |patterns: &[&str], lines: &[&str]| {
        let patterns: Vec<_> = patterns.iter().map(|&one| one.to_owned()).collect();
        matches(&patterns, lines)
    };
    assert!(does(&[], &["a"]));
    assert!(does(&["a", "...", "b...d"], &["a", "x", "y", "bcd"]));
    assert!(does(&["...", "a"], &["a"]));
    assert!(!does(&["a"], &["a", "b"]));
    assert!(!does(&["...", "a"], &["b"]));
    assert!(!does(&["a...b"], &["ac"]));
}
