//! The plan of a run: the hosts, the settings, the clients, the writes, and the faults, each with
//! its time. A seed makes a plan; a plan can be kept in a file, and made smaller.
//!
//! Each client, write and fault has a seed of its own, so that the others stay what they are when
//! one is left out. Each seed has only some kinds of faults (swarm testing): a rare state is
//! reached where others do not disturb it.

mod fault;
mod scenario;

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::fault::CROWD_FAULTS;
pub(crate) use self::fault::{FAULTS, Fault};
pub(crate) use self::scenario::Scenario;
use crate::crowd::{Crowd, FLOODS, NEIGHBOURS};
use crate::guests::GUESTS;

/// The plan of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// Decides what the plan does not: latencies, the sizes of reads, the order of hashes.
    pub(crate) seed: u64,
    /// The time for which faults and writes last.
    pub(crate) duration: Duration,
    /// The number of API servers.
    pub(crate) servers: usize,
    pub(crate) balancing: Balancing,
    /// The Weirs have the API servers as a list; the balancer is the last resort.
    #[serde(default)]
    pub(crate) listed: bool,
    /// The limit on the history of a cache in Weir, in bytes; `None` for the default.
    #[serde(default)]
    pub(crate) history_bytes: Option<usize>,
    /// The number of Weirs; 0 for clients of the API servers themselves.
    pub(crate) weirs: usize,
    /// The second Weir reads from the first.
    pub(crate) in_a_row: bool,
    /// Events of each resource that the API servers keep.
    pub(crate) history_events: usize,
    pub(crate) bookmark_interval: Duration,
    /// The minor version of Kubernetes.
    pub(crate) minor: u32,
    pub(crate) http2: bool,
    /// The Weirs are gateways, and guests are among their clients.
    #[serde(default)]
    pub(crate) gateway: bool,
    /// The permission of the Weirs to read the whole cluster comes and goes; that to read the
    /// namespaces stays. Only of gateways, whose clients are not concerned.
    #[serde(default)]
    pub(crate) narrow: bool,
    /// More load than the API servers carry.
    #[serde(default)]
    pub(crate) crowd: Option<Crowd>,
    /// The Weirs compare their caches with the API servers all the time, and replace those that are
    /// wrong.
    #[serde(default)]
    pub(crate) verify: bool,
    /// Weir keeps streams through a relist.
    pub(crate) keeps_streams: bool,
    pub(crate) page_size: u32,
    /// After which time without a user a cache is stopped.
    pub(crate) idle_timeout: Duration,
    pub(crate) clients: Vec<ClientPlan>,
    pub(crate) faults: Vec<Strike>,
    pub(crate) writes: Vec<Burst>,
    /// Clients and writers draw from everything ([`crate::resources::vary`]).
    #[serde(default)]
    pub(crate) varied: bool,
}

/// How the balancer gives connections to API servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Balancing {
    /// To each in turn; now and then to one that is away.
    Turns,
    /// To the same one for each host, as long as it is there.
    Sticky,
    /// To the one that was away last, even while it is away.
    LastAway,
}

/// A client.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ClientPlan {
    pub(crate) kind: ClientKind,
    pub(crate) number: usize,
    pub(crate) seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ClientKind {
    Informer,
    Reader,
    Watcher,
    Writer,
    /// A user of a gateway with few permissions.
    Guest,
    /// A user of a gateway whose permission to watch comes and goes.
    Revoked,
    /// It sends more than its share.
    Flood,
    /// It sends one request after the other, beside a flood.
    Neighbour,
}

/// Some writes at one moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Burst {
    /// Milliseconds after the start.
    pub(crate) at_ms: u64,
    pub(crate) count: usize,
    pub(crate) seed: u64,
}

/// A fault at one moment, or as soon as the one before is over.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Strike {
    /// Milliseconds after the start.
    pub(crate) at_ms: u64,
    pub(crate) fault: Fault,
    pub(crate) seed: u64,
}

impl Plan {
    /// Whether connections upstream stay open and pass nothing.
    pub(crate) fn has_dead_connections(&self) -> bool {
        let is_dead =
            |fault| matches!(fault, Fault::FreezeUpstream | Fault::BlackHole | Fault::HalfClose);
        self.faults.iter().any(|strike| is_dead(strike.fault))
    }

    /// Makes the plan of a seed.
    pub(crate) fn new(seed: u64, minutes: f64, direct: bool) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let duration = Duration::from_secs_f64(minutes * 60.0);
        let fault_interval = Duration::from_secs(rng.u64(3..30));
        let weirs = if direct { 0 } else { 1 + usize::from(rng.u8(..2) == 0) };
        let servers = if rng.bool() { 1 } else { rng.usize(2..4) };
        let balancings = [Balancing::Turns, Balancing::Sticky, Balancing::LastAway];
        let history_events = if rng.u8(..4) == 0 { rng.usize(4..20) } else { rng.usize(20..400) };
        let write_interval = Duration::from_millis(rng.u64(200..2000));
        let in_a_row = weirs == 2 && rng.u8(..3) == 0;
        // Draws nothing: the other runs stay what they are.
        let gateway = weirs > 0 && !in_a_row && seed % 5 == 3;
        let narrow = gateway && seed % 10 == 8;
        let mut plan = Self {
            seed,
            duration,
            servers,
            balancing: balancings[rng.usize(..3)],
            listed: servers > 1 && seed.is_multiple_of(3),
            history_bytes: (seed % 7 == 5).then_some(HISTORY_BYTES),
            weirs,
            in_a_row,
            history_events,
            bookmark_interval: Duration::from_secs(rng.u64(2..60)),
            minor: MINOR,
            http2: rng.u8(..4) > 0,
            keeps_streams: rng.bool(),
            page_size: if rng.u8(..4) == 0 { 3 } else { rng.u32(3..500) },
            idle_timeout: Duration::from_secs(rng.u64(5..600)),
            gateway,
            narrow,
            crowd: None,
            verify: false,
            clients: clients(&mut rng, if gateway { GUESTS } else { 0 }),
            faults: {
                let kinds = kinds(&mut rng, direct);
                strikes(&mut rng, duration, fault_interval, &kinds)
            },
            writes: bursts(&mut rng, duration, write_interval),
            varied: true,
        };
        if narrow {
            plan.revoke();
        }
        if !direct && Crowd::is_of(seed) { plan.with_crowd() } else { plan }
    }

    /// Draws other faults, of these kinds only and often: for bugs that few kinds show. A crowd
    /// stays only where all of them are kinds for a crowd: it writes while others hold their
    /// writes, and a request that it sent on a frozen connection arrives when its seat was
    /// released.
    pub(crate) fn with_faults(mut self, kinds: &[Fault]) -> Self {
        let is_for_crowds =
            |kind: &Fault| CROWD_FAULTS.contains(kind) || matches!(kind, Fault::ChangePlan);
        if !kinds.iter().all(is_for_crowds) {
            self.crowd = None;
            self.clients
                .retain(|client| !matches!(client.kind, ClientKind::Flood | ClientKind::Neighbour));
        }
        let mut rng = fastrand::Rng::with_seed(self.seed);
        let interval = Duration::from_secs(rng.u64(2..12));
        self.faults = strikes(&mut rng, self.duration, interval, kinds);
        self
    }

    /// Sends more load than the API servers carry: half of the Weirs are gateways. Faults
    /// are rare, so that there is time in which nothing is wrong.
    pub(crate) fn with_crowd(mut self) -> Self {
        let mut rng = fastrand::Rng::with_seed(self.seed ^ 0xf100d);
        (self.in_a_row, self.narrow) = (false, false);
        self.gateway = rng.bool();
        let crowd = Crowd::draw(self.seed, self.gateway);
        let mut kinds: Vec<Fault> =
            CROWD_FAULTS.iter().filter(|_| rng.u8(..4) == 0).copied().collect();
        if crowd.has_plan {
            kinds.extend([Fault::ChangePlan; 3]);
        }
        let interval = Duration::from_secs(rng.u64(20..80));
        self.faults = strikes(&mut rng, self.duration, interval, &kinds);
        let guests = if self.gateway { GUESTS } else { 0 };
        let users = [ClientKind::Guest, ClientKind::Revoked];
        self.clients.retain(|client| !users.contains(&client.kind));
        let more = [
            (ClientKind::Guest, guests),
            (ClientKind::Revoked, guests / GUESTS),
            (ClientKind::Flood, FLOODS),
            (ClientKind::Neighbour, NEIGHBOURS),
        ];
        for (kind, count) in more {
            self.clients.extend((0..count).map(|number| ClientPlan {
                kind,
                number,
                seed: rng.u64(..),
            }));
        }
        self.crowd = Some(crowd);
        self
    }

    /// Revokes the permission to read the whole cluster now and then. A forwarded request then
    /// cannot notice a lost history, as without Weir.
    fn revoke(&mut self) {
        self.faults.retain(|strike| !matches!(strike.fault, Fault::Restore | Fault::Swap));
        let mut rng = fastrand::Rng::with_seed(self.seed);
        let mut at = Duration::from_secs(rng.u64(10..60));
        while at < self.duration {
            let at_ms = at.as_millis() as u64;
            self.faults.push(Strike { at_ms, fault: Fault::Revoke, seed: rng.u64(..) });
            at += Duration::from_secs(rng.u64(100..300));
        }
        self.faults.sort_by_key(|strike| strike.at_ms);
    }

    /// Whether the watch caches of API servers stay behind at times.
    pub(crate) fn has_lag(&self) -> bool {
        self.faults.iter().any(|strike| strike.fault == Fault::Lag)
    }

    /// Reads a plan from a file.
    pub(crate) fn read(file: &Path) -> Self {
        let text = std::fs::read(file).expect("the plan is read");
        serde_json::from_slice(&text).expect("the file is a plan")
    }

    /// Writes the plan to a file.
    pub(crate) fn write(&self, file: &Path) {
        let text = serde_json::to_string(self).expect("a plan is encoded");
        std::fs::write(file, text + "\n").expect("the plan is written");
    }

    /// Returns everything but the clients, the faults and the writes.
    pub(crate) fn settings(&self) -> String {
        let (clients, faults, writes) = (Vec::new(), Vec::new(), Vec::new());
        format!("{:?}", Self { clients, faults, writes, ..self.clone() })
    }

    /// Returns a small plan without faults at random, for cuts at each point in turn.
    pub(crate) fn short(seed: u64, minutes: f64, scenario: Scenario) -> Self {
        let mut plan = Self::new(seed, minutes, false);
        let kinds = [ClientKind::Informer, ClientKind::Reader, ClientKind::Writer];
        plan.clients.retain(|client| kinds.contains(&client.kind) && client.number < 2);
        plan.faults = scenario.strikes(plan.duration, seed);
        let plan = Self { servers: 1, weirs: 1, in_a_row: false, crowd: None, ..plan };
        scenario.settings(plan)
    }
}

fn clients(rng: &mut fastrand::Rng, guests: usize) -> Vec<ClientPlan> {
    let kinds = [
        (ClientKind::Informer, rng.usize(4..10)),
        (ClientKind::Reader, rng.usize(2..6)),
        (ClientKind::Watcher, rng.usize(1..4)),
        (ClientKind::Writer, rng.usize(1..3)),
        (ClientKind::Guest, guests),
        (ClientKind::Revoked, guests / GUESTS),
    ];
    let mut clients = Vec::new();
    for (kind, count) in kinds {
        clients.extend((0..count).map(|number| ClientPlan { kind, number, seed: rng.u64(..) }));
    }
    clients
}

/// Draws some kinds of faults.
fn kinds(rng: &mut fastrand::Rng, direct: bool) -> Vec<Fault> {
    let mut kinds: Vec<Fault> = FAULTS.iter().filter(|_| rng.u8(..5) == 0).copied().collect();
    kinds.retain(|fault| !direct || fault.is_direct());
    kinds
}

fn strikes(
    rng: &mut fastrand::Rng,
    duration: Duration,
    interval: Duration,
    kinds: &[Fault],
) -> Vec<Strike> {
    let mut strikes = Vec::new();
    let mut at = Duration::ZERO;
    while !kinds.is_empty() {
        at += interval.mul_f64(rng.f64() * 2.0);
        if at >= duration {
            break;
        }
        let fault = kinds[rng.usize(..kinds.len())];
        strikes.push(Strike { at_ms: at.as_millis() as u64, fault, seed: rng.u64(..) });
    }
    strikes
}

fn bursts(rng: &mut fastrand::Rng, duration: Duration, interval: Duration) -> Vec<Burst> {
    let mut bursts = Vec::new();
    let mut at = Duration::ZERO;
    while at < duration {
        at += interval.mul_f64(rng.f64() * 2.0);
        // A burst overtakes readers, and short histories.
        let count = if rng.u8(..20) == 0 { rng.usize(..60) } else { 1 };
        bursts.push(Burst { at_ms: at.as_millis() as u64, count, seed: rng.u64(..) });
    }
    bursts
}

/// The newest version that the simulator imitates.
const MINOR: u32 = 36;
/// A few events.
const HISTORY_BYTES: usize = 5000;
