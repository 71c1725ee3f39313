//! A read as the parameters by which the tables of docs/semantics.md §1 decide. This file writes it
//! as a request; `expected` says which server should answer it.

use std::collections::HashMap;

use http::Method;

use super::collections::Collection;
use super::forms::{Accept, JSON};
use super::selectors::{Fields, Labels, NO_FIELDS, NO_LABELS};
use super::wire::Call;

/// The object or collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// One object.
    Get(&'static str),
    List,
    Watch(WatchForm),
}

/// The ways to request a watch (docs/semantics.md §1.1, §6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchForm {
    /// A `watch` parameter.
    Parameter(&'static str),
    /// The `/watch/` path without that parameter.
    Path,
    /// Both.
    PathAndParameter,
    /// A watch over a WebSocket.
    WebSocket,
}

/// `resourceVersion`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    Unset,
    Empty,
    Zero,
    /// Zero, but not the string `0`.
    ZeroZero,
    /// A resourceVersion from before the caches began.
    Old,
    /// A resourceVersion from after the caches began, with another state than the present one.
    Recent,
    /// The resourceVersion of the resource's last write.
    Current,
    /// A future resourceVersion.
    Future,
    Bad(&'static str),
}

/// `continue`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    None,
    /// The upstream's own token, at this resourceVersion, after its first page.
    Minted(Version),
    /// The same with the start of etcd's pages: without its leading slash.
    FromEtcd(Version),
    /// A token for the latest state.
    Latest,
    /// A token of another resource.
    Foreign,
    /// The text itself.
    Bad(&'static str),
}

/// A read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadRequest {
    pub(crate) verb: Verb,
    pub(crate) collection: &'static Collection,
    pub(crate) version: Version,
    /// `resourceVersionMatch`; like the other texts, omitted if empty.
    pub(crate) matched: &'static str,
    pub(crate) limit: &'static str,
    pub(crate) token: Token,
    pub(crate) initial: &'static str,
    pub(crate) bookmarks: &'static str,
    pub(crate) timeout: &'static str,
    pub(crate) labels: &'static Labels,
    pub(crate) fields: &'static Fields,
    pub(crate) accept: &'static Accept,
    pub(crate) agent: &'static str,
    pub(crate) pretty: &'static str,
    pub(crate) packing: &'static str,
    /// HEAD instead of GET.
    pub(crate) head: bool,
    /// A slash at the end of the path.
    pub(crate) slash: bool,
    /// Parameters without effect, as written.
    pub(crate) idle: &'static str,
}

impl ReadRequest {
    /// Returns the simplest read of its kind, which callers change.
    pub(crate) fn new(verb: Verb, collection: &'static Collection, version: Version) -> Self {
        // Short enough for thousands; with at most two seconds there are no bookmarks before the
        // end (docs/semantics.md §5.6).
        let timeout = if matches!(verb, Verb::Watch(_)) { "1" } else { "" };
        Self {
            verb,
            collection,
            version,
            matched: "",
            limit: "",
            token: Token::None,
            initial: "",
            bookmarks: "",
            timeout,
            labels: &NO_LABELS,
            fields: &NO_FIELDS,
            accept: &JSON,
            agent: "",
            pretty: "",
            packing: "",
            head: false,
            slash: false,
            idle: "",
        }
    }

    /// Returns the effective kind of read: a `watch` parameter may be false.
    pub(crate) fn meaning(&self) -> Verb {
        match self.verb {
            Verb::Watch(WatchForm::Parameter("0" | "false")) => Verb::List,
            verb => verb,
        }
    }

    /// Returns the request, with the resourceVersions and tokens of this upstream.
    pub(crate) fn call(&self, marks: &Marks) -> Call {
        let mut query = Vec::new();
        let mut put = |name: &str, value: &str| {
            if !value.is_empty() {
                query.push(format!("{name}={value}"));
            }
        };
        if let Verb::Watch(WatchForm::Parameter(text)) = self.verb {
            put("watch", text);
        }
        if let Verb::Watch(WatchForm::PathAndParameter | WatchForm::WebSocket) = self.verb {
            put("watch", "1");
        }
        put("resourceVersion", &marks.version(self.collection, self.version));
        put("resourceVersionMatch", self.matched);
        put("limit", self.limit);
        put("continue", &marks.token(self.collection, self.token));
        put("sendInitialEvents", self.initial);
        put("allowWatchBookmarks", self.bookmarks);
        put("timeoutSeconds", self.timeout);
        put("labelSelector", self.labels.text);
        put("fieldSelector", self.fields.text);
        put("pretty", self.pretty);
        if self.version == Version::Empty {
            query.push("resourceVersion=".to_owned());
        }
        if !self.idle.is_empty() {
            query.push(self.idle.to_owned());
        }
        let path = format!("{}{}", self.path(), if self.slash { "/" } else { "" });
        let path = if query.is_empty() { path } else { format!("{path}?{}", query.join("&")) };
        let mut call = Call::new(if self.head { Method::HEAD } else { Method::GET }, path);
        for text in self.accept.texts {
            call = call.header("accept", text);
        }
        for (name, value) in [("user-agent", self.agent), ("accept-encoding", self.packing)] {
            if !value.is_empty() {
                call = call.header(name, value);
            }
        }
        if self.verb == Verb::Watch(WatchForm::WebSocket) {
            for (name, value) in WEBSOCKET {
                call = call.header(name, value);
            }
        }
        call
    }

    fn path(&self) -> String {
        let path = self.collection.path;
        match self.verb {
            Verb::Get(name) => format!("{path}/{name}"),
            Verb::Watch(WatchForm::Path | WatchForm::PathAndParameter) => {
                let group_version = self.collection.group_version();
                path.replacen(group_version, &format!("{group_version}/watch"), 1)
            }
            Verb::List | Verb::Watch(_) => path.to_owned(),
        }
    }
}

/// Values that only the running upstream has: the resourceVersions of its writes, and its tokens.
#[derive(Default)]
pub(crate) struct Marks {
    /// The resourceVersions of writes, by resource and version.
    pub(crate) versions: HashMap<(&'static str, &'static str), u64>,
    /// The tokens of the first page, of one object, of the collection at a path, by path and
    /// version.
    pub(crate) tokens: HashMap<(&'static str, &'static str), String>,
    /// Whether the upstream reads pages from its cache instead of its store, as its tokens show.
    pub(crate) pages_cached: bool,
}

impl Marks {
    fn version(&self, collection: &Collection, version: Version) -> String {
        let mark = |name| {
            let version = self.versions.get(&(collection.resource, name));
            version
                .unwrap_or_else(|| panic!("no mark {name} of {}", collection.resource))
                .to_string()
        };
        match version {
            Version::Unset | Version::Empty => String::new(),
            Version::Zero => "0".to_owned(),
            Version::ZeroZero => "00".to_owned(),
            Version::Old => mark("old"),
            Version::Recent => mark("recent"),
            Version::Current => mark("current"),
            Version::Future => "888888888".to_owned(),
            Version::Bad(text) => text.to_owned(),
        }
    }

    pub(crate) fn token(&self, collection: &Collection, token: Token) -> String {
        let at = |path: &'static str, version| {
            let name = match version {
                Version::Old => "old",
                Version::Recent => "recent",
                _ => "current",
            };
            self.tokens.get(&(path, name)).cloned().unwrap_or_default()
        };
        match token {
            Token::None => String::new(),
            Token::Minted(version) => at(collection.path, version),
            Token::FromEtcd(version) => {
                rewrite(&at(collection.path, version), |text| text.replace("\"/", "\""))
            }
            Token::Latest => rewrite(&at(collection.path, Version::Current), |text| {
                let (before, rest) =
                    text.split_once("\"rv\":").unwrap_or((&text, ",\"start\":\"/\""));
                let (_, start) = rest.split_once(',').unwrap_or_default();
                format!("{before}\"rv\":-1,{start}")
            }),
            Token::Foreign => at("/api/v1/pods", Version::Current),
            Token::Bad(text) => text.to_owned(),
        }
    }
}

/// Changes the JSON within a token.
pub(crate) fn rewrite(token: &str, change: impl FnOnce(String) -> String) -> String {
    use base64::Engine;
    let code = base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let Ok(bytes) = code.decode(token) else { return token.to_owned() };
    code.encode(change(String::from_utf8_lossy(&bytes).into_owned()))
}

const WEBSOCKET: [(&str, &str); 5] = [
    ("connection", "Upgrade"),
    ("upgrade", "websocket"),
    ("sec-websocket-version", "13"),
    ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ("origin", "http://localhost"),
];
