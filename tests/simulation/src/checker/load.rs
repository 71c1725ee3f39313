//! Q1 to Q4: what load shedding promises. Everything is judged after the run, by the record of the
//! clients and that of the API servers, which have the `Audit-ID` of a request in common.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use tokio::time::Instant;
use weir::simulator::Flight;

use super::Checker;
use crate::plan::Plan;

/// A request of a crowd, and what became of it.
pub(crate) struct SentRequest {
    pub(crate) audit_id: String,
    pub(crate) is_read: bool,
    /// Its text in messages.
    pub(crate) what: String,
    pub(crate) begun: Instant,
    pub(crate) ended: Instant,
    pub(crate) ending: Ending,
}

/// How a request ended for its client.
pub(crate) enum Ending {
    /// The client went away.
    GivenUp,
    /// Without a response.
    Failed(String),
    Answered {
        status: u16,
        /// The seconds of `Retry-After`.
        retry_after: Option<u64>,
        /// The reason of a refusal by Weir.
        shed: Option<String>,
        /// That of a refusal.
        body: Bytes,
    },
}

/// A request with its repetitions, of a client that comes back after its Retry-After.
pub(crate) struct Served {
    pub(crate) name: String,
    pub(crate) begun: Instant,
    pub(crate) ended: Instant,
    /// The attempts.
    pub(crate) audit_ids: Vec<String>,
    pub(crate) is_served: bool,
}

/// The record of a crowd.
#[derive(Default)]
pub(super) struct Load {
    requests: Vec<SentRequest>,
    served: Vec<Served>,
    /// When something broke.
    faults: Vec<Instant>,
}

/// The records of clients and API servers.
struct Records<'a> {
    load: &'a Load,
    /// The requests that the API servers received, by their ids.
    received: BTreeMap<&'a str, Vec<&'a Flight>>,
    /// Those that take seats: no request is exempt.
    seated: Vec<&'a Flight>,
    violations: Vec<(&'static str, String)>,
    checks: Vec<(&'static str, u64)>,
    /// The most requests that were in flight at once, and the most that a neighbour needed.
    most_in_flight: usize,
    most_needed: (usize, Duration),
}

impl Checker {
    /// Notes a request of a crowd that has ended.
    pub(crate) fn ended(&self, request: SentRequest) {
        self.0.lock().load.requests.push(request);
    }

    /// Notes what a neighbour of a flood was given.
    pub(crate) fn served(&self, served: Served) {
        self.0.lock().load.served.push(served);
    }

    /// Notes that something breaks now.
    pub(crate) fn broke(&self) {
        self.0.lock().load.faults.push(Instant::now());
    }

    /// Q1 to Q4: judges a run with a crowd. `flights` is what the API servers received up to the
    /// calm.
    pub(crate) fn check_load(&self, plan: &Plan, flights: &[Flight]) {
        let Some(crowd) = &plan.crowd else { return };
        let load = std::mem::take(&mut self.0.lock().load);
        let mut received: BTreeMap<&str, Vec<&Flight>> = BTreeMap::new();
        for flight in flights.iter().filter(|flight| !flight.audit_id.is_empty()) {
            received.entry(&flight.audit_id).or_default().push(flight);
        }
        let takes_seats = |flight: &&Flight| match plan.gateway {
            true => flight.user != crate::guests::ADMINISTRATOR && !flight.user.is_empty(),
            false => !flight.user_agent.starts_with("weir/"),
        };
        // Documents take no seats, and Weir reads them and asks who is alive for itself.
        let is_of_resource = |flight: &&Flight| {
            let root = if flight.path.starts_with("/api/v1/") { 2 } else { 3 };
            flight.path.starts_with("/api") && flight.path.split('/').skip(1).nth(root).is_some()
        };
        let seated = flights.iter().filter(is_of_resource).filter(takes_seats).collect();
        let (violations, checks) = (Vec::new(), Vec::new());
        let most_needed = (0, Duration::ZERO);
        let mut records = Records {
            load: &load,
            received,
            seated,
            violations,
            checks,
            most_in_flight: 0,
            most_needed,
        };
        let servers = if plan.listed { plan.servers } else { 1 };
        let seats = crowd.seats_of(servers, plan.weirs);
        records.limits(seats);
        records.endings();
        records.neighbours();
        records.idle_seats();
        records.once();
        records.refusals();
        let mut inner = self.0.lock();
        let (most, (attempts, took)) = (records.most_in_flight, records.most_needed);
        inner.trace.line(&format!(
            "{most} of {seats} seats taken at most; a neighbour needed {attempts} attempts and {took:?} at most"
        ));
        for (guarantee, count) in records.checks {
            *inner.counts.entry(guarantee).or_default() += count;
        }
        for (guarantee, what) in records.violations {
            inner.violated(guarantee, what);
        }
    }
}

impl Records<'_> {
    fn checked(&mut self, guarantee: &'static str, count: usize) {
        self.checks.push((guarantee, count as u64));
    }

    /// Q1: no more requests are in flight at the API servers than there are seats. Those that were
    /// answered count: Weir has given the others up, and the API server learns of it later.
    fn limits(&mut self, seats: usize) {
        let mut changes = Vec::new();
        for (number, flight) in self.seated.iter().enumerate() {
            // If its client went away, Weir knew that first.
            let ended = flight.ended.filter(|_| flight.status.is_some());
            let ended = ended.and_then(|ended| ended.checked_sub(LATENCY_MAX));
            if let Some(ended) = ended.filter(|ended| *ended > flight.began) {
                // At the same moment ends come first.
                changes.extend([(flight.began, true, number), (ended, false, number)]);
            }
        }
        changes.sort_unstable();
        self.checked("Q1", changes.len() / 2);
        let (mut now, mut most) = (BTreeSet::new(), BTreeSet::new());
        for (_, begins, number) in changes {
            if begins {
                now.insert(number);
            } else {
                now.remove(&number);
            }
            if now.len() > most.len() {
                most.clone_from(&now);
            }
        }
        self.most_in_flight = most.len();
        if most.len() > seats {
            let names = most.iter().filter_map(|number| self.seated.get(*number));
            let names: Vec<String> = names
                .map(|flight| format!("{} {} {}", flight.audit_id, flight.verb, flight.path))
                .collect();
            let what = format!("{} requests in flight, {seats} seats: {names:?}", names.len());
            self.violations.push(("Q1", what));
        }
    }

    /// Q2: every request ends, and while nothing breaks it does not fail.
    fn endings(&mut self) {
        self.checked("Q2", self.load.requests.len());
        for request in &self.load.requests {
            let took = request.ended - request.begun;
            let failure = match &request.ending {
                Ending::GivenUp => continue,
                Ending::Failed(why) => why.clone(),
                Ending::Answered { status, .. } if *status >= 500 => status.to_string(),
                Ending::Answered { .. } => String::new(),
            };
            let what = &request.what;
            if took > ENDS_WITHIN {
                self.violations.push(("Q2", format!("{what} took {took:?}")));
            }
            let is_quiet = self.is_quiet(request.begun, request.ended);
            if !failure.is_empty() && is_quiet && !self.failed_upstream(&request.audit_id) {
                let what = format!("{what} failed while nothing broke: {failure}");
                self.violations.push(("Q2", what));
            }
        }
    }

    /// Q2: who sends one request after the other, and comes back after its Retry-After, is served
    /// soon, and in a few attempts.
    fn neighbours(&mut self) {
        for served in &self.load.served {
            let is_disturbed = served.audit_ids.iter().any(|id| self.failed_upstream(id));
            if is_disturbed || !self.is_quiet(served.begun, served.ended) {
                continue;
            }
            self.checks.push(("Q2 (neighbours)", 1));
            let took = served.ended - served.begun;
            let attempts = served.audit_ids.len();
            self.most_needed.0 = attempts.max(self.most_needed.0);
            self.most_needed.1 = took.max(self.most_needed.1);
            if !served.is_served || took > SERVED_WITHIN || attempts > ATTEMPTS_MAX {
                let what = format!("{} needed {attempts} attempts and {took:?}", served.name);
                self.violations.push(("Q2", what));
            }
        }
    }

    /// Q2: nobody waits for seats, and is refused in the end, while all seats are free.
    fn idle_seats(&mut self) {
        let busy = self.busy();
        for request in &self.load.requests {
            let Ending::Answered { status: 429, shed: Some(shed), .. } = &request.ending else {
                continue;
            };
            if !self.is_quiet(request.begun, request.ended) {
                continue;
            }
            self.checks.push(("Q2 (idle seats)", 1));
            let idle = longest_gap(&busy, request.begun, request.ended);
            if idle > IDLE_MAX {
                let what = &request.what;
                let what = format!("{what} waited while nothing was sent for {idle:?}: {shed}");
                self.violations.push(("Q2", what));
            }
        }
    }

    /// Returns when at least one request held a seat, in order and without overlaps.
    fn busy(&self) -> Vec<(Instant, Instant)> {
        let mut times: Vec<_> = self
            .seated
            .iter()
            .map(|flight| (flight.began, flight.ended.unwrap_or_else(Instant::now)))
            .collect();
        times.sort_unstable();
        let mut busy: Vec<(Instant, Instant)> = Vec::new();
        for (began, ended) in times {
            match busy.last_mut() {
                Some(last) if last.1 >= began => last.1 = ended.max(last.1),
                _ => busy.push((began, ended)),
            }
        }
        busy
    }

    /// Q3: a request that may have been processed reaches the API servers once. A read may be sent
    /// again where its API server refused it or did not answer, or its connection broke.
    fn once(&mut self) {
        self.checked("Q3", self.received.len());
        let requests: BTreeMap<&str, &SentRequest> =
            self.load.requests.iter().map(|sent| (&*sent.audit_id, sent)).collect();
        for (id, flights) in &self.received {
            let Some(sent) = requests.get(id) else { continue };
            let is_refused = |flight: &&Flight| matches!(flight.status, Some(429 | 503));
            let is_lost = |flight: &&Flight| {
                flight.status.is_none() || !self.is_quiet(sent.begun, sent.ended)
            };
            let before = &flights[..flights.len().saturating_sub(1)];
            let may_repeat = flights.len() <= ATTEMPTS_MAX
                && before
                    .iter()
                    .all(|flight| sent.is_read && (is_refused(flight) || is_lost(flight)));
            if !may_repeat {
                let count = flights.len();
                self.violations.push(("Q3", format!("{id} was received {count} times")));
            }
        }
    }

    /// Q4: a refusal says when to come back and who refused. No API server received a
    /// request that Weir refused.
    fn refusals(&mut self) {
        for request in &self.load.requests {
            let Ending::Answered { status: 429, retry_after, shed, body } = &request.ending else {
                continue;
            };
            self.checks.push(("Q4", 1));
            let received = self.received.get(&*request.audit_id);
            let refused = received
                .is_some_and(|flights| flights.iter().any(|flight| flight.status == Some(429)));
            let problem = match (shed, received) {
                _ if retry_after
                    .is_none_or(|seconds| !(1..=RETRY_AFTER_MAX).contains(&seconds)) =>
                {
                    format!("has the Retry-After {retry_after:?}")
                }
                (Some(_), Some(_)) => "was sent, and Weir refused it".to_owned(),
                (Some(_), None) if !is_refusal(body, *retry_after) => {
                    format!("has the body {}", String::from_utf8_lossy(body))
                }
                (None, _) if !refused => "does not say that Weir refused it".to_owned(),
                _ => continue,
            };
            self.violations.push(("Q4", format!("the refusal of {} {problem}", request.what)));
        }
    }

    /// Whether nothing broke during some time, and shortly before.
    fn is_quiet(&self, begun: Instant, ended: Instant) -> bool {
        let faults = &self.load.faults;
        let after = faults.partition_point(|fault| *fault + RECOVERS_WITHIN < begun);
        faults.get(after).is_none_or(|fault| *fault > ended)
    }

    /// Whether an API server refused a request, or failed at it.
    fn failed_upstream(&self, audit_id: &str) -> bool {
        let flights = self.received.get(audit_id);
        let failed = |flight: &&Flight| flight.status.is_none_or(|code| code == 429 || code >= 500);
        flights.is_some_and(|flights| flights.iter().any(failed))
    }
}

/// Whether a body is the Status of a refusal, with the time after which to come back.
fn is_refusal(body: &[u8], retry_after: Option<u64>) -> bool {
    let status: Value = serde_json::from_slice(body).unwrap_or_default();
    status["code"] == 429 && status["details"]["retryAfterSeconds"].as_u64() == retry_after
}

/// Returns the longest time between `begun` and `ended` in which nothing was busy.
fn longest_gap(busy: &[(Instant, Instant)], begun: Instant, ended: Instant) -> Duration {
    let first = busy.partition_point(|(_, until)| *until < begun);
    let (mut longest, mut idle_since) = (Duration::ZERO, begun);
    for (from, until) in busy.iter().skip(first).take_while(|(from, _)| *from < ended) {
        longest = longest.max(from.saturating_duration_since(idle_since));
        idle_since = idle_since.max(*until);
    }
    longest.max(ended.saturating_duration_since(idle_since))
}

/// The longest way of a message from a Weir to an API server, with room for a turn of each task.
const LATENCY_MAX: Duration = Duration::from_millis(10);
/// A wait for seats of 5 s, and the longest time for which an API server or its connection is away.
const ENDS_WITHIN: Duration = Duration::from_secs(45);
/// The wait of a few attempts, each of 5 s at most, and the pauses between them.
const SERVED_WITHIN: Duration = Duration::from_secs(15);
const ATTEMPTS_MAX: usize = 3;
/// The latency of the connections, and the reviews of a credential before a request waits.
const IDLE_MAX: Duration = Duration::from_millis(1500);
/// Weir estimates no longer ones.
const RETRY_AFTER_MAX: u64 = 30;
/// How long after a fault requests may fail, or be late: an API server that was away has a backlog.
const RECOVERS_WITHIN: Duration = Duration::from_secs(30);
