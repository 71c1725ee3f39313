//! Tests of parsing and matching label selectors.

use proptest::prelude::*;

use super::*;

fn lookup<'a>(labels: &'a [(Box<str>, Box<str>)]) -> impl Fn(&str) -> Option<&'a [u8]> {
    |wanted| labels.iter().find(|(key, _)| **key == *wanted).map(|(_, value)| value.as_bytes())
}

fn labels(pairs: &[(&str, &str)]) -> Vec<(Box<str>, Box<str>)> {
    let mut labels: Vec<_> =
        pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
    labels.sort();
    labels
}

#[test]
fn selectors_match_as_upstream() {
    let object = labels(&[
        ("app", "web"),
        ("empty", ""),
        ("example.com/tier", "front"),
        ("in", "in"),
        ("n", "5"),
        ("word", "x5"),
    ]);
    let rows = [
        ("", true),
        (" \t\r\n", true),
        ("app", true),
        ("!app", false),
        ("! app", false),
        ("other", false),
        ("!other", true),
        ("app=web", true),
        ("app==web", true),
        (" app = web ", true),
        ("app=api", false),
        ("app!=web", false),
        ("app!=api", true),
        ("other=web", false),
        ("other!=web", true),
        ("app=", false),
        ("app==", false),
        ("app!=", true),
        ("empty=", true),
        ("empty!=", false),
        ("other=", false),
        ("empty=,app=web", true),
        ("app in (web)", true),
        ("app in (api,web)", true),
        ("app in ( api , web )", true),
        ("app in(web)", true),
        ("app in (api)", false),
        ("other in (web)", false),
        ("app notin (web)", false),
        ("app notin (api)", true),
        ("other notin (web)", true),
        ("empty in ()", true),
        ("app in ()", false),
        ("app notin ()", true),
        ("empty in (,)", true),
        ("empty in (,b)", true),
        ("empty in (b,)", true),
        ("empty in (b,,c)", true),
        ("empty in (,,,)", true),
        ("empty in (b,c)", false),
        ("in in (in)", true),
        ("in", true),
        ("in=in", true),
        ("in in (notin,in)", true),
        ("!in", false),
        ("!notin", true),
        ("notin,app", false),
        ("n>4", true),
        ("n > 5", false),
        ("n<6", true),
        ("n<5", false),
        ("n>0004", true),
        ("word>4", false),
        ("empty<4", false),
        ("other>4", false),
        ("app=web,n=5,!other", true),
        ("app=web,n=6", false),
        ("app=web,app=api", false),
        ("example.com/tier=front", true),
        ("example.com/tier", true),
        ("tier", false),
    ];
    for (text, expected) in rows {
        let selector = LabelSelector::parse(text).unwrap_or_else(|| panic!("{text} is refused"));
        assert_eq!(selector.matches(lookup(&object)), expected, "{text}");
    }
}

#[test]
fn a_selector_that_the_upstream_rejects_is_none() {
    let long = "a".repeat(64);
    let long_prefix = format!("{}/x", "a.".repeat(127));
    for text in [
        "a=b=c",
        "!a=b",
        "a=b c",
        "a,,b",
        "a,",
        ",a",
        "(a)",
        "=",
        "a in (b",
        "x in (",
        "a in b",
        "a=!b",
        "!",
        "a b",
        "a gt 5",
        "a>b",
        "-a=b",
        "/x=y",
        "a/b/c=d",
        "A_b/c=d",
        "a=-b",
        "a in",
        "a in (b c)",
        "a in (b=c)",
        "a in (b,,)",
        "a in (,,)",
        "a in ((b))",
        "a in (!b)",
        "a===b",
        "a!==b",
        "a=(b)",
        "a>",
        "a<",
        "a>1.5",
        "a>-5",
        "a>9223372036854775808",
        "a>=5",
        "a in (b)c",
        "!!a",
        "a!",
        "a!b",
        ")",
        ">5",
        "in (a)",
        "a/=b",
        "a./b=c",
        "-a/b=c",
        "a..b/c",
        "a_=b",
        "é",
        "a=é",
        "a\0",
        "a=b\0,c=d",
        "a in (b) in (c)",
        "a=b;c=d",
        "a in (-b)",
        "a,b,",
        " , ",
        "a\u{a0}=b",
        &long,
        &format!("x={long}"),
        &format!("x/{long}=y"),
        &long_prefix,
    ] {
        assert_eq!(LabelSelector::parse(text), None, "{text:?}");
    }
}

#[test]
fn the_longest_names_are_accepted() {
    let name = "a".repeat(63);
    let prefix = format!("{}a", "a.".repeat(126));
    assert_eq!(prefix.len(), 253);
    let selector = LabelSelector::parse(&format!("{prefix}/{name}={name}")).unwrap();
    assert!(selector.matches(lookup(&labels(&[(&format!("{prefix}/{name}"), &name)]))));
}

#[test]
fn only_the_empty_selector_is_empty() {
    assert!(LabelSelector::default().is_empty());
    assert!(LabelSelector::parse("  ").unwrap().is_empty());
    assert!(!LabelSelector::parse("!a").unwrap().is_empty());
    assert_eq!(LabelSelector::parse("a=b"), LabelSelector::parse(" a == b"));
    assert_eq!(LabelSelector::parse("a in (c,b,c)"), LabelSelector::parse("a in (b,c)"));
}

proptest! {
    #[test]
    fn any_text_is_read_without_panic(text in "[-a-c,=!<>() \t/.0-9é\0]{0,24}|\\PC{0,24}") {
        if let Some(selector) = LabelSelector::parse(&text) {
            let _matches = selector.matches(lookup(&labels(&[("a", "b")])));
        }
    }

    #[test]
    fn a_set_and_its_complement_split_the_objects(
        values in proptest::collection::vec("[a-c]{0,1}", 1..4),
        value in proptest::option::of("[a-c]{0,1}"),
    ) {
        // A list that ends with a gap has another spelling, so gaps go to the front.
        let mut values = values;
        values.sort();
        values.dedup();
        let set = values.join(",");
        let inside = LabelSelector::parse(&format!("k in ({set})")).unwrap();
        let outside = LabelSelector::parse(&format!("k notin ({set})")).unwrap();
        let object = value.as_deref().map(|value| labels(&[("k", value)])).unwrap_or_default();
        let expected = value.is_some_and(|value| values.contains(&value));
        prop_assert_eq!(inside.matches(lookup(&object)), expected);
        prop_assert_eq!(outside.matches(lookup(&object)), !expected);
    }
}
