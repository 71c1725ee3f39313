//! The z-pages and debug pages: `/statusz` and `/flagz` as Kubernetes' components have them
//! (KEP-4827, KEP-4828), `/configz`, `/debug/memory`, `/debug/connections`, one cache at
//! `/debug/caches/…`, and the filter of the log at `/debug/log`, with its last lines at
//! `/debug/log/lines`.
//!
//! All are details ([`detail`](crate::admin::detail)). A cache can be listed again
//! (`/debug/relist/…`) by a POST with a header that no form of a web page can send, which is a
//! notable event. Nothing else can be changed.

mod accept;
mod caches;
mod memory;

use std::time::SystemTime;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, Uri};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;

use self::accept::{Form, negotiate};
use self::caches::CacheNames;
pub use self::memory::MemoryFigures;
use crate::api::query::Query;
use crate::cache::registry::Registry as CacheRegistry;
use crate::telemetry::events::Events;
use crate::telemetry::log_filter::LogFilter;
use crate::telemetry::logging::Log;
use crate::telemetry::process::ProcessFigures;
use crate::telemetry::recent_lines::RecentLines;

/// The content of the z-pages of a Weir.
pub struct ZPages {
    version: &'static str,
    started: SystemTime,
    /// The start by the monotonic clock, for the uptime.
    since: Instant,
    /// The given flags and variables of the environment, by name.
    flags: Vec<(String, String)>,
    /// Returns the effective configuration.
    configuration: Box<dyn Fn() -> Value + Send + Sync>,
    log: Option<LogFilter>,
    /// The last lines of the log.
    lines: Option<RecentLines>,
    /// Returns at most this number of the clients' connections.
    connections: Option<Connections>,
    /// Returns what takes memory.
    memory: Box<dyn Fn() -> MemoryFigures + Send + Sync>,
    caches: Option<CacheRegistry>,
    /// The changes by operators.
    events: Events,
}

type Connections = Box<dyn Fn(usize) -> Value + Send + Sync>;

/// One of the pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ZPage {
    Statusz,
    Flagz,
    Configz,
    Memory,
    Connections,
    Cache,
    Relist,
    Log,
    LogLines,
}

/// The response of a page.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ZAnswer {
    pub(super) status: StatusCode,
    pub(super) content_type: &'static str,
    pub(super) body: Bytes,
}

impl ZPages {
    /// Creates the pages of a Weir that starts now. `flags` must contain no secret.
    pub fn new(
        version: &'static str,
        mut flags: Vec<(String, String)>,
        configuration: impl Fn() -> Value + Send + Sync + 'static,
    ) -> Self {
        flags.sort();
        Self {
            version,
            started: SystemTime::now(),
            since: Instant::now(),
            flags,
            configuration: Box::new(configuration),
            log: None,
            lines: None,
            connections: None,
            memory: Box::new(MemoryFigures::default),
            caches: None,
            events: Events::default(),
        }
    }

    /// Shows each cache, and lets it be listed again. Notes changes among `events`.
    pub fn with_caches(self, caches: CacheRegistry, events: Events) -> Self {
        Self { caches: Some(caches), events, ..self }
    }

    /// Shows the clients' connections.
    pub fn with_connections(
        mut self,
        connections: impl Fn(usize) -> Value + Send + Sync + 'static,
    ) -> Self {
        self.connections = Some(Box::new(connections));
        self
    }

    /// Shows what takes memory.
    pub fn with_memory(
        mut self,
        memory: impl Fn() -> MemoryFigures + Send + Sync + 'static,
    ) -> Self {
        self.memory = Box::new(memory);
        self
    }

    /// Shows the last lines of the log, and its filter.
    pub fn with_log(mut self, log: Option<Log>) -> Self {
        if let Some(Log { filter, recent }) = log {
            self.log = Some(filter);
            self.lines = Some(recent);
        }
        self
    }

    /// Answers a request for a page, of a client that may see details.
    pub(super) fn answer(
        &self,
        page: ZPage,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> ZAnswer {
        match (method, page) {
            (&Method::POST, ZPage::Relist) => {
                return match headers.contains_key(CHANGE_HEADER) {
                    true => self.relist(uri),
                    false => ZAnswer::text(StatusCode::FORBIDDEN, NO_CHANGE_HEADER),
                };
            }
            (&Method::GET | &Method::HEAD, page) if page != ZPage::Relist => {}
            _ => return ZAnswer::text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed\n"),
        }
        match page {
            ZPage::Statusz => negotiated(headers, "Statusz", &self.statusz()),
            ZPage::Flagz => negotiated(headers, "Flagz", &self.flagz()),
            ZPage::Configz => ZAnswer::json(&(self.configuration)()),
            ZPage::Memory => {
                let lines = self.lines.as_ref().map_or(0, RecentLines::bytes);
                ZAnswer::json(&(self.memory)().describe(lines, &ProcessFigures::read()))
            }
            ZPage::Connections => match &self.connections {
                Some(connections) => ZAnswer::json(&connections(limit(uri))),
                None => ZAnswer::text(StatusCode::NOT_FOUND, "there are no connections\n"),
            },
            ZPage::Cache | ZPage::Relist => match (CacheNames::parse(uri, CACHES), &self.caches) {
                (Some(names), Some(caches)) => ZAnswer::caches_or_not_found(names.show(caches)),
                _ => ZAnswer::text(StatusCode::NOT_FOUND, NO_CACHE),
            },
            ZPage::Log => match &self.log {
                Some(filter) => ZAnswer::json(&json!({ "filter": filter.directives() })),
                None => ZAnswer::text(StatusCode::NOT_FOUND, NO_LOG),
            },
            ZPage::LogLines => match &self.lines {
                Some(lines) => ZAnswer::text(StatusCode::OK, lines.text()),
                None => ZAnswer::text(StatusCode::NOT_FOUND, NO_LOG),
            },
        }
    }

    fn statusz(&self) -> Content {
        let uptime = self.since.elapsed().as_secs();
        let started = Timestamp::try_from(self.started).unwrap_or(Timestamp::UNIX_EPOCH);
        let started_text = started.strftime("%a %b %e %H:%M:%S UTC %Y");
        let (hours, minutes, seconds) = (uptime / 3600, uptime / 60 % 60, uptime % 60);
        let version = self.version;
        let paths = PATHS.join(" ");
        let text = format!(
            "\n{COMPONENT} statusz\n{WARNING}\n\nStarted: {started_text}\nUp: {hours} hr {minutes:02} min {seconds:02} sec\nBinary version: {version}\nPaths: {paths}\n"
        );
        let started = started.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let fields = json!({
            "startTime": started,
            "uptimeSeconds": uptime,
            "binaryVersion": version,
            "paths": PATHS,
        });
        Content { text, fields }
    }

    fn flagz(&self) -> Content {
        let lines: String =
            self.flags.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
        let text = format!("\n{COMPONENT} flags\n{WARNING}\n\n{lines}");
        let flags: serde_json::Map<_, _> =
            self.flags.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        Content { text, fields: json!({ "flags": flags }) }
    }

    fn relist(&self, uri: &Uri) -> ZAnswer {
        match (CacheNames::parse(uri, RELIST), &self.caches) {
            (Some(names), Some(caches)) => {
                ZAnswer::caches_or_not_found(names.relist(caches, &self.events))
            }
            _ => ZAnswer::text(StatusCode::NOT_FOUND, NO_CACHE),
        }
    }
}

crate::api::opaque!(ZPages);

impl ZPage {
    /// Returns the page with this path.
    pub(super) fn from_path(path: &str) -> Option<Self> {
        Some(match path {
            "/statusz" => Self::Statusz,
            "/flagz" => Self::Flagz,
            "/configz" => Self::Configz,
            "/debug/memory" => Self::Memory,
            "/debug/connections" => Self::Connections,
            "/debug/log" => Self::Log,
            "/debug/log/lines" => Self::LogLines,
            path if path.starts_with(CACHES) => Self::Cache,
            path if path.starts_with(RELIST) => Self::Relist,
            _ => return None,
        })
    }

    /// Returns the methods of the page.
    pub(super) fn methods(self) -> &'static str {
        match self {
            Self::Relist => "POST",
            _ => "GET, HEAD",
        }
    }
}

impl ZAnswer {
    fn text(status: StatusCode, body: impl Into<Bytes>) -> Self {
        Self { status, content_type: "text/plain; charset=utf-8", body: body.into() }
    }

    fn caches_or_not_found(content: Option<Value>) -> Self {
        let not_running = || Self::text(StatusCode::NOT_FOUND, NOT_RUNNING);
        content.map_or_else(not_running, |content| Self::json(&content))
    }

    fn json(value: &Value) -> Self {
        let body = format!("{value:#}\n").into();
        Self { status: StatusCode::OK, content_type: "application/json", body }
    }
}

/// Returns the number of rows that is asked for.
fn limit(uri: &Uri) -> usize {
    let query = Query::parse(uri.query().unwrap_or_default());
    let asked = query.first("limit").and_then(|limit| limit.parse().ok());
    asked.unwrap_or(ROWS_DEFAULT).min(ROWS_MAX)
}

/// Returns a page of this kind in the form that the client accepts.
fn negotiated(headers: &HeaderMap, kind: &str, content: &Content) -> ZAnswer {
    match negotiate(headers, kind) {
        Some(Form::Text) => ZAnswer::text(StatusCode::OK, content.text.clone()),
        Some(Form::Json(version)) => {
            let mut page = json!({
                "kind": kind,
                "apiVersion": version,
                "metadata": { "name": COMPONENT },
            });
            if let (Some(page), Value::Object(fields)) =
                (page.as_object_mut(), content.fields.clone())
            {
                page.extend(fields);
            }
            ZAnswer::json(&page)
        }
        None => ZAnswer::text(StatusCode::NOT_ACCEPTABLE, NOT_ACCEPTABLE),
    }
}

/// A page in both forms.
struct Content {
    text: String,
    fields: Value,
}

/// These fit some screens.
const ROWS_DEFAULT: usize = 100;
/// Half a MiB.
const ROWS_MAX: usize = 1_000;
const COMPONENT: &str = "weir";
/// The text of Kubernetes' components.
const WARNING: &str = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.";
const NOT_ACCEPTABLE: &str = "accepted are text/plain and, for example, application/json;as=Statusz;v=v1beta1;g=config.k8s.io\n";
const CACHES: &str = "/debug/caches/";
const RELIST: &str = "/debug/relist/";
const NO_CACHE: &str = "name a resource, such as v1/pods or apps/v1/deployments\n";
const NOT_RUNNING: &str =
    "no such cache runs; /api/caches lists them, and ?namespace= names that of a namespace\n";
const NO_LOG: &str = "the log of this process is not Weir's\n";
/// A form of a web page cannot send it, and a script of another site only after a preflight
/// request, which is refused.
const CHANGE_HEADER: &str = "x-weir-change";
const NO_CHANGE_HEADER: &str = "a change needs the header X-Weir-Change: 1\n";
const PATHS: [&str; 23] = [
    "/",
    "/api/caches",
    "/api/clients",
    "/api/events",
    "/api/findings",
    "/api/limits",
    "/api/overview",
    "/api/reasons",
    "/api/shadow",
    "/configz",
    "/debug/caches",
    "/debug/connections",
    "/debug/log",
    "/debug/log/lines",
    "/debug/memory",
    "/debug/relist",
    "/flagz",
    "/healthz",
    "/livez",
    "/metrics",
    "/metrics/slis",
    "/readyz",
    "/statusz",
];

#[cfg(test)]
mod tests;
