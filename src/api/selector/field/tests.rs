//! Tests of parsing and matching field selectors.

use proptest::prelude::*;

use super::*;
use crate::resource::GroupVersionResource;

fn pods() -> SelectableFields {
    SelectableFields::built_in(&GroupVersionResource::new("", "v1", "pods"))
}

fn terms(text: &str) -> Option<Vec<(&str, bool, String)>> {
    let terms = parse_terms(text)?;
    Some(terms.into_iter().map(|term| (term.label, term.equal, term.value)).collect())
}

fn values(node: &str, phase: &str) -> Vec<Box<str>> {
    ["", "", "", "", "false", "", "", "", ""]
        .into_iter()
        .enumerate()
        .map(|(index, value)| match index {
            0 => node.into(),
            5 => phase.into(),
            _ => value.into(),
        })
        .collect()
}

#[test]
fn terms_are_read_as_upstream() {
    type Row<'a> = (&'a str, &'a [(&'a str, bool, &'a str)]);
    let rows: &[Row<'_>] = &[
        ("", &[]),
        (",,", &[]),
        ("a=b", &[("a", true, "b")]),
        ("a==b", &[("a", true, "b")]),
        ("a!=b", &[("a", false, "b")]),
        ("a=", &[("a", true, "")]),
        ("a!=", &[("a", false, "")]),
        ("=b", &[("", true, "b")]),
        ("b=1,a=2", &[("a", true, "2"), ("b", true, "1")]),
        ("a=1,,a!=2,", &[("a", false, "2"), ("a", true, "1")]),
        (" a=b ", &[(" a", true, "b ")]),
        (r"a=b\,c", &[("a", true, "b,c")]),
        (r"a=b\=c", &[("a", true, "b=c")]),
        (r"a=b\\,c=d", &[("a", true, r"b\"), ("c", true, "d")]),
        (r"a\,b=c", &[(r"a\,b", true, "c")]),
        ("a=b!c", &[("a", true, "b!c")]),
        ("a!b=c", &[("a!b", true, "c")]),
        ("a!!=c", &[("a!", false, "c")]),
        ("é=ü", &[("é", true, "ü")]),
    ];
    for (text, expected) in rows {
        let expected: Vec<_> = expected
            .iter()
            .map(|(label, equal, value)| (*label, *equal, (*value).into()))
            .collect();
        assert_eq!(terms(text), Some(expected), "{text}");
    }
}

#[test]
fn a_selector_that_the_upstream_rejects_is_none() {
    for text in [
        "a", "a!", "a=b,c", "a=b=c", "a===b", "a!==b", "a=!=b", r"a=\x", r"a=b\", "a in (b)", " ",
        r"a=b\ ", "a>1",
    ] {
        assert_eq!(terms(text), None, "{text}");
        assert_eq!(FieldSelector::parse(text, &pods()), None, "{text}");
    }
}

#[test]
fn a_label_must_be_one_of_the_resource() {
    let fields = pods();
    for text in ["spec.color=x", "=x", " metadata.name=x", "Metadata.name=x", "status=x", "a!=b"] {
        assert_eq!(FieldSelector::parse(text, &fields), None, "{text}");
    }
    let nodes = SelectableFields::built_in(&GroupVersionResource::new("", "v1", "nodes"));
    assert_eq!(FieldSelector::parse("metadata.namespace=x", &nodes), None);
    assert_eq!(
        FieldSelector::parse("spec.host=n", &fields),
        FieldSelector::parse("spec.nodeName=n", &fields)
    );
}

#[test]
fn objects_match_when_all_terms_do() {
    let values = values("n1", "Running");
    let rows = [
        ("", true),
        ("metadata.name=p", true),
        ("metadata.name!=p", false),
        ("metadata.name=q", false),
        ("metadata.name=", false),
        ("metadata.namespace=ns", true),
        ("metadata.namespace!=ns", false),
        ("metadata.name=p,metadata.namespace=ns", true),
        ("metadata.name=p,metadata.name=q", false),
        ("spec.nodeName=n1", true),
        ("spec.host=n1", true),
        ("spec.nodeName==n2", false),
        ("spec.nodeName!=n2,status.phase=Running", true),
        ("spec.hostNetwork=false", true),
        ("status.podIPs=", true),
        ("status.podIPs=10.0.0.1", false),
        ("status.phase!=Running,spec.nodeName=n1", false),
    ];
    for (text, expected) in rows {
        let selector = FieldSelector::parse(text, &pods()).unwrap();
        assert_eq!(
            selector.matches(b"p", b"ns", |number| values
                .get(number)
                .map_or(b"", |value| value.as_bytes())),
            expected,
            "{text}"
        );
    }
}

#[test]
fn a_missing_value_counts_as_empty_and_a_cluster_scoped_object_has_no_namespace() {
    let empty = FieldSelector::parse("spec.nodeName=", &pods()).unwrap();
    assert!(empty.matches(b"p", b"ns", |_| b""));
    let namespace = FieldSelector::parse("metadata.namespace=ns", &SelectableFields::default());
    assert!(!namespace.unwrap().matches(b"p", b"", |_| b""));
    let none = FieldSelector::parse("metadata.namespace=", &SelectableFields::default());
    assert!(none.unwrap().matches(b"p", b"", |_| b""));
}

#[test]
fn requirements_are_returned() {
    let parse = |text| FieldSelector::parse(text, &pods()).unwrap();
    assert!(parse(",").is_empty());
    assert!(FieldSelector::default().is_empty());
    assert!(!parse("metadata.name=").is_empty());

    let selector = parse("status.phase=Running,metadata.name=b,metadata.name=a,spec.host=n");
    assert_eq!(selector.required_name(), Some("a"));
    assert_eq!(selector.required_namespace(), None);
    assert!(selector.required_values().eq([(0, "n"), (5, "Running")]));

    let selector = parse("metadata.name!=a,metadata.namespace==ns,spec.nodeName!=n");
    assert_eq!(selector.required_name(), None);
    assert_eq!(selector.required_namespace(), Some("ns"));
    assert_eq!(selector.required_values().next(), None);
}

proptest! {
    #[test]
    fn any_text_is_read_without_panic(text in "[-a-z.,=!\\\\ é]{0,32}") {
        if let Some(selector) = FieldSelector::parse(&text, &pods()) {
            let _matches = selector.matches(b"a", b"b", |_| b"");
        }
    }

    #[test]
    fn an_escaped_value_is_unescaped(value in any::<String>()) {
        let escaped = value.replace('\\', r"\\").replace(',', r"\,").replace('=', r"\=");
        let text = format!("metadata.name={escaped}");
        let selector = FieldSelector::parse(&text, &pods()).unwrap();
        prop_assert_eq!(selector.required_name(), Some(value.as_str()));
    }
}
