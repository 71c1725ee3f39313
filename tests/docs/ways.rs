//! The ways of a request in ARCHITECTURE.md: each function that they name is in its file, and is
//! called by the function under which it stands.

use std::fs;

use crate::root;

#[test]
fn the_ways_of_a_request_are_those_of_the_code() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let section = page.split("\n## ").find(|section| section.starts_with("The two ways")).unwrap();
    let (mut wrong, mut calls) = (Vec::new(), 0);
    for way in section.split("```text\n").skip(1) {
        let mut callers: Vec<(usize, String)> = Vec::new();
        for line in way.lines().take_while(|line| *line != "```") {
            let depth = line.len() - line.trim_start().len();
            let (file, name) = line.trim_start().split_once(' ').unwrap();
            let source = fs::read_to_string(root().join("src").join(file)).unwrap();
            let body = bodies(&source, name);
            if body.is_empty() {
                wrong.push(format!("{file} has no {name}"));
            }
            callers.retain(|(caller_depth, _)| *caller_depth < depth);
            if let Some((_, caller)) = callers.last() {
                calls += 1;
                if !caller.contains(&format!("{name}(")) {
                    wrong.push(format!("nothing calls {file} {name}"));
                }
            }
            callers.push((depth, body));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(calls > 60, "only {calls} calls");
}

/// Returns the functions of a name, each up to the brace that ends it.
fn bodies(source: &str, name: &str) -> String {
    let lines: Vec<_> = source.lines().collect();
    let mut bodies = String::new();
    for (start, line) in lines.iter().enumerate() {
        let head = line.trim_start();
        let is_named = ["(", "<"].iter().any(|after| head.contains(&format!("fn {name}{after}")));
        if is_named && !head.starts_with("//") {
            let end = format!("{}}}", " ".repeat(line.len() - head.len()));
            let body = lines.iter().skip(start + 1).take_while(|line| **line != end);
            bodies.extend(body.flat_map(|line| [*line, "\n"]));
        }
    }
    bodies
}
