//! The network: hosts by name, the open connections between them, and what breaks them.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use crate::pipe::{CutPoint, Link, Pipe, pipe};
use crate::plan::Balancing;
use crate::trace::{FNV_OFFSET, Trace, fnv};

/// The network. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Network(Arc<Mutex<Inner>>);

struct Inner {
    hosts: BTreeMap<String, Listener>,
    balancers: BTreeMap<String, Balancer>,
    links: BTreeMap<u64, OpenLink>,
    next_link: u64,
    rng: fastrand::Rng,
    trace: Trace,
    /// Where a connection of a Weir to its upstream is cut.
    cut_point: Arc<CutPoint>,
}

/// Gives connections to its name to one of some hosts.
struct Balancer {
    hosts: Vec<String>,
    balancing: Balancing,
    turn: usize,
    /// The host that was away last.
    last_away: usize,
}

/// Takes a connection; returns whether it was accepted.
type Listener = Arc<dyn Fn(Pipe) -> bool + Send + Sync>;

struct OpenLink {
    from: String,
    to: String,
    link: Weak<Link>,
}

impl Network {
    pub(crate) fn new(rng: fastrand::Rng, trace: Trace, cut_point: Arc<CutPoint>) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            hosts: BTreeMap::new(),
            balancers: BTreeMap::new(),
            links: BTreeMap::new(),
            next_link: 0,
            rng,
            trace,
            cut_point,
        })))
    }

    /// Lets a host accept connections, in place of what it did before.
    pub(crate) fn listen(
        &self,
        host: &str,
        listener: impl Fn(Pipe) -> bool + Send + Sync + 'static,
    ) {
        self.0.lock().hosts.insert(host.to_owned(), Arc::new(listener));
    }

    /// Gives connections to a name to these hosts.
    pub(crate) fn balance(&self, name: &str, hosts: Vec<String>, balancing: Balancing) {
        let balancer = Balancer { hosts, balancing, turn: 0, last_away: 0 };
        self.0.lock().balancers.insert(name.to_owned(), balancer);
    }

    /// Lets a host refuse connections.
    pub(crate) fn shut(&self, host: &str) {
        let mut inner = self.0.lock();
        inner.hosts.remove(host);
        for balancer in inner.balancers.values_mut() {
            let number = balancer.hosts.iter().position(|other| other == host);
            balancer.last_away = number.unwrap_or(balancer.last_away);
        }
    }

    /// Opens a connection.
    pub(crate) async fn connect(&self, from: &str, to: &str) -> io::Result<Pipe> {
        // A handshake takes a moment.
        tokio::time::sleep(HANDSHAKE).await;
        let (listener, near, far) = {
            let mut inner = self.0.lock();
            let to = &inner.balanced(from, to);
            let Some(listener) = inner.hosts.get(to).cloned() else {
                return Err(io::ErrorKind::ConnectionRefused.into());
            };
            let latency = Duration::from_millis(inner.rng.u64(..LATENCY_MS_MAX));
            let rng = inner.rng.fork();
            let is_upstream = from.starts_with("weir");
            let cut_point = is_upstream.then(|| Arc::clone(&inner.cut_point));
            let (near, far, link) = pipe(latency, rng, cut_point);
            let number = inner.next_link;
            inner.next_link += 1;
            inner.trace.line(&format!("connection {number} {from} to {to}"));
            let open =
                OpenLink { from: from.to_owned(), to: to.clone(), link: Arc::downgrade(&link) };
            inner.links.insert(number, open);
            (listener, near, far)
        };
        if listener(far) { Ok(near) } else { Err(io::ErrorKind::ConnectionRefused.into()) }
    }

    /// Cuts all connections that a host has opened or accepted.
    pub(crate) fn cut_host(&self, host: &str) {
        self.each(|from, to| from == host || to == host, |link| link.cut());
    }

    /// Does something to one connection at random between hosts with these prefixes.
    pub(crate) fn disturb(&self, from: &str, to: &str, disturb: impl Fn(&Link)) {
        let links = self.open(|a, b| a.starts_with(from) && b.starts_with(to));
        let mut inner = self.0.lock();
        if links.is_empty() {
            return;
        }
        let picked = inner.rng.usize(..links.len());
        let (number, link) = &links[picked];
        let [there, back] = link.total_bytes();
        inner.trace.line(&format!("disturbed connection {number} after {there} and {back} bytes"));
        drop(inner);
        disturb(link);
    }

    /// Lets all frozen connections go on.
    pub(crate) fn thaw(&self) {
        self.each(|_, _| true, |link| link.freeze(false));
    }

    fn each(&self, matches: impl Fn(&str, &str) -> bool, change: impl Fn(&Link)) {
        for (_, link) in self.open(matches) {
            change(&link);
        }
    }

    /// Returns the open connections, and forgets the closed ones.
    fn open(&self, matches: impl Fn(&str, &str) -> bool) -> Vec<(u64, Arc<Link>)> {
        let mut inner = self.0.lock();
        inner.links.retain(|_, open| open.link.strong_count() > 0);
        let matching = inner.links.iter().filter(|(_, open)| matches(&open.from, &open.to));
        matching.filter_map(|(number, open)| Some((*number, open.link.upgrade()?))).collect()
    }
}

impl Inner {
    /// Returns the host behind a name.
    fn balanced(&mut self, from: &str, to: &str) -> String {
        let Some(balancer) = self.balancers.get_mut(to) else { return to.to_owned() };
        let first = match balancer.balancing {
            Balancing::LastAway => return balancer.hosts[balancer.last_away].clone(),
            Balancing::Turns => balancer.turn,
            Balancing::Sticky => fnv(FNV_OFFSET, from.as_bytes()) as usize,
        };
        balancer.turn += 1;
        // It takes some time until it notices that a host is away.
        let is_unnoticed = balancer.balancing == Balancing::Turns && self.rng.bool();
        let count = balancer.hosts.len();
        let mut in_order = (0..count).map(|step| &balancer.hosts[(first % count + step) % count]);
        let mut alive =
            in_order.clone().filter(|host| is_unnoticed || self.hosts.contains_key(*host));
        alive.next().or(in_order.next()).cloned().unwrap_or_default()
    }
}

const HANDSHAKE: Duration = Duration::from_millis(1);
const LATENCY_MS_MAX: u64 = 4;
