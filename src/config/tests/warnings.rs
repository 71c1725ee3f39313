//! Each warning, by the least configuration that causes it.

use super::resolve;

/// Returns the warnings of a configuration with a memory limit of a gibibyte.
fn warnings(yaml: &str) -> Vec<String> {
    let warnings = resolve(yaml).unwrap().warnings(Some(1 << 30));
    let list = warnings.map_or_else(Vec::new, |problems| problems.0);
    list.into_iter().map(|warning| format!("{}: {}", warning.path, warning.message)).collect()
}

const SMALL: &str = "cache: { totalBytesMax: 400Mi, resourceBytesMax: 200Mi }\n";
const GATEWAY: &str =
    "authentication: { mode: gateway }\ncache: { totalBytesMax: 400Mi, resourceBytesMax: 200Mi";

#[track_caller]
fn assert_warns(yaml: &str, field: &str, words: &str) {
    let warnings = warnings(yaml);
    let is_found =
        |warning: &String| warning.starts_with(&format!("{field}: ")) && warning.contains(words);
    assert!(warnings.len() == 1 && warnings.iter().any(is_found), "{warnings:?}");
}

/// A gateway whose file has more members of `cache`, and more sections.
fn gateway(cache: &str, sections: &str) -> String {
    format!("{GATEWAY}{cache} }}\n{sections}")
}

#[test]
fn the_defaults_that_fit_the_memory_warn_of_nothing() {
    assert_eq!(warnings(SMALL), [""; 0]);
    assert_eq!(warnings(&gateway("", "")), [""; 0]);
}

#[test]
fn budgets_above_the_memory_limit_are_named_together() {
    assert_warns("", "cache.totalBytesMax", "of 1073741824");
}

#[test]
fn what_takes_the_source_of_flow_control_is_named() {
    let excluded = ", exclude: [events, flowcontrol.apiserver.k8s.io/flowschemas]";
    assert_warns(&gateway(excluded, ""), "cache.exclude", "flowschemas");
    let warned = warnings(&gateway(", include: [pods]", ""));
    assert_eq!(warned.len(), 2, "{warned:?}");
    assert!(warned.iter().all(|warning| warning.starts_with("cache.include: ")), "{warned:?}");
    assert_eq!(warnings(&gateway(", include: [pods]", "flowControl: { mode: off }\n")), [""; 0]);
}

#[test]
fn consistent_lists_without_flow_control_are_named() {
    let off = "flowControl: { mode: off }\n";
    assert_warns(
        &gateway(", consistentLists: auto", off),
        "cache.consistentLists",
        "flowControl.mode",
    );
    assert_eq!(warnings(&gateway(", consistentLists: auto", "")), [""; 0]);
}

#[test]
fn few_seats_are_named() {
    let few = "flowControl: { seatsPerServer: 59 }\n";
    assert_warns(&gateway("", few), "flowControl.seatsPerServer", "is low");
    assert_eq!(warnings(&gateway("", "flowControl: { seatsPerServer: 60 }\n")), [""; 0]);
}

#[test]
fn rules_that_refuse_all_or_do_nothing_are_named() {
    let rule = |rule: &str| gateway("", &format!("flowControl: {{ rules: [{rule}] }}\n"));
    let ban = "{ name: a, action: deny }";
    assert_warns(&rule(ban), "flowControl.rules[0].action", "every request of every client");
    let both = "{ name: a, userAgents: [x], action: deny, limits: { watches: 1 } }";
    assert_warns(&rule(both), "flowControl.rules[0].action", "do nothing");
    let tried = "{ name: a, action: deny, mode: observe }";
    assert_eq!(warnings(&rule(tried)), [""; 0]);
    let observed =
        "flowControl: { mode: observe, rules: [{ name: a, userAgents: [x], level: catch-all }] }\n";
    assert_warns(&gateway("", observed), "flowControl.rules[0].level", "enforce");
    let none = "{ name: a, limits: { watches: 0 } }";
    assert_warns(&rule(none), "flowControl.rules[0].limits.watches", "no client can open a watch");
}
