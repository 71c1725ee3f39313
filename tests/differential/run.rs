//! Prepares objects, warm caches, a short history and tokens, then sends a corpus both ways and
//! compares the responses.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::allowed::{AGES_TICK, compared, over_at_once, same_but_for_progress, ticks};
use super::collections::{COLLECTIONS, Collection, at};
use super::expected::{Expect, expected};
use super::forms::{ACCEPTS, Accept, accept};
use super::objects::{fill, revision, touch};
use super::read_request::{Marks, ReadRequest, Token, Verb, Version, rewrite};
use super::wire::{Answer, Call, Connection, Endpoint, STEP_TIMEOUT};

/// The connections to Weir and to its upstream.
#[derive(Clone)]
pub(crate) struct Sides {
    pub(crate) direct: Endpoint,
    pub(crate) through: Endpoint,
    /// Whether the upstream writes to itself, as a real one does.
    pub(crate) moves: bool,
}

/// One request, and the server that must answer it.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) call: Call,
    pub(crate) expect: Expect,
    /// Whether it takes a while.
    pub(crate) slow: bool,
}

impl Case {
    pub(crate) fn from_read(read: &ReadRequest, marks: &Marks) -> Self {
        // A collection whose first page was its last has no token.
        let none = read.token != Token::None && marks.token(read.collection, read.token).is_empty();
        let read = &ReadRequest { token: if none { Token::None } else { read.token }, ..*read };
        let mut expect = expected(read);
        // Such an upstream also looks for an object without a namespace when a watch names one in
        // all namespaces.
        let own_way = match read.meaning() {
            Verb::List => !read.limit.is_empty() || read.token != Token::None,
            Verb::Watch(_) => read.fields.named && !read.collection.one_scope,
            Verb::Get(_) => false,
        };
        if own_way && !marks.pages_cached && expect == Expect::Cache {
            expect = Expect::Either;
        }
        let slow = matches!(read.verb, Verb::Watch(_)) || read.version == Version::Future;
        Self { call: read.call(marks), expect, slow }
    }

    /// Returns the case of a read before a Weir that answers consistent lists from the cache.
    pub(crate) fn before_proofs(read: &ReadRequest, marks: &Marks) -> Self {
        let case = Self::from_read(read, marks);
        let is_unset = matches!(read.version, Version::Unset | Version::Empty);
        let is_single = read.fields.named && read.collection.one_scope;
        let is_consistent = read.meaning() == Verb::List && is_unset && read.matched.is_empty();
        if !is_consistent || is_single || read.token != Token::None {
            return case;
        }
        // Any state may be read from the cache if a fresh one may.
        let any = ReadRequest { version: Version::Zero, ..*read };
        Self { expect: Self::from_read(&any, marks).expect, ..case }
    }

    pub(crate) fn new(call: Call, expect: Expect) -> Self {
        Self { call, expect, slow: false }
    }
}

/// Fills the upstream, warms the caches of all Weirs, and makes a short history that they see.
/// Where nothing changes by itself, all caches end at the same resourceVersion.
pub(crate) async fn prepare(direct: &Endpoint, weirs: &[Endpoint], moves: bool) -> Marks {
    let warm_all = async |marks: Option<&Marks>| {
        for weir in weirs {
            warm(weir, marks).await;
        }
    };
    let marks = prepare_with(direct, warm_all).await;
    if !moves {
        level(direct, weirs).await;
    }
    marks
}

/// Fills the upstream, and makes a short history. Before it and after it, the caches are warmed;
/// after it until they have reached the last write.
pub(crate) async fn prepare_with(
    direct: &Endpoint,
    warm_all: impl AsyncFn(Option<&Marks>),
) -> Marks {
    let mut marks = Marks::default();
    fill(direct, &mut marks).await;
    warm_all(None).await;
    touch(direct, &mut marks).await;
    warm_all(Some(&marks)).await;
    tokens(direct, &mut marks).await;
    marks
}

/// Brings every cache to the upstream's revision: the upstream's by a consistent read, Weir's by
/// the bookmark that follows.
async fn level(direct: &Endpoint, weirs: &[Endpoint]) {
    let mut connection = direct.connection();
    let mut levels = Vec::new();
    for collection in COLLECTIONS.iter().filter(|collection| collection.cached) {
        let consistent = ReadRequest::new(Verb::List, collection, Version::Unset);
        let answer = connection.send(&consistent.call(&Marks::default())).await;
        levels.push((collection, revision(&answer.json())));
    }
    for weir in weirs {
        let mut connection = weir.connection();
        for (collection, level) in &levels {
            for accept in representations(collection) {
                let read = ReadRequest {
                    accept,
                    ..ReadRequest::new(Verb::List, collection, Version::Zero)
                };
                let call = read.call(&Marks::default());
                let deadline = Instant::now() + STEP_TIMEOUT;
                loop {
                    let answer = connection.send(&call).await;
                    let shows = memchr::memmem::find(&answer.body, level.to_string().as_bytes());
                    if answer.cache() != HIT || shows.is_some() {
                        break;
                    }
                    assert!(Instant::now() < deadline, "{call} never reaches {level}");
                    tokio::time::sleep(RETRY_DELAY).await;
                }
            }
        }
    }
}

/// Waits until every cache answers; with marks, until it has reached the last write.
async fn warm(weir: &Endpoint, marks: Option<&Marks>) {
    let mut connection = weir.connection();
    for call in warming_lists(marks) {
        // A resource without writes advances by a bookmark, which a real upstream sends once a
        // minute.
        let deadline = Instant::now() + 3 * STEP_TIMEOUT;
        while connection.send(&call).await.cache() != HIT {
            assert!(Instant::now() < deadline, "{call} never comes from the cache");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Returns a list for each cache; with marks, of the last write or later.
pub(crate) fn warming_lists(marks: Option<&Marks>) -> Vec<Call> {
    let version = if marks.is_some() { Version::Current } else { Version::Zero };
    let none = Marks::default();
    let marks = marks.unwrap_or(&none);
    let cached = COLLECTIONS.iter().filter(|collection| collection.cached);
    let lists = cached.flat_map(|collection| {
        let list = move |accept| ReadRequest {
            accept,
            ..ReadRequest::new(Verb::List, collection, version)
        };
        representations(collection).into_iter().map(list)
    });
    lists.map(|read| read.call(marks)).collect()
}

/// One Accept header for each cache that a resource may have.
fn representations(collection: &Collection) -> Vec<&'static Accept> {
    let mut accepts = vec![&ACCEPTS[0]];
    if collection.custom {
        accepts.extend([accept(PARTIAL_JSON), accept(PARTIAL_PROTOBUF)]);
    } else if !collection.json_only {
        accepts.push(accept("application/vnd.kubernetes.protobuf"));
    }
    accepts
}

/// First pages of one object at each resourceVersion.
async fn tokens(direct: &Endpoint, marks: &mut Marks) {
    let mut connection = direct.connection();
    for collection in &COLLECTIONS {
        for (name, version) in
            [("old", Version::Old), ("recent", Version::Recent), ("current", Version::Current)]
        {
            let read = ReadRequest {
                limit: "1",
                matched: "Exact",
                ..ReadRequest::new(Verb::List, collection, version)
            };
            let page = connection.send(&read.call(marks)).await.json();
            if let Some(token) =
                page["metadata"]["continue"].as_str().filter(|text| !text.is_empty())
            {
                marks.tokens.insert((collection.path, name), token.to_owned());
            }
        }
    }
    let first = marks.token(at("/api/v1/configmaps"), Token::Minted(Version::Current));
    rewrite(&first, |text| {
        marks.pages_cached = text.contains("\"start\":\"/");
        text
    });
}

/// The result of a corpus.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Requests with their differences, in full.
    wrong: Vec<String>,
    /// How often each status came from each server.
    seen: BTreeMap<(u16, String), usize>,
}

impl Report {
    /// Prints the result, and fails if there was a difference.
    pub(crate) fn finish(self, what: &str) {
        let total: usize = self.seen.values().sum();
        eprintln!("{what}: {total} requests");
        for ((status, from), count) in &self.seen {
            eprintln!("  {count:5} {status} {from}");
        }
        assert!(!self.seen.is_empty());
        let lines: Vec<_> = self.wrong.iter().take(SHOWN_MAX).map(String::as_str).collect();
        assert!(self.wrong.is_empty(), "{what}: {} wrong\n{}", self.wrong.len(), lines.join("\n"));
    }

    /// The differences, and how often each status came from each server.
    pub(crate) fn into_parts(self) -> (Vec<String>, BTreeMap<(u16, String), usize>) {
        (self.wrong, self.seen)
    }

    /// Returns the number of responses with this status from the cache, or not from it.
    pub(crate) fn count(&self, status: u16, cache: bool) -> usize {
        let fits = |(seen, from): &(u16, String)| *seen == status && (from == HIT) == cache;
        self.seen.iter().filter(|(key, _)| fits(key)).map(|(_, count)| count).sum()
    }
}

/// Sends all cases both ways.
pub(crate) async fn run(sides: &Sides, cases: Vec<Case>) -> Report {
    run_by(sides, cases, [SLOW_WORKERS, QUICK_WORKERS]).await
}

/// Sends `slow` of the slow requests at a time, and `fast` of the others.
pub(crate) async fn run_by(
    sides: &Sides,
    cases: Vec<Case>,
    [slow_workers, quick_workers]: [usize; 2],
) -> Report {
    let began = Instant::now();
    let (slow, quick): (VecDeque<_>, VecDeque<_>) = cases.into_iter().partition(|case| case.slow);
    let report = Arc::new(Mutex::new(Report::default()));
    let mut workers = JoinSet::new();
    for (queue, count) in [(slow, slow_workers), (quick, quick_workers)] {
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..count {
            let (sides, queue, report) = (sides.clone(), Arc::clone(&queue), Arc::clone(&report));
            workers.spawn(async move {
                let mut ways = (sides.through.connection(), sides.direct.connection());
                loop {
                    let Some(case) = queue.lock().pop_front() else { return };
                    compare(&mut ways, &case, (sides.moves, began), &report).await;
                }
            });
        }
    }
    while let Some(done) = workers.join_next().await {
        done.unwrap();
    }
    std::mem::take(&mut report.lock())
}

async fn compare(
    (through, direct): &mut (Connection, Connection),
    case: &Case,
    (moves, began): (bool, Instant),
    report: &Mutex<Report>,
) {
    // On a slow machine the history may not reach back to the resourceVersions of its begin.
    let has_history = began.elapsed() < HISTORY_MIN;
    let expect = if has_history { case.expect } else { case.expect.without_history() };
    let case = &Case { expect, ..case.clone() };
    let (mut wrong, mut last) = (None, Answer::default());
    let tries = if moves { TRIES_MOVING } else { TRIES };
    let (mut attempts, busy_until) = (0, Instant::now() + SHED_MAX);
    while attempts < AGES_TICK {
        let (seen, expected) = tokio::join!(through.send(&case.call), direct.send(&case.call));
        // A busy machine is no difference. Clients send such a request again, too.
        if seen.header("x-weir-shed") == "overload" && Instant::now() < busy_until {
            let wait = seen.header("retry-after").parse().unwrap_or(1);
            tokio::time::sleep(Duration::from_secs(wait)).await;
            continue;
        }
        wrong = difference(case, &seen, &expected, moves);
        // Nor is a proof that comes too late on one.
        let is_late = case.expect == Expect::Cache && seen.cache() == LATE_PROOF;
        attempts += usize::from(!is_late || Instant::now() > busy_until);
        last = seen;
        if wrong.is_none() || (attempts >= tries && !ticks(&expected)) {
            break;
        }
        tokio::time::sleep(RETRY_DELAY).await;
    }
    let mut report = report.lock();
    *report.seen.entry((last.status, last.cache().to_owned())).or_default() += 1;
    report.wrong.extend(wrong);
}

/// Returns the difference of a response, if there is one.
fn difference(case: &Case, seen: &Answer, expected: &Answer, moves: bool) -> Option<String> {
    let (hit, from) = (seen.cache() == HIT, seen.cache().to_owned());
    let (seen, expected) = (compared(seen), compared(expected));
    let equal = seen == expected
        || (moves && same_but_for_progress(&case.call, &seen, &expected))
        || (!hit && over_at_once(&case.call, &seen, &expected));
    if !equal {
        let (seen, expected) = shortened(&seen, &expected);
        return Some(format!(
            "{} differs, with {from:?}\n  weir     {seen}\n  upstream {expected}",
            case.call
        ));
    }
    let right = match case.expect {
        Expect::Cache => hit || !matches!(expected.status, 101 | 200 | 404),
        Expect::Upstream => !hit,
        Expect::Either => true,
    };
    (!right).then(|| {
        format!(
            "{} must come from {:?}, and came {from} ({})",
            case.call,
            case.expect,
            seen.cache()
        )
    })
}

/// Both responses, shortened to the difference.
fn shortened(seen: &Answer, expected: &Answer) -> (String, String) {
    let at = (0..).find(|at| {
        let bytes = (seen.body.get(*at), expected.body.get(*at));
        bytes.0 != bytes.1 || bytes.0.is_none()
    });
    let from = at.unwrap_or(0).saturating_sub(150);
    let one = |answer: &Answer| {
        let part = answer.body.get(from..).unwrap_or_default();
        let part = part.get(..part.len().min(500)).unwrap_or_default();
        let text: String = String::from_utf8_lossy(part).escape_debug().collect();
        let broken = answer.broken.unwrap_or("whole");
        format!(
            "{} {:?} {broken}, {} bytes, from {from}: {text}",
            answer.status,
            answer.headers,
            answer.body.len()
        )
    };
    (one(seen), one(expected))
}

/// The first word of `X-Weir-Cache`.
pub(crate) const HIT: &str = "hit";
/// The origin of a response whose cache was not proved current in time.
const LATE_PROOF: &str = "forward; reason=consistent";

pub(crate) const PARTIAL_JSON: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
pub(crate) const PARTIAL_PROTOBUF: &str =
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// A second try distinguishes a difference from an accident, such as a connection that was just
/// closed.
const TRIES: usize = 2;
/// The number of tries while the upstream changes: the two requests may fall on both sides of one
/// of its own writes.
const TRIES_MOVING: usize = 5;
const RETRY_DELAY: Duration = Duration::from_millis(100);
/// The shortest time for which a cache's history reaches back.
const HISTORY_MIN: Duration = Duration::from_secs(45);
/// How long Weir may refuse a request because the machine is overloaded.
const SHED_MAX: Duration = Duration::from_secs(120);
const SLOW_WORKERS: usize = 150;
const QUICK_WORKERS: usize = 12;
const SHOWN_MAX: usize = 40;
