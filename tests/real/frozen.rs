//! A balancer freezes the open connections between Weir and the API server under load: they stay
//! open, take bytes and pass none. New connections work.
//!
//! New requests succeed soon, those that were in progress are answered or fail soon, and the caches
//! go on (`docs/decisions/request-retries.md`). Over HTTP/1.1 nothing shows whether a connection
//! lives: a watch lasts until its time is over, and a write that was in progress, or soon followed,
//! until its API server would have answered it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Method;
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::control_plane::{ADMIN, ControlPlane};
use crate::cuts::relay::Relay;
use crate::suite::objects::create;
use crate::suite::wire::{Call, Endpoint};
use crate::support::Weir;

pub(crate) fn http2_connections() {
    connections(true);
}

pub(crate) fn http1_connections() {
    connections(false);
}

fn connections(http2: bool) {
    let plane = ControlPlane::start();
    Runtime::new().unwrap().block_on(async {
        let relay = Relay::start(&plane.kubeconfig(ADMIN)).await;
        let config = format!("upstream:\n  http2: {http2}\ncache:\n  exclude: [events, secrets]\n");
        let weir = Weir::start(&relay.kubeconfig, &config);
        let mut direct = plane.endpoint(ADMIN).connection();
        for number in 0..OBJECTS {
            let object = json!({"metadata": {"name": format!("o{number}")}});
            for collection in [CACHED, FORWARDED] {
                create(&mut direct, collection, &object).await;
            }
        }
        let plain = Endpoint::plain(([127, 0, 0, 1], weir.plain_port()).into());
        while plain.send(&Call::get(format!("{CACHED}?resourceVersion=0"))).await.cache() != "hit" {
        }
        let quiet = tokio::spawn(open_quiet_watch(plain.clone()));
        let load = Load { plain: plain.clone(), samples: Samples::default() };
        let mut tasks = JoinSet::new();
        for kind in KINDS {
            for client in 0..CLIENTS {
                tasks.spawn(load.clone().repeat(kind, client));
            }
        }
        tokio::time::sleep(STEADY).await;
        assert!(!quiet.is_finished(), "a watch without events was closed");
        let frozen = Instant::now();
        relay.freeze();
        for number in 0..NEW_REQUESTS {
            for kind in KINDS {
                let load = load.clone();
                tasks.spawn(async move { load.send(kind, number).await });
            }
            tokio::time::sleep(NEW_INTERVAL).await;
        }
        let protocol = if http2 { "HTTP/2" } else { "HTTP/1.1" };
        if http2 {
            let delay = cache_follows(&plane, &plain, frozen).await;
            eprintln!("{protocol}: the cache shows a write after {delay:.2?}");
        }
        tokio::time::sleep(OLD_MAX.saturating_sub(frozen.elapsed())).await;
        tasks.abort_all();
        while tasks.join_next().await.is_some() {}
        if http2 {
            let ended = quiet.await.unwrap() - frozen;
            eprintln!("{protocol}: a watch without events ends after {ended:.2?}");
            assert!(ended < OLD_MAX, "{ended:?}");
        }
        let samples = load.samples.lock();
        for kind in KINDS {
            let of_kind: Vec<_> = samples.iter().filter(|sample| sample.kind == kind).collect();
            report(protocol, kind, &of_kind, frozen);
            check(!http2, &of_kind, frozen);
        }
    });
}

/// Opens a watch in which nothing happens. Returns when it ends.
async fn open_quiet_watch(plain: Endpoint) -> Instant {
    let call = Call::get(format!("{FORWARDED}?watch=1&fieldSelector=metadata.name=nobody"));
    let mut body = plain.open(&call).await.unwrap().into_body();
    while let Some(Ok(_)) = body.frame().await {}
    Instant::now()
}

/// Writes directly, and returns when the cache shows it.
async fn cache_follows(plane: &ControlPlane, plain: &Endpoint, frozen: Instant) -> Duration {
    let object = json!({"metadata": {"name": "after-the-freeze"}});
    create(&mut plane.endpoint(ADMIN).connection(), CACHED, &object).await;
    let cached = Call::get(format!("{CACHED}/after-the-freeze?resourceVersion=0"));
    while plain.send(&cached).await.status != 200 {
        assert!(frozen.elapsed() < OLD_MAX, "the cache does not follow");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    frozen.elapsed()
}

/// Prints the figures of one kind of requests.
fn report(protocol: &str, kind: &str, samples: &[&Sample], frozen: Instant) {
    let (mut old, mut new) = (Vec::new(), Vec::new());
    for sample in samples.iter().filter(|sample| sample.end().is_none_or(|end| end > frozen)) {
        if sample.at < frozen { old.push(*sample) } else { new.push(*sample) }
    }
    let outcomes = |samples: &[&Sample]| {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for sample in samples {
            let outcome = sample.answer.map_or("none".to_owned(), |(status, _)| status.to_string());
            *counts.entry(outcome).or_default() += 1;
        }
        counts
    };
    let ended = old.iter().filter_map(|sample| sample.end()).max();
    let longest = new.iter().filter_map(|sample| sample.answer).map(|(_, took)| took).max();
    eprintln!(
        "{protocol} {kind}: {} in progress at the freeze {:?}, ended within {:.2?}; {} later ones \
         {:?}, the first success after {:.2?}, the longest answer took {:.2?}",
        old.len(),
        outcomes(&old),
        ended.map(|end| end - frozen),
        new.len(),
        outcomes(&new),
        first_success(samples, frozen),
        longest,
    );
}

/// Checks that all requests end in time, and succeed unless they are writes that were in progress
/// or soon followed. Those end late if `writes_wait`.
fn check(writes_wait: bool, samples: &[&Sample], frozen: Instant) {
    let first = first_success(samples, frozen);
    assert!(first.is_some_and(|first| first < NEW_MAX), "{first:?}");
    for sample in samples {
        let Sample { kind, at, answer } = sample;
        let is_old = *at < frozen + AVOIDED_AFTER;
        let is_lost_write = is_old && is_write(kind);
        if is_lost_write && writes_wait {
            continue;
        }
        let time = if is_old { OLD_MAX } else { NEW_MAX };
        let is_in_time = answer.is_some_and(|(_, took)| took < time);
        // The end of the test cut it off.
        let is_cut = answer.is_none() && *at + NEW_MAX > frozen + OLD_MAX;
        // The answer to a read had begun, so that it could not be sent again.
        let is_broken = *at < frozen && answer.is_some_and(|(status, _)| status == 0);
        let sent_after = at.saturating_duration_since(frozen);
        assert!(is_in_time || is_cut, "{kind} sent after {sent_after:?}: {answer:?}");
        let may_fail = is_cut || is_lost_write || is_broken;
        assert!(may_fail || sample.is_good(), "{kind} {sent_after:?}: {answer:?}");
    }
}

/// Returns how long after the freeze a request succeeded first that was sent after it.
fn first_success(samples: &[&Sample], frozen: Instant) -> Option<Duration> {
    let new = samples.iter().filter(|sample| sample.at >= frozen && sample.is_good());
    new.filter_map(|sample| sample.end()).min().map(|end| end - frozen)
}

fn is_write(kind: &str) -> bool {
    matches!(kind, "patch" | "delete")
}

#[derive(Clone)]
struct Load {
    plain: Endpoint,
    samples: Samples,
}

type Samples = Arc<Mutex<Vec<Sample>>>;

/// A request.
struct Sample {
    kind: &'static str,
    at: Instant,
    /// The status, 0 without a whole answer, and how long it took.
    answer: Option<(u16, Duration)>,
}

impl Sample {
    fn end(&self) -> Option<Instant> {
        self.answer.map(|(_, took)| self.at + took)
    }

    /// Whether the API server answered. A deletion gets 404, since its object does not exist.
    fn is_good(&self) -> bool {
        let expected = if self.kind == "delete" { 404 } else { 200 };
        self.answer.is_some_and(|(status, _)| status == expected)
    }
}

impl Load {
    async fn repeat(self, kind: &'static str, client: usize) {
        for number in client.. {
            self.send(kind, number).await;
        }
    }

    async fn send(&self, kind: &'static str, number: usize) {
        let at = Instant::now();
        let index = {
            let mut samples = self.samples.lock();
            samples.push(Sample { kind, at, answer: None });
            samples.len() - 1
        };
        let object = format!("{FORWARDED}/o{}", number % OBJECTS);
        let call = match kind {
            "get" => Call::get(object),
            "list" => Call::get(FORWARDED),
            "consistent list" => Call::get(CACHED),
            "watch" => Call::get(format!("{FORWARDED}?watch=1&timeoutSeconds=1")),
            "delete" => Call::new(Method::DELETE, format!("{FORWARDED}/nobody")),
            _ => {
                let change = json!({"stringData": {"number": number.to_string()}});
                Call::json(Method::PATCH, &object, &change)
            }
        };
        let status = match kind {
            // Its head is the answer.
            "watch" => self.plain.open(&call).await.map_or(0, |head| head.status().as_u16()),
            _ => {
                let answer = self.plain.send(&call).await;
                if answer.broken.is_some() { 0 } else { answer.status }
            }
        };
        self.samples.lock()[index].answer = Some((status, at.elapsed()));
    }
}

const CACHED: &str = "/api/v1/namespaces/default/configmaps";
const FORWARDED: &str = "/api/v1/namespaces/default/secrets";
const KINDS: [&str; 6] = ["get", "list", "consistent list", "watch", "patch", "delete"];
const OBJECTS: usize = 50;
/// Each sends one request after the other.
const CLIENTS: usize = 4;
/// Longer than a connection may say nothing.
const STEADY: Duration = Duration::from_secs(12);
/// The requests of each kind that follow the freeze.
const NEW_REQUESTS: usize = 40;
const NEW_INTERVAL: Duration = Duration::from_millis(100);
/// When no new request uses a frozen connection any more. Twice as long as it takes, since the
/// machine may be busy.
const AVOIDED_AFTER: Duration = Duration::from_secs(1);
/// Five times as long as it takes.
const NEW_MAX: Duration = Duration::from_secs(5);
const OLD_MAX: Duration = Duration::from_secs(15);
