//! Reads the text format of Prometheus, as far as Weir writes it.

use std::iter;

/// Returns the labels and the value of each sample of a metric. The values of the labels are as
/// they are written.
pub(super) fn samples<'a>(
    text: &'a str,
    name: &'a str,
) -> impl Iterator<Item = (Vec<(&'a str, &'a str)>, f64)> {
    let of_metric = text.lines().filter(move |line| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
    });
    of_metric.filter_map(|line| {
        let value = line.rsplit_once(' ')?.1.parse().ok()?;
        Some((labels_of(line).collect(), value))
    })
}

/// Returns the labels of a line, their values as they are written.
pub(super) fn labels_of(line: &str) -> impl Iterator<Item = (&str, &str)> {
    let labels = match line.split_once('{') {
        Some((name, labels)) if !name.starts_with('#') => labels,
        _ => "",
    };
    let mut rest = labels;
    iter::from_fn(move || {
        let (label, after) = rest.split_once("=\"")?;
        let mut is_escape = false;
        let end = after.find(|letter| {
            let is_end = letter == '"' && !is_escape;
            is_escape = letter == '\\' && !is_escape;
            is_end
        })?;
        let (value, after) = after.split_at_checked(end)?;
        rest = after.strip_prefix('"').unwrap_or_default();
        Some((label.trim_start_matches([',', ' ']), value))
    })
}

/// Returns the value of a label without its escapes.
pub(super) fn unescaped(value: &str) -> String {
    // In one pass: the backslash of an escaped backslash begins no other escape.
    let mut text = String::with_capacity(value.len());
    let mut letters = value.chars();
    while let Some(letter) = letters.next() {
        if letter != '\\' {
            text.push(letter);
            continue;
        }
        match letters.next() {
            Some('n') => text.push('\n'),
            Some(escaped @ ('"' | '\\')) => text.push(escaped),
            // No escape of this format, so both stay.
            other => text.extend(iter::once('\\').chain(other)),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_read_as_they_are_written() {
        let line = r#"a{x="1",y="q\"}",z="\\"} 2"#;
        let labels: Vec<_> = labels_of(line).collect();
        assert_eq!(labels, [("x", "1"), ("y", r#"q\"}"#), ("z", r"\\")]);
        assert_eq!(unescaped(r#"q\"}"#), "q\"}");
        assert_eq!(unescaped(r"CORP\\nancy\n\x\"), "CORP\\nancy\n\\x\\");
        assert_eq!(labels_of("# HELP a {x=\"1\"}").count(), 0);
    }

    #[test]
    fn samples_are_those_of_one_metric() {
        let text = "# HELP a b\na{x=\"1\"} 2\na 3\nab 4\na{x=\"y z\"} 5.5\n";
        let samples: Vec<_> = samples(text, "a").collect();
        let expected = [(vec![("x", "1")], 2.0), (vec![], 3.0), (vec![("x", "y z")], 5.5)];
        assert_eq!(samples, expected);
    }
}
