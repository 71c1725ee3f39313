//! `/api/…`: what the page, and the commands `weir top` and `weir doctor`, show. JSON of
//! `weir.dev/v1alpha1`, for those who may see details.
//!
//! A response is made at most once a second for each query, and shared by all who ask. Its ETag
//! stands for the content without the time, so that a client that polls gets a 304 where nothing
//! changed. Its figures are values of the parts of Weir, of which `/metrics` has the same.
//!
//! Memory: the totals of the last minute, and [`SHARED_MAX`] responses.
//!
//! Lock order: the shared responses, the moments, and the case of the verdict, each alone.

pub(super) mod caches;
mod clients;
mod events;
mod facts;
mod findings;
pub(super) mod json;
mod limits;
mod moment;
mod overview;
mod reasons;
mod verdict;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use parking_lot::Mutex;
use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::admin::api::facts::facts;
use crate::admin::api::json::time;
use crate::admin::api::moment::Moment;
use crate::admin::api::verdict::{Facts, Verdict};
use crate::admin::detail;
use crate::admin::figures::Figures;
use crate::admin::health::{Checks, Endpoint};
use crate::admin::totals::{Samples, Totals};
use crate::cache::registry::Registry;
use crate::codec::gzip::MemberWriter;
use crate::server::{ConnectionList, FlowControl, Shadow};
use crate::telemetry::events::Events;
use crate::telemetry::process::ProcessFigures;

/// The sources of the details.
pub struct Details {
    /// The version of this Weir.
    pub version: &'static str,
    /// Reads what the parts of Weir show.
    pub figures: Box<dyn Fn() -> Figures + Send + Sync>,
    /// The costs of clients; `None` if nothing is added up.
    pub clients: Option<Arc<FlowControl>>,
    /// The caches.
    pub caches: Registry,
    /// Notable events.
    pub events: Events,
    /// The open connections of clients.
    pub connections: ConnectionList,
    /// The comparisons of shadow mode; `None` if Weir is not in it.
    pub shadow: Option<Arc<Shadow>>,
}

crate::api::opaque!(Details);

/// Makes and shares the responses.
#[derive(Debug)]
pub(super) struct Api {
    details: Details,
    /// The name of the host, which is the pod's.
    instance: Box<str>,
    started: Instant,
    moments: Mutex<Moments>,
    shared: Mutex<Vec<(Query, Instant, Arc<Answer>)>>,
    /// The case of the last verdict, and when it was first seen.
    case: Mutex<Option<(&'static str, SystemTime)>>,
}

crate::api::labels! {
    /// The kind of a response.
    pub(super) enum Kind {
        Overview = "Overview",
        Caches = "CacheList",
        Clients = "ClientList",
        Findings = "FindingList",
        Reasons = "ReasonList",
        Events = "EventList",
        Limits = "LimitList",
        Shadow = "ShadowReport",
    }
}

/// A response that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Query {
    pub(super) kind: Kind,
    /// The most items of each list; `None` for the kind's own number.
    pub(super) limit: Option<usize>,
    /// Events are asked for above this number.
    pub(super) since: u64,
    /// The field by which caches are ordered, the largest first.
    pub(super) sort: Option<Box<str>>,
}

/// A response, with its compressed form once that is asked for.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) body: Bytes,
    pub(super) etag: Box<str>,
    gzip: OnceLock<Option<Bytes>>,
}

#[derive(Debug, Default)]
struct Moments {
    last: Option<Arc<Moment>>,
    samples: Samples,
}

impl Api {
    pub(super) fn new(details: Details) -> Self {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Self {
            details,
            instance: host.trim().into(),
            started: Instant::now(),
            moments: Mutex::default(),
            shared: Mutex::default(),
            case: Mutex::default(),
        }
    }

    /// Takes a sample for the rates, and notes since when the verdict is what it is. Call this
    /// every ten seconds or more often, so that the first response has both. It takes some
    /// milliseconds with many caches.
    pub(super) fn sample(&self, checks: &Checks) {
        let moment = self.moment(checks);
        self.verdict(&moment);
    }

    /// Returns a response that was made in the last second; `None` if there is none.
    pub(super) fn shared(&self, query: &Query) -> Option<Arc<Answer>> {
        let mut shared = self.shared.lock();
        shared.retain(|(_, made, _)| made.elapsed() < SHARED_FOR);
        let answer = shared.iter().find(|(subject, _, _)| subject == query);
        answer.map(|(_, _, answer)| Arc::clone(answer))
    }

    /// Returns a response; `None` if what it is about is off. It takes some milliseconds with many
    /// caches, so call it on a blocking thread.
    pub(super) fn answer(&self, query: Query, checks: &Checks) -> Option<Arc<Answer>> {
        if let Some(answer) = self.shared(&query) {
            return Some(answer);
        }
        let moment = self.moment(checks);
        let answer = Arc::new(self.make(&query, &moment)?);
        let mut shared = self.shared.lock();
        if shared.len() < SHARED_MAX {
            shared.push((query, Instant::now(), Arc::clone(&answer)));
        }
        Some(answer)
    }

    /// Returns the report of shadow mode as text; `None` if Weir is not in it.
    pub(super) fn shadow_text(&self) -> Option<String> {
        Some(self.details.shadow.as_ref()?.text())
    }

    fn make(&self, query: &Query, moment: &Moment) -> Option<Answer> {
        let Details { version, clients, caches, events, connections, shadow, .. } = &self.details;
        let content = match query.kind {
            Kind::Overview => {
                let is_counting = clients.is_some();
                let verdict = self.verdict(moment);
                overview::content(moment, caches, &verdict, (version, is_counting))
            }
            Kind::Caches => caches::content(moment, query.limit, query.sort.as_deref()),
            Kind::Clients => {
                let limit = query.limit.unwrap_or(CLIENTS_DEFAULT);
                clients::content(clients.as_ref()?, connections, limit)
            }
            Kind::Findings => findings::content(&clients.as_ref()?.findings(), query.limit),
            Kind::Reasons => reasons::content(moment),
            Kind::Events => events::content(&events.since(query.since)),
            Kind::Limits => limits::content(moment),
            Kind::Shadow => shadow.as_ref()?.report(),
        };
        let mut hasher = DefaultHasher::new();
        content.hash(&mut hasher);
        let mut answer = Map::new();
        for (name, value) in [
            ("apiVersion", Value::from("weir.dev/v1alpha1")),
            ("kind", query.kind.as_str().into()),
            ("time", time(moment.time)),
            ("instance", (&*self.instance).into()),
            ("uptimeSeconds", moment.at.as_secs().into()),
        ] {
            answer.insert(name.to_owned(), value);
        }
        answer.extend(content);
        let mut body = serde_json::to_vec_pretty(&answer).ok()?;
        body.push(b'\n');
        Some(Answer::new(body.into(), hasher.finish()))
    }

    /// Assesses a moment. Returns the facts, the verdict, and since when it is that.
    fn verdict(&self, moment: &Moment) -> (Facts, Verdict, SystemTime) {
        let findings = self.details.clients.as_ref().map(|clients| clients.findings());
        let facts = facts(moment, &self.details.caches, &findings.unwrap_or_default());
        let verdict = Verdict::from_facts(&facts);
        let mut case = self.case.lock();
        let verdict_since = verdict.since;
        let is_own =
            |since| verdict_since.is_none_or(|verdict_since| is_close(verdict_since, since));
        let since = match *case {
            Some((same, since)) if same == verdict.case && is_own(since) => since,
            _ => case.insert((verdict.case, verdict_since.unwrap_or(moment.time))).1,
        };
        (facts, verdict, since)
    }

    /// Returns the present numbers, which are read at most once a second.
    fn moment(&self, checks: &Checks) -> Arc<Moment> {
        let mut moments = self.moments.lock();
        let at = self.started.elapsed();
        if let Some(last) = &moments.last
            && at.saturating_sub(last.at) < SHARED_FOR
        {
            return Arc::clone(last);
        }
        let figures = (self.details.figures)();
        let all_caches = self.details.caches.figures();
        let totals = Arc::new(Totals::from_figures(&figures, &all_caches));
        let rates = [TEN_SECONDS, MINUTE].map(|length| moments.samples.rates(at, &totals, length));
        moments.samples.add(at, &totals);
        let moment = Arc::new(Moment {
            at,
            time: SystemTime::now(),
            figures,
            caches: self.details.caches.descriptions(),
            all_caches,
            process: ProcessFigures::read(),
            totals,
            rates,
            failing: checks.failing(Endpoint::Ready),
        });
        moments.last = Some(Arc::clone(&moment));
        moment
    }
}

impl Kind {
    /// Returns the kind that a path after `/api/` asks for.
    pub(super) fn from_path(path: &str) -> Option<Self> {
        Some(match path {
            "overview" => Self::Overview,
            "caches" => Self::Caches,
            "clients" => Self::Clients,
            "findings" => Self::Findings,
            "reasons" => Self::Reasons,
            "events" => Self::Events,
            "limits" => Self::Limits,
            "shadow" => Self::Shadow,
            _ => return None,
        })
    }
}

impl Query {
    /// Parses the query of a URL. An invalid parameter counts as absent.
    pub(super) fn parse(kind: Kind, query: &str) -> Self {
        let parameter = |name| detail::parameter(query, name);
        let sort = parameter("sort").filter(|sort| kind == Kind::Caches && sort.len() <= SORT_MAX);
        let limit = parameter("limit").and_then(|limit| limit.parse().ok());
        let since = parameter("since").and_then(|since| since.parse().ok()).unwrap_or(0);
        Self { kind, limit, since, sort: sort.map(Box::from) }
    }
}

impl Answer {
    /// `hash` is that of the content.
    pub(super) fn new(body: Bytes, hash: u64) -> Self {
        Self { body, etag: format!("\"{hash:016x}\"").into(), gzip: OnceLock::new() }
    }

    /// Returns the answer of a file, which is compressed once, and so as well as gzip can.
    pub(super) fn from_file(text: &'static str, hash: u64) -> Self {
        let compress = || -> io::Result<Bytes> {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
            encoder.write_all(text.as_bytes())?;
            Ok(encoder.finish()?.into())
        };
        Self { gzip: OnceLock::from(compress().ok()), ..Self::new(text.into(), hash) }
    }

    /// Returns the compressed body; `None` if that fails.
    pub(super) fn gzip(&self) -> Option<Bytes> {
        let compress = || -> io::Result<Bytes> {
            let mut writer = MemberWriter::new();
            writer.push(&self.body)?;
            Ok(writer.finish()?.into())
        };
        self.gzip.get_or_init(|| compress().ok()).clone()
    }
}

/// Whether two times differ by less than two seconds: they come from two clocks that are read one
/// after the other.
fn is_close(one: SystemTime, other: SystemTime) -> bool {
    let difference = one.duration_since(other).or_else(|_| other.duration_since(one));
    difference.is_ok_and(|difference| difference < Duration::from_secs(2))
}

/// The windows of rates: what happens now, and what a person can compare it with.
const TEN_SECONDS: Duration = Duration::from_secs(10);
const MINUTE: Duration = Duration::from_secs(60);
/// A page asks every two seconds.
const SHARED_FOR: Duration = Duration::from_secs(1);
/// A few pages ask for six kinds each.
const SHARED_MAX: usize = 32;
/// These fit a screen.
const CLIENTS_DEFAULT: usize = 20;
/// Longer than the names of all fields.
const SORT_MAX: usize = 32;

#[cfg(test)]
mod tests;
