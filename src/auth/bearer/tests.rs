//! Tokens are read as by kube-apiserver.

use http::{HeaderName, HeaderValue};
use proptest::prelude::*;

use super::*;
use crate::auth::user::random_key;

fn headers(lines: &[(&'static str, &[u8])]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        let value = HeaderValue::from_bytes(value).unwrap();
        headers.append(HeaderName::from_static(name), value);
    }
    headers
}

fn read_from(headers: &HeaderMap) -> Bearer {
    BearerToken::from_headers(headers, &TokenMemo::default())
}

fn token(token: &str) -> Bearer {
    Bearer::Token(token.to_owned().into())
}

fn authorization(values: &[&[u8]]) -> Bearer {
    let lines: Vec<_> = values.iter().map(|&value| ("authorization", value)).collect();
    read_from(&headers(&lines))
}

/// The expected results are those of kube-apiserver v1.36: an anonymous response (no token), or
/// status 200 or 401 (a token).
#[test]
fn authorization_is_read_as_the_api_server_reads_it() {
    for value in [
        "Bearer abc",
        "bearer abc",
        "bEaReR abc",
        "   Bearer abc   ",
        "Bearer abc more",
        "Bearer abc more words here",
        "\u{a0}Bearer abc",
        "\u{2003}Bearer abc \u{85}",
    ] {
        assert_eq!(authorization(&[value.as_bytes()]), token("abc"), "{value:?}");
    }
    for value in ["", " ", "Bearer", "Bearer   ", "Bearer\tabc", "Basic abc", "Token abc", "abc"] {
        assert_eq!(authorization(&[value.as_bytes()]), Bearer::None, "{value:?}");
    }
    assert_eq!(authorization(&[b"Bearer abc\tx"]), token("abc\tx"));
    assert_eq!(authorization(&[b"Bearer abc,"]), token("abc,"));
    // The first header counts.
    assert_eq!(authorization(&[b"Basic x", b"Bearer abc"]), Bearer::None);
    assert_eq!(authorization(&[b"", b"Bearer abc"]), Bearer::None);
    assert_eq!(authorization(&[b"Bearer abc", b"Bearer other"]), token("abc"));
    assert_eq!(authorization(&[]), Bearer::None);
    assert_eq!(authorization(&[b"Basic \xff"]), Bearer::None);
}

#[test]
fn ambiguous_headers_are_left_to_the_upstream() {
    // Upstream adds a Warning; the value is not UTF-8; a review would cut off the end.
    for value in
        [&b"Bearer  abc"[..], b"Bearer abc\xa0", b"Bearer \xff\xfe", b"Bearer abc\xc2\xa0 x"]
    {
        assert_eq!(authorization(&[value]), Bearer::Ambiguous, "{value:?}");
    }
    assert_eq!(
        protocols(&["base64url.bearer.authorization.k8s.io.YSBi, other"]),
        Bearer::Ambiguous
    );
}

fn websocket(protocols: &[&str], more: &[(&'static str, &[u8])]) -> HeaderMap {
    let mut lines = more.to_vec();
    lines.extend(protocols.iter().map(|value| ("sec-websocket-protocol", value.as_bytes())));
    headers(&lines)
}

const UPGRADE_REQUESTED: [(&str, &[u8]); 2] =
    [("upgrade", b"websocket"), ("connection", b"Upgrade")];

fn protocols(protocols: &[&str]) -> Bearer {
    read_from(&websocket(protocols, &UPGRADE_REQUESTED))
}

/// The token `abc` as a sub-protocol.
const ABC: &str = "base64url.bearer.authorization.k8s.io.YWJj";

/// The expected results are those of kube-apiserver v1.36.
#[test]
fn the_token_of_a_websocket_is_a_sub_protocol() {
    for given in [
        vec![format!("{ABC}, other")],
        vec![format!("other, {ABC}")],
        vec![format!("other,{ABC}")],
        vec!["other".to_owned(), ABC.to_owned()],
        vec![format!("{ABC}, ,")],
    ] {
        let given: Vec<&str> = given.iter().map(String::as_str).collect();
        assert_eq!(protocols(&given), token("abc"), "{given:?}");
    }
    for given in [
        ABC.to_owned(),
        format!("{ABC}, {ABC}, other"),
        format!("{PROTOCOL_TOKEN_PREFIX}, {ABC}, other"),
        format!("{PROTOCOL_TOKEN_PREFIX}YWI=, other"),
        format!("{PROTOCOL_TOKEN_PREFIX}__4, other"),
        format!("{PROTOCOL_TOKEN_PREFIX}!!!, other"),
    ] {
        assert_eq!(protocols(&[&given]), Bearer::Malformed, "{given}");
    }
    for given in [
        "other".to_owned(),
        PROTOCOL_TOKEN_PREFIX.to_owned(),
        format!("{PROTOCOL_TOKEN_PREFIX}, other"),
        format!("{}YWJj, other", PROTOCOL_TOKEN_PREFIX.to_uppercase()),
    ] {
        assert_eq!(protocols(&[&given]), Bearer::None, "{given}");
    }
    // Go ignores the trailing bits of the last letter.
    assert_eq!(protocols(&[&format!("{PROTOCOL_TOKEN_PREFIX}YWJjYR, other")]), token("abca"));
}

#[test]
fn sub_protocols_are_read_only_for_a_websocket() {
    let given = format!("{ABC}, other");
    let read = |more: &[(&'static str, &'static str)]| {
        let more: Vec<_> = more.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
        read_from(&websocket(&[&given], &more))
    };
    for more in [
        &[] as &[(&str, &str)],
        &[("upgrade", "websocket")],
        &[("connection", "upgrade")],
        &[("upgrade", "foo, websocket"), ("connection", "upgrade")],
        &[("upgrade", "foo"), ("upgrade", "websocket"), ("connection", "upgrade")],
        &[("upgrade", "xwebsocketx"), ("connection", "upgrade")],
        &[("upgrade", "websocket"), ("connection", "keep-alive")],
    ] {
        assert_eq!(read(more), Bearer::None, "{more:?}");
    }
    for more in [
        &[("upgrade", "WebSocket"), ("connection", "keep-alive, upgrade")] as &[(&str, &str)],
        &[("upgrade", "websocket"), ("connection", "keep-alive"), ("connection", "UPGRADE")],
        &[("upgrade", "websocket"), ("connection", "xupgradex")],
        &[("upgrade", "web\u{17f}oc\u{212a}et"), ("connection", "upgrade")],
    ] {
        assert_eq!(read(more), token("abc"), "{more:?}");
    }
}

#[test]
fn two_tokens_are_ambiguous() {
    let both = |authorization: &'static [u8]| {
        let mut more = UPGRADE_REQUESTED.to_vec();
        more.push(("authorization", authorization));
        read_from(&websocket(&[&format!("{ABC}, other")], &more))
    };
    assert_eq!(both(b"Bearer abc"), Bearer::Ambiguous);
    assert_eq!(both(b"Bearer  x"), Bearer::Ambiguous);
    assert_eq!(both(b"Basic x"), token("abc"));
}

#[test]
fn debug_shows_no_token() {
    let printed = format!("{:?}", authorization(&[b"Bearer very-secret"]));
    assert!(!printed.contains("secret"), "{printed}");
}

proptest! {
    /// Compares with Go's rules, applied to the bytes.
    #[test]
    fn any_authorization_is_read_as_in_go(value in "[Bb]?[ \tBbEeaARrx\u{a0}é]{0,4}(bearer|Bearer|basic)?[ \t]{0,3}[a-c. \t\u{a0}]{0,6}") {
        prop_assume!(!value.chars().any(|c| c.is_control() && c != '\t'));
        let parts: Vec<&str> = value.trim().splitn(3, ' ').collect();
        let bearer = parts.len() >= 2 && parts[0].to_lowercase() == "bearer";
        let read = authorization(&[value.as_bytes()]);
        match read {
            Bearer::Token(token) => {
                prop_assert!(bearer && token.as_str() == parts[1] && token.as_bytes() == parts[1].as_bytes() && token.clone() == token && !token.as_str().is_empty());
                // A connection that remembers the token reads it as the same one.
                let (memo, key) = (TokenMemo::default(), TokenKey::new(&random_key(), token.as_bytes()));
                for _ in 0..2 {
                    memo.accept(key, token.as_bytes());
                }
                let usual = format!("Bearer {}", token.as_str());
                for value in [&*usual, &value] {
                    let given = headers(&[("authorization", value.as_bytes())]);
                    let Bearer::Token(again) = BearerToken::from_headers(&given, &memo) else { panic!("{value}") };
                    prop_assert_eq!(matches!(again.0, Text::Header(_, _, Some(_))), value == usual);
                    prop_assert_eq!(again, token.clone());
                    prop_assert_eq!(read_from(&given), Bearer::Token(token.clone()));
                }
            }
            Bearer::None => prop_assert!(!bearer),
            Bearer::Ambiguous => prop_assert!(bearer && (parts[1].is_empty() || parts[1] != parts[1].trim_end())),
            Bearer::Malformed => prop_assert!(false),
        }
    }

    #[test]
    fn any_bytes_are_accepted_without_a_panic(one in proptest::collection::vec(any::<u8>(), 0..80), two in proptest::collection::vec(any::<u8>(), 0..80)) {
        let mut given = headers(&UPGRADE_REQUESTED);
        for (name, bytes) in [(AUTHORIZATION, one), (SEC_WEBSOCKET_PROTOCOL, two)] {
            if let Ok(value) = HeaderValue::from_bytes(&bytes) {
                given.append(name, value);
            }
        }
        if let Bearer::Token(token) = read_from(&given) {
            let token = token.as_str();
            prop_assert!(!token.is_empty() && !token.contains(' '));
        }
    }

    #[test]
    fn an_encoded_token_is_decoded(given in "[!-~]{1,40}") {
        let protocol = format!("other, {PROTOCOL_TOKEN_PREFIX}{}", RAW_URL.encode(&given));
        // Padding would be refused.
        let read = protocols(&[protocol.trim_end_matches('=')]);
        prop_assert_eq!(read, token(&given));
    }
}
