//! The options of a list or watch, decoded as kube-apiserver decodes them (`docs/semantics.md`
//! §1.2).

use crate::query::Query;

/// `metav1.ListOptions`. Strings are as given. Unless a field is an `Option`, an empty string means
/// absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListOptions {
    /// The label selector's text.
    pub label_selector: String,
    /// The field selector's text.
    pub field_selector: String,
    /// Whether the request is a watch.
    pub watch: bool,
    /// Whether to send bookmarks.
    pub allow_watch_bookmarks: bool,
    /// The resourceVersion's text; empty when unset.
    pub resource_version: String,
    /// `""`, `Exact`, `NotOlderThan`, or another text.
    pub resource_version_match: String,
    /// The time-out in seconds; `None` when absent.
    pub timeout_seconds: Option<i64>,
    /// The page size; 0 when absent; a negative value means no limit.
    pub limit: i64,
    /// The continue token; empty when absent.
    pub continue_token: String,
    /// Whether a watch begins with the current state; `None` when absent, before the default of
    /// `docs/semantics.md` §1.4 applies.
    pub send_initial_events: Option<bool>,
    /// The shard selector's text.
    pub shard_selector: String,
}

impl ListOptions {
    /// Decodes the options; `None` if the API server would respond 400: forward the request.
    /// Selectors stay text; [`crate::selector`] parses them.
    pub fn decode(query: &Query) -> Option<Self> {
        let text = |name| query.first(name).unwrap_or_default().to_owned();
        let flag = |name| decode_bool(query.first(name));
        Some(Self {
            label_selector: text("labelSelector"),
            field_selector: text("fieldSelector"),
            watch: flag("watch"),
            allow_watch_bookmarks: flag("allowWatchBookmarks"),
            resource_version: text("resourceVersion"),
            resource_version_match: text("resourceVersionMatch"),
            timeout_seconds: decode_int64(query.first("timeoutSeconds"))?,
            limit: decode_int64(query.first("limit"))?.unwrap_or(0),
            continue_token: text("continue"),
            send_initial_events: query
                .first("sendInitialEvents")
                .map(|value| decode_bool(Some(value))),
            shard_selector: text("shardSelector"),
        })
    }
}

/// Decodes a boolean parameter: false if it is absent, `0` or `false` in any case; otherwise true,
/// also if it is empty (`docs/semantics.md` §1.2).
pub fn decode_bool(value: Option<&str>) -> bool {
    value.is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
}

/// Decodes a numeric parameter; `None` if it is present and not accepted by Go's `ParseInt(…, 10,
/// 64)`. Rust accepts the same: a sign of either kind and digits, and not the empty string.
fn decode_int64(value: Option<&str>) -> Option<Option<i64>> {
    match value {
        None => Some(None),
        Some(text) => text.parse().ok().map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(raw: &str) -> Option<ListOptions> {
        ListOptions::decode(&Query::parse(raw))
    }

    #[test]
    fn every_list_option_is_parsed() {
        let raw = "labelSelector=a%3Db&fieldSelector=metadata.name%3Dx&watch=1&allowWatchBookmarks=true\
                   &resourceVersion=7&resourceVersionMatch=NotOlderThan&timeoutSeconds=30&limit=500\
                   &continue=abc&sendInitialEvents=false&shardSelector=x&unknown=1";
        let expected = ListOptions {
            label_selector: "a=b".to_owned(),
            field_selector: "metadata.name=x".to_owned(),
            watch: true,
            allow_watch_bookmarks: true,
            resource_version: "7".to_owned(),
            resource_version_match: "NotOlderThan".to_owned(),
            timeout_seconds: Some(30),
            limit: 500,
            continue_token: "abc".to_owned(),
            send_initial_events: Some(false),
            shard_selector: "x".to_owned(),
        };
        assert_eq!(decode(raw), Some(expected));
        assert_eq!(decode(""), Some(ListOptions::default()));
    }

    #[test]
    fn booleans_are_read_as_go_does() {
        let rows = [
            (None, false),
            (Some("0"), false),
            (Some("false"), false),
            (Some("FaLsE"), false),
            (Some(""), true),
            (Some("1"), true),
            (Some("true"), true),
            (Some("no"), true),
            (Some("00"), true),
            (Some(" false"), true),
        ];
        for (value, expected) in rows {
            assert_eq!(decode_bool(value), expected, "{value:?}");
        }
        assert_eq!(decode("sendInitialEvents=").unwrap().send_initial_events, Some(true));
        assert_eq!(decode("watch").map(|options| options.watch), Some(true));
    }

    #[test]
    fn numbers_are_read_as_go_does() {
        let rows = [
            ("limit=5", Some(5)),
            ("limit=%2B5", Some(5)),
            ("limit=-5", Some(-5)),
            ("limit=007", Some(7)),
            ("limit=9223372036854775807", Some(i64::MAX)),
            ("limit=5&limit=x", Some(5)),
            ("limit=1;x=y", Some(0)),
            ("limit=%zz", Some(0)),
            ("limit=", None),
            ("limit", None),
            ("limit=x", None),
            ("limit=1_000", None),
            ("limit=0x10", None),
            ("limit=1.5", None),
            ("limit=+5", None),
            ("limit=9223372036854775808", None),
        ];
        for (raw, expected) in rows {
            assert_eq!(decode(raw).map(|options| options.limit), expected, "{raw}");
        }
        assert_eq!(decode("timeoutSeconds="), None);
        assert_eq!(decode("timeoutSeconds=0").unwrap().timeout_seconds, Some(0));
        assert_eq!(decode("timeoutSeconds=-1").unwrap().timeout_seconds, Some(-1));
    }
}
