//! The server of a reflector.
//!
//! Rendezvous hashing by resource spreads reflectors over the servers. A reflector stays where it
//! is while its server is usable: a server that lags behind the one before it delays events. After
//! it had to move, it returns when its watch ends by itself, at most once a minute.
//!
//! A server whose watch cache lags behind the reflector is avoided for a while
//! (`docs/decisions/reflector-failures.md`).
//!
//! Lock: that of the position, held for a few instructions.

use std::time::Duration;

use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::time::Instant;

use super::choice::{self, Candidate};

/// The server of a reflector.
#[derive(Debug)]
pub(crate) struct Pin {
    key: u64,
    position: Mutex<Position>,
}

#[derive(Debug, Default)]
struct Position {
    /// The server of the last request.
    current: Option<Current>,
    /// The server of the last watch. A probe meanwhile may have moved the others.
    watched: Option<u64>,
    /// The server that has last shown to be as far as the reflector.
    confirmed: Option<u64>,
    /// The servers that lag, and until when they are avoided.
    left: SmallVec<[(u64, Instant); 4]>,
}

#[derive(Clone, Copy, Debug)]
struct Current {
    server: u64,
    since: Instant,
}

impl Pin {
    /// Creates the pin of a resource, given its path.
    pub(crate) fn new(name: &str) -> Self {
        Self { key: choice::key(name), position: Mutex::default() }
    }

    /// Chooses among usable servers. Those that lag are chosen only if there are no others.
    pub(super) fn choose(&self, candidates: &[Candidate], now: Instant) -> Option<usize> {
        let mut position = self.position.lock();
        position.left.retain(|(_, until)| now < *until);
        let is_left =
            |candidate: &Candidate| position.left.iter().any(|(key, _)| *key == candidate.key);
        let mut preferred: SmallVec<[Candidate; 8]> =
            candidates.iter().filter(|candidate| !is_left(candidate)).copied().collect();
        if preferred.is_empty() {
            // All lag: the one that was left first has had the most time to catch up.
            let candidate = |key: u64| candidates.iter().find(|candidate| candidate.key == key);
            preferred.extend(position.left.iter().find_map(|(key, _)| candidate(*key)).copied());
        }
        let home = *choice::rendezvous(self.key, &preferred).first()?;
        let at = |current: Current| {
            preferred.iter().position(|candidate| candidate.key == current.server)
        };
        let stays = |current: &Current| now.saturating_duration_since(current.since) < STAY_MIN;
        let chosen = position.current.filter(stays).and_then(at).unwrap_or(home);
        let server = preferred.get(chosen)?.key;
        if position.current.is_none_or(|current| current.server != server) {
            position.current = Some(Current { server, since: now });
        }
        candidates.iter().position(|candidate| candidate.key == server)
    }

    /// Returns the key of the server of the last request.
    pub(crate) fn current(&self) -> Option<u64> {
        self.position.lock().current.map(|current| current.server)
    }

    /// Notes that a server sends a watch. The first one is as far as the reflector, which has its
    /// state from there.
    pub(crate) fn opened(&self, server: u64) {
        let mut position = self.position.lock();
        position.watched = Some(server);
        position.confirmed.get_or_insert(server);
    }

    /// Returns the server of the last watch, if it has not shown to be as far as the reflector.
    pub(crate) fn unconfirmed(&self) -> Option<u64> {
        let position = self.position.lock();
        position.watched.filter(|watched| position.confirmed != Some(*watched))
    }

    /// Notes that a server is as far as the reflector. Returns false if the last watch comes from
    /// another one.
    pub(crate) fn confirm(&self, server: u64) -> bool {
        let mut position = self.position.lock();
        let is_watched = position.watched == Some(server);
        if is_watched {
            position.confirmed = Some(server);
        }
        is_watched
    }

    /// Avoids the server of the last request for [`LEAVE`].
    pub(crate) fn leave(&self, now: Instant) {
        let mut position = self.position.lock();
        if let Some(current) = position.current.take() {
            position.avoid(current.server, now);
        }
    }

    /// Avoids the server of the last watch for [`LEAVE`].
    pub(crate) fn leave_watched(&self, now: Instant) {
        let mut position = self.position.lock();
        if let Some(watched) = position.watched.take() {
            position.current = position.current.filter(|current| current.server != watched);
            position.avoid(watched, now);
        }
    }
}

impl Position {
    fn avoid(&mut self, server: u64, now: Instant) {
        self.left.retain(|(key, _)| *key != server);
        self.left.push((server, now + LEAVE));
    }
}

/// How long a reflector stays at a server, once it has moved there.
const STAY_MIN: Duration = Duration::from_secs(60);
/// How long a server that lags is avoided.
const LEAVE: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(keys: &[u64]) -> Vec<Candidate> {
        let one = |&key: &u64| Candidate {
            key,
            in_use: 0,
            latency: None,
            is_avoided: false,
            seats_part: 1.0,
        };
        keys.iter().map(one).collect()
    }

    #[test]
    fn a_reflector_moves_once_and_returns_after_a_minute() {
        let (pin, start) = (Pin::new("/api/v1/pods"), Instant::now());
        let servers = candidates(&[1, 2, 3]);
        let home = servers[pin.choose(&servers, start).unwrap()].key;
        let others = candidates(
            &servers
                .iter()
                .map(|candidate| candidate.key)
                .filter(|candidate| *candidate != home)
                .collect::<Vec<_>>(),
        );
        let away = others[pin.choose(&others, start).unwrap()].key;
        let chosen = |seconds| {
            let index = pin.choose(&servers, start + Duration::from_secs(seconds)).unwrap();
            servers[index].key
        };
        assert_eq!((chosen(0), chosen(59)), (away, away), "the first server is usable again");
        assert_eq!((chosen(60), chosen(61)), (home, home));
        assert_eq!(pin.choose(&[], start), None);
    }

    #[test]
    fn a_server_that_lags_is_avoided_for_a_while_unless_all_do() {
        let (pin, start) = (Pin::new("/api/v1/pods"), Instant::now());
        let servers = candidates(&[1, 2]);
        let chosen = |seconds| {
            let index = pin.choose(&servers, start + Duration::from_secs(seconds)).unwrap();
            servers[index].key
        };
        let home = chosen(0);
        pin.opened(home);
        assert_eq!(pin.unconfirmed(), None, "the first one");
        pin.leave(start);
        let other = chosen(0);
        assert_ne!(other, home);
        pin.opened(other);
        assert_eq!(pin.unconfirmed(), Some(other));
        assert!(!pin.confirm(home) && pin.confirm(other));
        assert_eq!((pin.unconfirmed(), chosen(29)), (None, other));
        pin.leave(start + Duration::from_secs(29));
        // Both lag: the one that was left first has had the most time.
        assert_eq!(chosen(29), home);
        assert_eq!(chosen(31), home, "it is avoided no more");
    }

    /// A probe may be sent between a watch and its head.
    #[test]
    fn a_request_that_moves_does_not_change_which_server_sends_the_watch() {
        let (pin, start) = (Pin::new("/api/v1/pods"), Instant::now());
        let servers = candidates(&[1, 2, 3]);
        let home = servers[pin.choose(&servers, start).unwrap()].key;
        let [lagging, other]: [u64; 2] = servers
            .iter()
            .map(|candidate| candidate.key)
            .filter(|key| *key != home)
            .collect::<Vec<_>>()
            .try_into()
            .unwrap();
        pin.opened(home);
        pin.choose(&candidates(&[lagging]), start);
        pin.choose(&candidates(&[other]), start);
        pin.opened(lagging);
        assert_eq!((pin.current(), pin.unconfirmed()), (Some(other), Some(lagging)));
        assert!(!pin.confirm(other));
        pin.leave_watched(start);
        assert_eq!(pin.current(), Some(other), "it is not the one that lags");
        assert_eq!(pin.choose(&candidates(&[lagging, other]), start + STAY_MIN / 4), Some(1));
    }

    #[test]
    fn reflectors_are_spread() {
        let (servers, now) = (candidates(&[1, 2, 3]), Instant::now());
        let mut counts = [0; 3];
        for index in 0..90 {
            counts[Pin::new(&format!("/apis/group{index}/v1/things"))
                .choose(&servers, now)
                .unwrap()] += 1;
        }
        assert!(counts.iter().all(|&count| count > 15), "{counts:?}");
    }
}
