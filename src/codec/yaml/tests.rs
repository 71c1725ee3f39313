//! Statuses in YAML: texts of real answers, and the styles of yaml.v2 for odd ones.

use http::StatusCode;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::api::status::StatusDetails;

fn status(message: &str) -> Status {
    Status {
        code: StatusCode::FORBIDDEN,
        reason: "Forbidden",
        message: message.to_owned(),
        details: None,
        retry_after_seconds: None,
    }
}

fn text(status: &Status) -> String {
    String::from_utf8(encode_status(status).to_vec()).unwrap()
}

/// Returns the lines of a message.
fn message(text_of: &str) -> String {
    let yaml = text(&status(text_of));
    let from = yaml.split_once("kind: Status\n").unwrap().1;
    from.split_once("\nmetadata:").unwrap().0.to_owned()
}

#[test]
fn a_401_is_the_upstreams_byte_for_byte() {
    let status = Status {
        code: StatusCode::UNAUTHORIZED,
        reason: "Unauthorized",
        message: "Unauthorized".to_owned(),
        details: None,
        retry_after_seconds: None,
    };
    assert_eq!(
        text(&status),
        "apiVersion: v1\ncode: 401\nkind: Status\nmessage: Unauthorized\nmetadata: {}\nreason: Unauthorized\nstatus: Failure\n"
    );
}

#[test]
fn a_403_is_quoted_and_folded() {
    let status = Status {
        details: Some(Box::new(StatusDetails {
            name: "123".to_owned(),
            group: String::new(),
            kind: "pods".to_owned(),
        })),
        retry_after_seconds: Some(1),
        ..status(
            r#"pods "123" is forbidden: User "alice" cannot get resource "pods" in API group "" in the namespace "it's""#,
        )
    };
    assert_eq!(
        text(&status),
        r#"apiVersion: v1
code: 403
details:
  kind: pods
  name: "123"
  retryAfterSeconds: 1
kind: Status
message: 'pods "123" is forbidden: User "alice" cannot get resource "pods" in API
  group "" in the namespace "it''s"'
metadata: {}
reason: Forbidden
status: Failure
"#
    );
    let none = Status { details: Some(Box::default()), retry_after_seconds: None, ..status };
    assert!(text(&none).contains("\ndetails: {}\n"), "{}", text(&none));
}

#[test]
fn a_text_gets_the_style_of_yaml_v2() {
    for (given, expected) in [
        ("storage is (re)initializing", "storage is (re)initializing"),
        ("a: b", "'a: b'"),
        ("a:b", "a:b"),
        ("a:", "'a:'"),
        ("a #b", "'a #b'"),
        ("a#b", "a#b"),
        ("-", "'-'"),
        ("-a", "-a"),
        ("---", "'---'"),
        ("?a", "?a"),
        ("*", "'*'"),
        ("\"a\"", "'\"a\"'"),
        ("it's", "it's"),
        (" a", "' a'"),
        ("a ", "'a '"),
        ("true", "\"true\""),
        ("Yes", "\"Yes\""),
        ("null", "\"null\""),
        ("truly", "truly"),
        ("12", "\"12\""),
        ("1_000", "\"1_000\""),
        ("0x1f", "\"0x1f\""),
        ("08", "\"08\""),
        ("1.5e3", "\"1.5e3\""),
        ("1.5.3", "1.5.3"),
        (".5", "\".5\""),
        ("12ab", "12ab"),
        ("1:30", "\"1:30\""),
        ("10.0.0.1", "10.0.0.1"),
        ("2026-01-31", "\"2026-01-31\""),
        ("2026-02-31", "2026-02-31"),
        ("\t", "\"\\t\""),
        ("a\u{1}b\"\\", "\"a\\x01b\\\"\\\\\""),
        ("\u{feff}", "\"\\uFEFF\""),
        ("\u{1f600}", "\"\\U0001F600\""),
        ("\u{fc}", "\u{fc}"),
        ("a\nb", "|-\n  a\n  b"),
        ("a\n\nb\n", "|\n  a\n\n  b"),
        ("a \nb", "\"a \\nb\""),
    ] {
        assert_eq!(message(given), format!("message: {expected}"), "{given:?}");
    }
}

#[test]
fn long_texts_are_folded_at_single_spaces() {
    let words = "seventy-one-bytes-in-one-word-of-which-there-is-no-end-until-here-it-is ";
    let long = format!("{words}b c d");
    assert_eq!(message(&long), format!("message: {words}b\n  c d"));
    let double = format!("{words}b  c d");
    assert_eq!(message(&double), format!("message: {words}b  c\n  d"));
}

proptest! {
    /// Whatever the text, a YAML parser reads the same Status back.
    #[test]
    fn any_message_reads_back(given in "[ -~\u{e4}\n\t:#'\"]{1,120}|[0-9.eExX_+:-]{1,9}") {
        let parsed: Value = serde_saphyr::from_str(&text(&status(&given))).unwrap();
        prop_assert_eq!(&parsed["message"], &json!(given));
        prop_assert_eq!(&parsed["code"], &json!(403));
        prop_assert_eq!(&parsed["metadata"], &json!({}));
    }
}
