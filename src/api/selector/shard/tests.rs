//! Tests of the grammar, the canonical form and the hashes.

use proptest::prelude::*;

use super::*;

fn parsed(text: &str) -> Option<String> {
    ShardSelector::parse(text).map(|selector| selector.to_string())
}

/// The cases of `pkg/sharding/parser_test.go` in kube-apiserver, and what 1.36.2 answered.
#[test]
fn the_plain_form_is_parsed_and_written_as_the_api_server_writes_it() {
    let half = "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')";
    let rest = "shardRange(object.metadata.uid, '0x8000000000000000', '0x10000000000000000')";
    let in_namespaces =
        "shardRange(object.metadata.namespace, '0x00000000000000aa', '0x00000000000000ff')";
    let both = format!("{half} || {rest}");
    for text in [half, rest, in_namespaces, &both] {
        assert_eq!(parsed(text).as_deref(), Some(text));
    }
    for text in [
        "shardRange(object.metadata.uid,'0x0000000000000000','0x8000000000000000')",
        "  shardRange( object.metadata.uid ,  '0x0000000000000000' ,  '0x8000000000000000' )  ",
        "shardRange\t(\nobject .\rmetadata\u{c}.uid ,\"0x0000000000000000\",'0x8000000000000000')\n",
    ] {
        assert_eq!(parsed(text).as_deref(), Some(half));
    }
    assert_eq!(parsed(&both.replace(' ', "")).as_deref(), Some(&*both));
}

/// The API server refuses the first ones, and reads the last ones in its own way.
#[test]
fn any_other_form_is_left_to_the_api_server() {
    let range = |field: &str, start: &str, end: &str| {
        format!("shardRange(object.metadata.{field}, '{start}', '{end}')")
    };
    let (zero, half, all) = ("0x0000000000000000", "0x8000000000000000", HASHES);
    let valid = range("uid", zero, half);
    for text in [
        String::new(),
        " ".to_owned(),
        range("uid", "0000000000000000", half),
        range("uid", zero, "8000000000000000"),
        range("uid", "0x", half),
        range("uid", "0x0", half),
        range("uid", zero, "0xff"),
        range("uid", zero, "0x000000000000000000"),
        range("uid", zero, "0x00000000000000fF"),
        range("uid", zero, "0x+000000000000000f"),
        range("uid", zero, "0x20000000000000000"),
        range("uid", all, all),
        range("uid", half, half),
        range("uid", "0xffffffffffffffff", zero),
        range("name", zero, half),
        range("uids", zero, half),
        valid.replace("shardRange", "shardRanges"),
        valid.replace("shardRange", "hash"),
        valid.replace(')', ",)"),
        valid.replace('\'', ""),
        valid.replacen('\'', "\"", 1),
        format!("{valid} && {valid}"),
        format!("{valid} ||"),
        format!("{valid}{valid}"),
        format!("{valid} || {}", range("namespace", half, all)),
        format!("({valid})"),
        format!("{valid} // a comment"),
        format!("x.{valid}"),
        valid.replacen('\'', "r'", 1),
        format!("\u{b}{valid}"),
        format!("{}{valid}", " ".repeat(TEXT_BYTES_MAX)),
    ] {
        assert_eq!(parsed(&text), None, "{text}");
    }
}

#[test]
fn hashes_are_those_of_go() {
    for (value, expected) in [
        ("", 0xcbf2_9ce4_8422_2325),
        ("a", 0xaf63_dc4c_8601_ec8c),
        ("abc", 0xe71f_a219_0541_574b),
        ("foobar", 0x8594_4171_f739_67e8),
    ] {
        assert_eq!(hash(value.as_bytes()), expected, "{value}");
    }
}

proptest! {
    #[test]
    fn a_hash_is_in_one_of_the_parts(cut in 1..u64::MAX, hash in any::<u64>()) {
        let range = |start: &str, end: &str| {
            ShardSelector::parse(&format!("shardRange(object.metadata.uid,'{start}','{end}')"))
        };
        let middle = format!("0x{cut:016x}");
        let below = range("0x0000000000000000", &middle).unwrap();
        let above = range(&middle, HASHES).unwrap();
        prop_assert_eq!(below.matches(hash), hash < cut);
        prop_assert_eq!(above.matches(hash), hash >= cut);
    }

    #[test]
    fn no_text_is_read_as_another(text in "[ ().,'\"|0-9a-fxshrdRngeobjctmui]{0,40}|\\PC{0,20}") {
        if let Some(selector) = ShardSelector::parse(&text) {
            prop_assert_eq!(ShardSelector::parse(&selector.to_string()), Some(selector));
        }
    }
}
