//! Whether the API servers know shard selectors (KEP-5866): an alpha feature, which those without
//! it ignore without a word. So a list by a selector is asked for, whose metadata shows it
//! (`docs/semantics.md` §7.4).
//!
//! Only a list of a built-in resource shows it, and every cluster has several namespaces. Their
//! page also shows whether the remaining objects are counted, which releases do differently.

use futures_util::FutureExt;
use serde::Deserialize;

use crate::upstream::Upstream;
use crate::upstream::bounded::read_body;
use crate::upstream::error::UpstreamError;
use crate::upstream::fetch::Get;
use crate::upstream::one_server::OneServer;
use crate::upstream::version::ask_each;

/// How API servers answer reads by shard selectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShardSupport {
    /// Whether a page by a shard selector alone has `remainingItemCount`.
    pub(crate) counts_remaining: bool,
}

/// Asks every API server that requests go to, each over a new connection. `None` if one of them
/// ignores shard selectors, or if they answer them differently.
pub(crate) async fn ask(upstream: &Upstream) -> Result<Option<ShardSupport>, UpstreamError> {
    let mut supports = Vec::new();
    for (_, answer) in ask_each(upstream, |server| support_of(server).boxed()).await? {
        supports.push(answer?);
    }
    let first = supports.first().copied().flatten();
    Ok(first.filter(|_| supports.iter().all(|support| *support == first)))
}

async fn support_of(server: &mut OneServer) -> Result<Option<ShardSupport>, UpstreamError> {
    let answer = Get::json(ONE_NAMESPACE).send_to(server).await?;
    let body = read_body(answer.into_body(), PAGE_BYTES_MAX).await?;
    parse(&body).ok_or_else(|| UpstreamError::Malformed("a page of namespaces".to_owned()))
}

/// Parses the page; `None` if it is malformed.
fn parse(body: &[u8]) -> Option<Option<ShardSupport>> {
    #[derive(Deserialize)]
    struct Page {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        r#continue: Option<String>,
        remaining_item_count: Option<i64>,
        shard_info: Option<serde::de::IgnoredAny>,
    }
    let Metadata { r#continue: token, remaining_item_count, shard_info } =
        serde_json::from_slice::<Page>(body).ok()?.metadata;
    // A page without a next one does not show whether that is counted.
    let is_known = shard_info.is_some() && token.is_some();
    let counts_remaining = remaining_item_count.is_some();
    Some(is_known.then_some(ShardSupport { counts_remaining }))
}

/// A page of one namespace, by a shard selector that matches every object.
const ONE_NAMESPACE: &str = "/api/v1/namespaces?limit=1&shardSelector=shardRange%28object.metadata.uid%2C%270x0000000000000000%27%2C%270x10000000000000000%27%29";
/// The largest page. A namespace has a few hundred bytes, but may have long annotations.
const PAGE_BYTES_MAX: usize = 2 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_page_that_shows_the_selector_and_has_a_next_one_proves_it() {
        let support = |metadata: &str| {
            parse(format!(r#"{{"metadata":{{"resourceVersion":"7"{metadata}}}}}"#).as_bytes())
        };
        let shown = r#","shardInfo":{"selector":"s"}"#;
        let both = format!(r#","continue":"x","remainingItemCount":3{shown}"#);
        assert_eq!(support(&both), Some(Some(ShardSupport { counts_remaining: true })));
        let uncounted = format!(r#","continue":"x"{shown}"#);
        assert_eq!(support(&uncounted), Some(Some(ShardSupport { counts_remaining: false })));
        for unknown in [shown, r#","continue":"x","remainingItemCount":3"#, ""] {
            assert_eq!(support(unknown), Some(None), "{unknown}");
        }
        assert_eq!(parse(b"<html>"), None);
    }
}
