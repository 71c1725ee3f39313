//! Lists, and reads of one object: every row of `docs/semantics.md` §1.6.1 to §1.6.3, answered from
//! one store.
//!
//! Where the upstream reads from etcd, this module uses the store's latest state. Where it reads
//! from its cache, this module uses the collection's own resourceVersion.

use http::Response;

use super::answer::Body;
use super::kinds::Kind;
use super::negotiate::{Shape, negotiate};
use super::object::key;
use super::page::{Page, PageRange, Token, expired};
use super::render;
use super::request::{Options, Request, Target, parse_revision};
use super::selector::Selector;
use super::shard::ShardSelector;
use super::shared::Shared;
use super::status::ApiError;

/// Answers a GET of one object.
pub(super) async fn get(
    shared: &Shared,
    request: &Request,
    kind: &Kind,
    target: &Target,
) -> Result<Response<Body>, ApiError> {
    let form = negotiate(request, kind, Shape::Object)?;
    // The path of a namespace sets both its name and its namespace.
    let namespace = if kind.namespaced { target.namespace.as_str() } else { "" };
    match request.param("resourceVersion").unwrap_or_default() {
        "" | "0" => {}
        text => {
            let revision = parse_revision(text).map_err(|text| ApiError::new(500, "", text))?;
            wait_until_fresh(shared, request.server, kind, revision).await?;
        }
    }
    let key = key(namespace, &target.name);
    let object = if is_cached_read(request, kind) {
        shared
            .store
            .read(kind, |collection, _| collection.cached(request.server).get(&*key).cloned())
    } else {
        shared.store.get(kind, &key)
    };
    let not_found = || ApiError::not_found(&kind.group, &kind.resource, &target.name);
    render::object(request, kind, &form, 200, &object.ok_or_else(not_found)?)
}

/// Whether a GET is answered from the watch cache, which may lag.
fn is_cached_read(request: &Request, kind: &Kind) -> bool {
    kind.cached() && request.param("resourceVersion").is_some_and(|text| !text.is_empty())
}

/// Answers a LIST.
pub(super) async fn list(
    shared: &Shared,
    request: &Request,
    kind: &Kind,
    target: &Target,
) -> Result<Response<Body>, ApiError> {
    let form = negotiate(request, kind, Shape::List)?;
    let options = Options::decode(request, shared.options.watch_list())?;
    let selector = selector(shared, kind, target, &options)?;
    let page = page(shared, request.server, kind, &selector, &options).await?;
    render::list(request, kind, &form, &page)
}

/// Returns the selectors of a request, with the requirements of its path.
pub(super) fn selector(
    shared: &Shared,
    kind: &Kind,
    target: &Target,
    options: &Options,
) -> Result<Selector, ApiError> {
    let mut selector = Selector::parse(kind, &options.label_selector, &options.field_selector)?;
    if kind.namespaced && !target.namespace.is_empty() {
        selector.namespace = Some(target.namespace.clone());
    } else if kind.namespaced {
        selector.namespace = selector.required("metadata.namespace");
    }
    if !target.name.is_empty() {
        let required = selector.required("metadata.name");
        if target.named_by_path && required.is_some_and(|name| name != target.name) {
            let message = "fieldSelector metadata.name doesn't match requested name";
            return Err(ApiError::bad_request(message));
        }
        selector.name = Some(target.name.clone());
    }
    if shared.options.shard_selectors && !options.shard_selector.is_empty() {
        selector.shard = Some(ShardSelector::parse(&options.shard_selector)?);
    }
    Ok(selector)
}

/// Waits until a collection has reached a resourceVersion (`docs/semantics.md` §2.1, §2.2). A
/// resource without a watch cache reads from etcd, which does not wait.
pub(super) async fn wait_until_fresh(
    shared: &Shared,
    server: usize,
    kind: &Kind,
    revision: u64,
) -> Result<(), ApiError> {
    let deadline = tokio::time::Instant::now() + shared.options.freshness_timeout;
    loop {
        let current = shared.store.progress(server, kind);
        if current >= revision {
            return Ok(());
        }
        if !kind.cached() {
            return Err(ApiError::too_large_now(revision, current));
        }
        if tokio::time::Instant::now() >= deadline {
            return Err(ApiError::too_large(revision, current));
        }
        tokio::time::sleep(FRESHNESS_POLL).await;
    }
}

/// The state that a list reads.
enum Source {
    /// The cache in its present state.
    Cache,
    /// The cache, after it has reached a revision.
    NotOlderThan(u64),
    /// The latest state.
    Latest,
    /// The state at a revision.
    Exact(u64),
    /// etcd's latest state; an error if it is older than the revision.
    EtcdNotOlderThan(u64),
    /// etcd's state at a revision; an error if etcd has not reached it.
    EtcdExact(u64),
}

impl Source {
    /// Chooses the state by the decision tables.
    fn decide(
        kind: &Kind,
        selector: &Selector,
        options: &Options,
        token: Option<&Token>,
    ) -> Result<Self, ApiError> {
        let version = options.resource_version.as_str();
        if token.is_some() && !matches!(version, "" | "0") {
            let message = "specifying resource version is not allowed when using continue";
            return Err(ApiError::bad_request(message));
        }
        let bad = |text| ApiError::bad_request(format!("invalid resource version: {text}"));
        let requested =
            if version.is_empty() { 0 } else { parse_revision(version).map_err(bad)? };
        let single = selector.is_single(kind) && token.is_none();
        let legacy = options.version_match.is_empty() && options.limit > 0;
        Ok(match (token, options.version_match.as_str()) {
            (Some(token), _) => u64::try_from(token.revision).map_or(Self::Latest, Self::Exact),
            (None, _) if version.is_empty() => Self::Latest,
            (None, "Exact") if requested > 0 && single => Self::EtcdExact(requested),
            (None, "Exact") if requested > 0 => Self::Exact(requested),
            (None, "Exact") => Self::Latest,
            (None, _) if requested == 0 => Self::Cache,
            (None, _) if legacy && single => Self::EtcdNotOlderThan(requested),
            (None, _) if legacy => Self::Exact(requested),
            (None, _) => Self::NotOlderThan(requested),
        })
    }
}

/// Returns one page, by the decision tables.
pub(super) async fn page(
    shared: &Shared,
    server: usize,
    kind: &Kind,
    selector: &Selector,
    options: &Options,
) -> Result<Page, ApiError> {
    let token = match options.continue_token.as_str() {
        "" => None,
        text => Some(Token::decode(text)?),
    };
    let source = Source::decide(kind, selector, options, token.as_ref())?;
    let exact = match source {
        Source::Exact(revision) => {
            wait_until_fresh(shared, server, kind, revision).await?;
            Some(revision)
        }
        Source::NotOlderThan(revision) => {
            wait_until_fresh(shared, server, kind, revision).await?;
            None
        }
        Source::EtcdExact(revision) | Source::EtcdNotOlderThan(revision) => {
            let current = shared.store.progress(server, kind);
            if revision > current {
                return Err(ApiError::too_large_now(revision, current));
            }
            matches!(source, Source::EtcdExact(_)).then_some(revision)
        }
        Source::Latest => {
            shared.store.progress(server, kind);
            None
        }
        Source::Cache => {
            if !kind.cached() {
                shared.store.progress(server, kind);
            }
            None
        }
    };
    let latest = matches!(source, Source::Latest);
    let reads_cache =
        !matches!(source, Source::Latest | Source::EtcdExact(_) | Source::EtcdNotOlderThan(_));
    let (mut objects, revision) = shared.store.read(kind, |collection, revision| match exact {
        Some(revision) => (collection.at(revision), revision),
        // A watch cache that lags leaves a consistent read to etcd (`docs/semantics.md` §2.3).
        None if latest => (Some(collection.objects.clone()), revision),
        None => (Some(collection.cached(server).clone()), collection.current(server)),
    });
    if let Some(objects) = objects.as_mut().filter(|_| reads_cache) {
        for key in shared.faults.hidden(&kind.resource) {
            objects.remove(key.as_str());
        }
    }
    // A list of a single object has no other page (`docs/semantics.md` §1.6.2).
    let single = selector.is_single(kind) && token.is_none();
    let limited =
        options.limit > 0 && !single && (options.resource_version != "0" || !kind.cached());
    let range = PageRange {
        limit: if limited { usize::try_from(options.limit).ok() } else { None },
        start: token.as_ref().map(|token| token.start.as_str()),
        from_etcd: !kind.cached() || !shared.options.lists_from_cache(),
    };
    match objects {
        Some(objects) => Ok(Page::select(&objects, selector, &range, revision)),
        None => Err(expired(token)),
    }
}

/// The interval at which a waiting request checks the revision.
const FRESHNESS_POLL: std::time::Duration = std::time::Duration::from_millis(20);
