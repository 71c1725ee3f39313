//! Lists, and reads of one object: every row of semantics.md §1.6.1 to §1.6.3, answered from one store.
//!
//! Where the upstream would ask etcd, the store's latest state is etcd's; where it would ask its cache, the
//! collection's own resourceVersion is the cache's.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::Response;
use serde_json::{Value, json};

use super::answer::{self, Body, Form};
use super::encode;
use super::kinds::Kind;
use super::object::{Object, key};
use super::request::{Options, Request, Target, parse_revision};
use super::selector::Selector;
use super::shared::Shared;
use super::status::ApiError;
use super::table;

/// A page of a list.
pub(super) struct Page {
    /// Its objects, in key order.
    pub(super) objects: Vec<Arc<Object>>,
    /// The resourceVersion of the list.
    pub(super) revision: u64,
    /// The token of the next page.
    pub(super) continue_token: Option<String>,
    /// How many objects follow.
    pub(super) remaining: Option<usize>,
}

/// Answers a GET of one object.
pub(super) async fn get(
    shared: &Shared,
    request: &Request,
    kind: &Kind,
    target: &Target,
) -> Result<Response<Body>, ApiError> {
    let form = answer::negotiate(request, !kind.custom, false)?;
    // The path of a namespace names it twice.
    let namespace = if kind.namespaced { target.namespace.as_str() } else { "" };
    match request.param("resourceVersion").unwrap_or_default() {
        "" | "0" => {}
        text => {
            let revision = parse_revision(text).map_err(|text| ApiError::new(500, "", text))?;
            wait_until_fresh(shared, kind, revision).await?;
        }
    }
    let object = shared.store.get(kind, &key(namespace, &target.name));
    let not_found = || ApiError::not_found(&kind.group, &kind.resource, &target.name);
    let object = object.ok_or_else(not_found)?;
    Ok(match form {
        Form::Plain => answer::json(request, 200, object.render(kind)),
        Form::Partial(version) => {
            let view = encode::partial_metadata(&object.value(), &format!("meta.k8s.io/{version}"));
            answer::value(request, 200, &view)
        }
        Form::Table(version) => {
            let revision = json!({"resourceVersion": object.revision.to_string()});
            let value = table::list(request, kind, &version, revision, &[object])?;
            answer::value(request, 200, &value)
        }
    })
}

/// Answers a LIST.
pub(super) async fn list(
    shared: &Shared,
    request: &Request,
    kind: &Kind,
    target: &Target,
) -> Result<Response<Body>, ApiError> {
    let form = answer::negotiate(request, !kind.custom, true)?;
    let options = Options::decode(request, shared.options.watch_list())?;
    let selector = selector(kind, target, &options)?;
    let page = page(shared, kind, &selector, &options).await?;
    match form {
        Form::Plain => Ok(answer::json(request, 200, encode_page(kind, &page))),
        Form::Table(version) => {
            let value =
                table::list(request, kind, &version, metadata(&page, false), &page.objects)?;
            Ok(answer::value(request, 200, &value))
        }
        Form::Partial(version) => {
            let group_version = format!("meta.k8s.io/{version}");
            let views = page.objects.iter().map(|object| object.value());
            let views: Vec<Value> =
                views.map(|value| encode::partial_metadata(&value, &group_version)).collect();
            let items = if views.is_empty() { Value::Null } else { Value::Array(views) };
            let value = json!({"kind": "PartialObjectMetadataList", "apiVersion": group_version,
                "metadata": metadata(&page, false), "items": items});
            Ok(answer::value(request, 200, &value))
        }
    }
}

/// The selectors of a request with what its path requires.
pub(super) fn selector(
    kind: &Kind,
    target: &Target,
    options: &Options,
) -> Result<Selector, ApiError> {
    let mut selector = Selector::parse(kind, &options.label_selector, &options.field_selector)?;
    if kind.namespaced && !target.namespace.is_empty() {
        selector.namespace = Some(target.namespace.clone());
    }
    if !target.name.is_empty() {
        selector.name = Some(target.name.clone());
    }
    Ok(selector)
}

/// Waits until a collection has reached a resourceVersion (semantics.md §2.1, §2.2).
pub(super) async fn wait_until_fresh(
    shared: &Shared,
    kind: &Kind,
    revision: u64,
) -> Result<(), ApiError> {
    let deadline = tokio::time::Instant::now() + shared.options.freshness_timeout;
    loop {
        let current = shared.store.progress(kind);
        if current >= revision {
            return Ok(());
        }
        if tokio::time::Instant::now() >= deadline {
            return Err(ApiError::too_large(revision, current));
        }
        tokio::time::sleep(FRESHNESS_POLL).await;
    }
}

/// One page, by the decision table.
pub(super) async fn page(
    shared: &Shared,
    kind: &Kind,
    selector: &Selector,
    options: &Options,
) -> Result<Page, ApiError> {
    let token = match options.continue_token.as_str() {
        "" => None,
        text => Some(Token::decode(text)?),
    };
    let version = options.resource_version.as_str();
    let unset = matches!(version, "" | "0");
    if token.is_some() && !unset {
        let message = "specifying resource version is not allowed when using continue";
        return Err(ApiError::bad_request(message));
    }
    let bad = |text| ApiError::bad_request(format!("invalid resource version: {text}"));
    let asked = if unset { 0 } else { parse_revision(version).map_err(bad)? };
    let exact = match &token {
        Some(token) if token.revision > 0 => u64::try_from(token.revision).ok(),
        Some(_) => None,
        None if options.version_match == "Exact" => Some(asked),
        None if options.version_match.is_empty() && asked > 0 && options.limit > 0 => Some(asked),
        None => None,
    };
    if let Some(revision) = exact.or((asked > 0).then_some(asked)) {
        wait_until_fresh(shared, kind, revision).await?;
    }
    if version.is_empty() || !kind.cached() {
        shared.store.progress(kind);
    }
    let (objects, revision) = shared.store.read(kind, |collection, _| match exact {
        Some(revision) => (collection.at(revision), revision),
        None => (Some(collection.objects.clone()), collection.current()),
    });
    let limited = options.limit > 0 && (version != "0" || !kind.cached());
    let limit = if limited { usize::try_from(options.limit).ok() } else { None };
    let start = token.as_ref().map(|token| token.start.as_str());
    match objects {
        Some(objects) => Ok(cut(&objects, selector, limit, start, revision)),
        None => Err(expired(token)),
    }
}

/// Selects, from the start key on, up to the limit (semantics.md §3.3).
fn cut(
    objects: &BTreeMap<Arc<str>, Arc<Object>>,
    selector: &Selector,
    limit: Option<usize>,
    start: Option<&str>,
    revision: u64,
) -> Page {
    let prefix = selector.namespace.as_ref().map(|name| format!("{name}/")).unwrap_or_default();
    let from = format!("{prefix}{}", start.unwrap_or_default());
    let range = objects
        .range::<str, _>((std::ops::Bound::Included(from.as_str()), std::ops::Bound::Unbounded));
    let mut raw =
        range.map(|(_, object)| object).take_while(|object| object.key.starts_with(&prefix));
    let mut page = Page { objects: Vec::new(), revision, continue_token: None, remaining: None };
    for object in raw.by_ref() {
        if selector.matches(object) {
            page.objects.push(Arc::clone(object));
        }
        if Some(page.objects.len()) == limit {
            break;
        }
    }
    let left = raw.count();
    if let (true, Some(last)) = (left > 0, page.objects.last()) {
        let relative = last.key.strip_prefix(&prefix).unwrap_or(&last.key);
        page.continue_token =
            Some(Token::encode(i64::try_from(revision).unwrap_or(-1), &format!("/{relative}\0")));
        page.remaining = (selector.is_empty() && selector.name.is_none()).then_some(left);
    }
    page
}

/// A list as the upstream writes it (semantics.md §3.6).
fn encode_page(kind: &Kind, page: &Page) -> Bytes {
    let api_version = kind.api_version();
    let lead = format!("{{\"kind\":\"{}\",\"apiVersion\":\"{api_version}\",", kind.kind);
    let mut out =
        Vec::with_capacity(256 + page.objects.iter().map(|o| o.json.len() + 1).sum::<usize>());
    let head = if kind.custom {
        format!("{{\"apiVersion\":\"{api_version}\",\"items\":[")
    } else {
        let metadata = encode::encode(&metadata(page, false));
        let metadata = String::from_utf8_lossy(&metadata);
        let list_kind = &kind.list_kind;
        format!(
            "{{\"kind\":\"{list_kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{metadata},\"items\":["
        )
    };
    out.extend_from_slice(head.as_bytes());
    for (index, object) in page.objects.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        let bytes = object.render(kind);
        match bytes.strip_prefix(lead.as_bytes()) {
            Some(rest) if !kind.custom => {
                out.push(b'{');
                out.extend_from_slice(rest);
            }
            _ => out.extend_from_slice(&bytes),
        }
    }
    out.push(b']');
    if kind.custom {
        let metadata = encode::encode(&metadata(page, true));
        let metadata = String::from_utf8_lossy(&metadata);
        let tail = format!(",\"kind\":\"{}\",\"metadata\":{metadata}", kind.list_kind);
        out.extend_from_slice(tail.as_bytes());
    }
    out.push(b'}');
    out.into()
}

/// The metadata of a list; sorted and with `continue` always there for custom resources.
fn metadata(page: &Page, custom: bool) -> Value {
    let revision = page.revision.to_string();
    let mut metadata = serde_json::Map::new();
    if custom {
        metadata
            .insert("continue".to_owned(), page.continue_token.clone().unwrap_or_default().into());
        if let Some(remaining) = page.remaining {
            metadata.insert("remainingItemCount".to_owned(), remaining.into());
        }
        metadata.insert("resourceVersion".to_owned(), revision.into());
        return Value::Object(metadata);
    }
    metadata.insert("resourceVersion".to_owned(), revision.into());
    if let Some(token) = &page.continue_token {
        metadata.insert("continue".to_owned(), token.clone().into());
    }
    if let Some(remaining) = page.remaining {
        metadata.insert("remainingItemCount".to_owned(), remaining.into());
    }
    Value::Object(metadata)
}

/// A decoded continue token (semantics.md §3.4).
struct Token {
    revision: i64,
    /// Relative to the list's root, without a leading slash.
    start: String,
}

impl Token {
    fn encode(revision: i64, start: &str) -> String {
        let value = json!({"v": "meta.k8s.io/v1", "rv": revision, "start": start});
        URL_SAFE_NO_PAD.encode(encode::encode(&value))
    }

    fn decode(text: &str) -> Result<Self, ApiError> {
        let bad = |why: &str| {
            let message = format!("invalid continue token: continue key is not valid: {why}");
            ApiError::bad_request(message)
        };
        let bytes =
            URL_SAFE_NO_PAD.decode(text).map_err(|_| bad("illegal base64 data at input byte 0"))?;
        let value: Value = serde_json::from_slice(&bytes)
            .map_err(|_| bad("invalid character looking for beginning of value"))?;
        let version = super::kinds::text(&value, "/v");
        if version != "meta.k8s.io/v1" {
            return Err(bad(&format!("server does not recognize this encoded version {version}")));
        }
        let revision = value.get("rv").and_then(Value::as_i64).unwrap_or(0);
        if revision == 0 {
            return Err(bad("incorrect encoded start resourceVersion (version meta.k8s.io/v1)"));
        }
        let start = super::kinds::text(&value, "/start");
        if start.is_empty() {
            return Err(bad("encoded start key empty (version meta.k8s.io/v1)"));
        }
        let start = start.strip_prefix('/').unwrap_or(start).to_owned();
        Ok(Self { revision, start })
    }
}

/// 410 of an exact list or of a page (semantics.md §3.5).
fn expired(token: Option<Token>) -> ApiError {
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

/// How often a waiting request looks again.
const FRESHNESS_POLL: std::time::Duration = std::time::Duration::from_millis(20);
