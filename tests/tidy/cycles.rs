//! No import cycle among the files of `src/`.
//!
//! To print the cycles of another tree, run this test there.

use std::collections::{BTreeMap, BTreeSet};

use crate::files;
use crate::finish;
use crate::imports::Library;

#[test]
fn no_import_cycles() {
    let library = Library::parse(&files::rust());
    finish("no import cycle among files", &complaints(&library));
}

/// Describes every strongly connected set of two files or more.
fn complaints(library: &Library) -> Vec<String> {
    let graph = graph(library);
    components(&graph).iter().map(|component| describe(&graph, component)).collect()
}

/// The items that a module uses, by the module that defines them.
type Graph = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

fn graph(library: &Library) -> Graph {
    let mut graph = Graph::new();
    for module in library.modules().filter(|module| !module.is_empty()) {
        let edges = graph.entry(module.to_owned()).or_default();
        for import in library.imports(module) {
            edges.entry(import.module).or_default().insert(import.item);
        }
    }
    graph
}

fn describe(graph: &Graph, component: &BTreeSet<String>) -> String {
    let mut text = format!("{} files:", component.len());
    for module in component {
        for (target, items) in &graph[module] {
            if component.contains(target) {
                let items: Vec<_> = items.iter().map(String::as_str).collect();
                text.push_str(&format!("\n    {module} -> {target}: {}", items.join(", ")));
            }
        }
    }
    text
}

/// The sets of modules that reach each other. Quadratic, which is fast enough for a thousand files.
fn components(graph: &Graph) -> Vec<BTreeSet<String>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        graph.keys().map(|module| (module.as_str(), reachable(graph, module))).collect();
    let mut components: BTreeSet<BTreeSet<String>> = BTreeSet::new();
    for (module, targets) in &reached {
        if targets.contains(module) {
            let component = targets.iter().filter(|target| reached[**target].contains(module));
            components.insert(component.map(|name| (*name).to_owned()).collect());
        }
    }
    components.into_iter().collect()
}

fn reachable<'a>(graph: &'a Graph, start: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&str> = vec![start];
    while let Some(module) = open.pop() {
        for target in graph.get(module).into_iter().flat_map(|edges| edges.keys()) {
            if reached.insert(target.as_str()) {
                open.push(target);
            }
        }
    }
    reached
}

#[test]
fn a_cycle_is_reported_with_its_names() {
    let library = crate::imports::library(&[
        ("src/lib.rs", "mod a; mod b; mod c;"),
        ("src/a.rs", "use crate::b::B; pub struct A;"),
        ("src/b.rs", "use crate::c::C; pub struct B;"),
        ("src/c.rs", "pub struct C; fn f(_: crate::a::A) {}"),
        ("src/d.rs", "use crate::a::A;"),
    ]);
    let complaints = complaints(&library);
    assert_eq!(complaints.len(), 1, "{complaints:?}");
    assert!(complaints[0].starts_with("3 files:"), "{complaints:?}");
    assert!(complaints[0].contains("c -> a: A"), "{complaints:?}");
}
