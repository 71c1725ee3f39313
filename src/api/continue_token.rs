//! Continue tokens, encoded and decoded as the API server's watch cache does (`docs/semantics.md`
//! §3.4).
//!
//! A walk through pages may change between Weir and the API server at any page, so a token must
//! mean the same to both. Weir decodes only tokens in the form that it or the API server encodes. A
//! token whose text would change if it were encoded again (other spaces, other keys, another order,
//! padding) is forwarded, because the API server may read it differently or reject it. A key is
//! encoded with a leading slash (`docs/decisions/exact-lists-and-pages.md`).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;

use crate::json_string::push_string;
use crate::resource_version::ResourceVersion;

/// The start of the next page of a list, and the state that it shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContinueToken {
    /// The state that all pages show; `None` for a token that continues in the newest state (`-1`).
    pub at: Option<ResourceVersion>,
    /// The first key that the page may contain, relative to the list's root and without a leading
    /// slash.
    pub from: String,
}

impl ContinueToken {
    /// Encodes a token that continues after `last`, a key relative to the list's root (the root is
    /// the namespace in a list of one namespace). It has the leading slash that the watch cache's
    /// tokens have and etcd's lack.
    pub fn encode(at: ResourceVersion, last: &str) -> String {
        encode_payload(&at.to_string(), &format!("/{last}\0"))
    }

    /// Decodes a token of either form; `None` if only the API server knows what it means.
    pub fn decode(text: &str) -> Option<Self> {
        let json = URL_SAFE_NO_PAD.decode(text).ok()?;
        let Payload { v, rv, start } = serde_json::from_slice(&json).ok()?;
        if v != VERSION || encode_payload(&rv.to_string(), &start) != text {
            return None;
        }
        let at = match rv {
            0 => return None,
            rv if rv < 0 => None,
            rv => Some(ResourceVersion(u64::try_from(rv).ok()?)),
        };
        let from = start.strip_prefix('/').unwrap_or(&start);
        is_clean(from, &start).then(|| Self { at, from: from.to_owned() })
    }
}

#[derive(Deserialize)]
struct Payload {
    v: String,
    rv: i64,
    start: String,
}

const VERSION: &str = "meta.k8s.io/v1";

fn encode_payload(resource_version: &str, start: &str) -> String {
    let mut json = format!(r#"{{"v":"{VERSION}","rv":{resource_version},"start":"#).into_bytes();
    push_string(&mut json, start.as_bytes());
    json.push(b'}');
    URL_SAFE_NO_PAD.encode(json)
}

/// Whether Go's `path.Clean` would not change the key: the API server rejects keys that could leave
/// the list's root. A single slash is the root itself.
fn is_clean(from: &str, start: &str) -> bool {
    let plain = |segment: &str| !matches!(segment, "" | "." | "..");
    start == "/" || from.split('/').all(plain)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn raw(json: &str) -> String {
        URL_SAFE_NO_PAD.encode(json)
    }

    /// From kube-apiserver 1.36.2: page one of the namespaces, from its watch cache.
    const GOLDEN: &str = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MjU1LCJzdGFydCI6Ii9hMVx1MDAwMCJ9";

    #[test]
    fn tokens_are_the_upstreams_byte_for_byte() {
        assert_eq!(ContinueToken::encode(ResourceVersion(255), "a1"), GOLDEN);
        let decoded = ContinueToken { at: Some(ResourceVersion(255)), from: "a1\0".to_owned() };
        assert_eq!(ContinueToken::decode(GOLDEN), Some(decoded));
        let odd = raw(
            "{\"v\":\"meta.k8s.io/v1\",\"rv\":7,\"start\":\"/a/\\u003cb\\u0026\\\"\u{e9}\\u0000\"}",
        );
        assert_eq!(ContinueToken::encode(ResourceVersion(7), "a/<b&\"\u{e9}"), odd);
    }

    #[test]
    fn a_leading_slash_makes_no_difference() {
        for start in ["/ns1/cm-a\\u0000", "ns1/cm-a\\u0000"] {
            let text = raw(&format!(r#"{{"v":"meta.k8s.io/v1","rv":7,"start":"{start}"}}"#));
            let token = ContinueToken::decode(&text).unwrap();
            assert_eq!(token.at, Some(ResourceVersion(7)));
            assert_eq!(token.from, "ns1/cm-a\0");
        }
    }

    #[test]
    fn a_continue_token_may_name_any_key_or_the_latest_state() {
        let read = |rv: i64, start: &str| {
            let json = format!(r#"{{"v":"meta.k8s.io/v1","rv":{rv},"start":"{start}"}}"#);
            ContinueToken::decode(&raw(&json)).map(|token| (token.at, token.from))
        };
        assert_eq!(read(-1, "a\\u0000"), Some((None, "a\0".to_owned())));
        assert_eq!(read(7, "/"), Some((Some(ResourceVersion(7)), String::new())));
        assert_eq!(read(7, "a"), Some((Some(ResourceVersion(7)), "a".to_owned())));
        assert_eq!(read(7, "/a.b/..c"), Some((Some(ResourceVersion(7)), "a.b/..c".to_owned())));
        assert_eq!(read(0, "a"), None);
        for refused in ["", "//", "/a/", "a//b", "./a", "a/./b", "/../x", "..", ".", "a/.."] {
            assert_eq!(read(7, refused), None, "{refused:?}");
        }
    }

    #[test]
    fn a_token_in_another_form_is_left_to_the_upstream() {
        let good = r#"{"v":"meta.k8s.io/v1","rv":7,"start":"a"}"#;
        assert!(ContinueToken::decode(&raw(good)).is_some());
        assert_eq!(ContinueToken::decode(&format!("{}=", raw(good))), None);
        for json in [
            r#"{"v":"meta.k8s.io/v1","start":"a","rv":7}"#,
            r#"{"v":"meta.k8s.io/v1","rv":7,"start":"a","more":1}"#,
            r#"{"v":"meta.k8s.io/v1","rv":7,"rv":8,"start":"a"}"#,
            r#"{"V":"meta.k8s.io/v1","rv":7,"start":"a"}"#,
            r#"{"v":"meta.k8s.io/v1","rv":7.0,"start":"a"}"#,
            r#"{"v":"meta.k8s.io/v1","rv":"7","start":"a"}"#,
            r#"{"v":"meta.k8s.io/v1","rv":07,"start":"a"}"#,
            r#"{"v":"meta.k8s.io/v1","rv":9223372036854775808,"start":"a"}"#,
            r#"{"v":"meta.k8s.io/v1","rv":7,"start":"\u0061"}"#,
            r#"{"v":"meta.k8s.io/v1","rv":7,"start":"<"}"#,
            r#"{"v":"meta.k8s.io/v1","rv":7, "start":"a"}"#,
            r#"{"v":"meta.k8s.io/v2","rv":7,"start":"a"}"#,
            r#"{"v":"meta.k8s.io/v1","rv":7}"#,
            r#"["meta.k8s.io/v1",7,"a"]"#,
            "{}",
            "null",
            "",
        ] {
            assert_eq!(ContinueToken::decode(&raw(json)), None, "{json}");
        }
        for text in ["", "abc", "%%%", "a=b", "\u{e9}", "ey J"] {
            assert_eq!(ContinueToken::decode(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn an_encoded_token_decodes_to_the_same(rv in 1..=i64::MAX as u64, last in "[^/]{1,9}(/[^/]{1,9})?") {
            prop_assume!(!last.split('/').any(|segment| matches!(segment, "." | "..")));
            let token = ContinueToken::decode(&ContinueToken::encode(ResourceVersion(rv), &last));
            let expected = ContinueToken { at: Some(ResourceVersion(rv)), from: format!("{last}\0") };
            prop_assert_eq!(token, Some(expected));
        }

        #[test]
        fn any_text_is_read_without_panic(text in any::<String>(), bytes in any::<Vec<u8>>()) {
            let _one = ContinueToken::decode(&text);
            let _other = ContinueToken::decode(&URL_SAFE_NO_PAD.encode(bytes));
        }
    }
}
