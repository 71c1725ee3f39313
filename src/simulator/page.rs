//! Pages of lists and their continue tokens (`docs/semantics.md` §3.2 to §3.5).

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::encode;
use super::json::text;
use super::object::Object;
use super::selector::Selector;
use super::status::ApiError;

/// A page of a list.
pub(super) struct Page {
    /// The objects, in key order.
    pub(super) objects: Vec<Arc<Object>>,
    /// The resourceVersion of the list.
    pub(super) revision: u64,
    /// The token of the next page.
    pub(super) continue_token: Option<String>,
    /// The number of objects that follow.
    pub(super) remaining: Option<usize>,
    /// The shard selector.
    pub(super) shard: Option<String>,
}

pub(super) struct PageRange<'a> {
    /// The limit on its objects.
    pub(super) limit: Option<usize>,
    /// The key of its start, relative to the list's root.
    pub(super) start: Option<&'a str>,
    /// Whether etcd serves it: the keys in etcd's tokens have no leading slash.
    pub(super) from_etcd: bool,
}

impl Page {
    /// Selects the objects of a page, from the start key up to the limit (`docs/semantics.md`
    /// §3.3).
    pub(super) fn select(
        objects: &BTreeMap<Arc<str>, Arc<Object>>,
        selector: &Selector,
        range: &PageRange<'_>,
        revision: u64,
    ) -> Self {
        let prefix = selector.namespace.as_ref().map(|name| format!("{name}/")).unwrap_or_default();
        let from = format!("{prefix}{}", range.start.unwrap_or_default());
        let bounds = (std::ops::Bound::Included(from.as_str()), std::ops::Bound::Unbounded);
        let objects = objects.range::<str, _>(bounds).map(|(_, object)| object);
        let mut raw = objects.take_while(|object| object.key.starts_with(&prefix));
        let shard = selector.shard.as_ref().map(ToString::to_string);
        let mut page =
            Self { objects: Vec::new(), revision, continue_token: None, remaining: None, shard };
        let mut read = 0;
        for object in raw.by_ref() {
            read += 1;
            if selector.matches(object) {
                page.objects.push(Arc::clone(object));
            }
            if Some(page.objects.len()) == range.limit {
                break;
            }
        }
        let left = raw.count();
        if let (true, Some(last)) = (left > 0, page.objects.last()) {
            let relative = last.key.strip_prefix(&prefix).unwrap_or(&last.key);
            let slash = if range.from_etcd { "" } else { "/" };
            let revision = i64::try_from(revision).unwrap_or(-1);
            page.continue_token = Some(Token::encode(revision, &format!("{slash}{relative}\0")));
            // A shard selector leaves objects out that are counted all the same.
            let remaining = read + left - page.objects.len();
            page.remaining = selector.is_empty().then_some(remaining);
        }
        page
    }

    /// Returns the metadata of a list in the order of its type.
    pub(super) fn metadata(&self) -> Value {
        let mut metadata = json!({"resourceVersion": self.revision.to_string()});
        if let Some(token) = &self.continue_token {
            metadata["continue"] = token.clone().into();
        }
        if let Some(remaining) = self.remaining {
            metadata["remainingItemCount"] = remaining.into();
        }
        metadata
    }

    /// Returns the metadata of a list of whole built-in objects, which shows the shard selector.
    pub(super) fn whole_metadata(&self) -> Value {
        let mut metadata = self.metadata();
        if let Some(shard) = &self.shard {
            metadata["shardInfo"] = json!({ "selector": shard });
        }
        metadata
    }

    /// Returns the metadata of a list of custom resources, which is sorted and always has
    /// `continue`.
    pub(super) fn custom_metadata(&self) -> Value {
        let mut metadata = json!({"continue": self.continue_token.as_deref().unwrap_or_default()});
        if let Some(remaining) = self.remaining {
            metadata["remainingItemCount"] = remaining.into();
        }
        metadata["resourceVersion"] = self.revision.to_string().into();
        metadata
    }
}

/// A decoded continue token (`docs/semantics.md` §3.4).
pub(super) struct Token {
    /// The revision; negative for the latest.
    pub(super) revision: i64,
    /// The start key, relative to the list's root and without a leading slash.
    pub(super) start: String,
}

impl Token {
    fn encode(revision: i64, start: &str) -> String {
        let value = json!({"v": "meta.k8s.io/v1", "rv": revision, "start": start});
        URL_SAFE_NO_PAD.encode(encode::encode(&value))
    }

    /// Decodes a token. Both forms of the start key are valid.
    pub(super) fn decode(text_of: &str) -> Result<Self, ApiError> {
        let bad = |why: &str| {
            let message = format!("invalid continue token: continue key is not valid: {why}");
            ApiError::bad_request(message)
        };
        let bytes = URL_SAFE_NO_PAD.decode(text_of).map_err(|error| {
            let at = match error {
                base64::DecodeError::InvalidByte(at, _) => at,
                _ => text_of.len() / 4 * 4,
            };
            bad(&format!("illegal base64 data at input byte {at}"))
        })?;
        let value: Value = serde_json::from_slice(&bytes)
            .map_err(|_| bad("invalid character looking for beginning of value"))?;
        let version = text(&value, "/v");
        if version != "meta.k8s.io/v1" {
            return Err(bad(&format!("server does not recognize this encoded version {version}")));
        }
        let revision = value.get("rv").and_then(Value::as_i64).unwrap_or(0);
        if revision == 0 {
            return Err(bad("incorrect encoded start resourceVersion (version meta.k8s.io/v1)"));
        }
        let given = text(&value, "/start");
        if given.is_empty() {
            return Err(bad("encoded start key empty (version meta.k8s.io/v1)"));
        }
        let start = given.strip_prefix('/').unwrap_or(given);
        if !start.is_empty() && start.split('/').any(|word| matches!(word, "" | "." | "..")) {
            return Err(bad(given));
        }
        Ok(Self { revision, start: start.to_owned() })
    }
}

/// Returns the 410 of an exact list or of a page (`docs/semantics.md` §3.5).
pub(super) fn expired(token: Option<Token>) -> ApiError {
    let Some(token) = token else {
        let message = "The resourceVersion for the provided list is too old.";
        return ApiError::new(410, "Expired", message);
    };
    let mut error = ApiError::new(
        410,
        "Expired",
        "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.",
    );
    error.continue_token = Some(Token::encode(-1, &token.start));
    error
}
