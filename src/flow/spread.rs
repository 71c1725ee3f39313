//! The number of addresses from which a client reads the pods of all nodes, in bounded memory.
//!
//! A client is a user with a user agent. Addresses are kept as hashes. A client that was not seen
//! for an hour is forgotten, and so is the one that was not seen for longest when there are too
//! many.

use std::time::Duration;

/// The addresses of the clients that read the pods of all nodes.
#[derive(Debug, Default)]
pub struct Spread {
    clients: Vec<Reader>,
}

#[derive(Debug)]
struct Reader {
    user: Box<str>,
    agent: Box<str>,
    /// The hash of each address, and when it was seen last.
    addresses: Vec<(u64, Duration)>,
    seen: Duration,
}

impl Spread {
    /// Notes that a client read the pods of all nodes from an address at `now`.
    pub fn note(&mut self, now: Duration, [user, agent]: [&str; 2], address: u64) {
        let found = self.clients.iter_mut().find(|it| &*it.user == user && &*it.agent == agent);
        let reader = match found {
            Some(reader) => reader,
            None => {
                if self.clients.len() >= CLIENTS_MAX {
                    let oldest = self.clients.iter().enumerate().min_by_key(|(_, it)| it.seen);
                    let oldest = oldest.map_or(0, |(place, _)| place);
                    self.clients.swap_remove(oldest);
                }
                let (user, agent) = (user.into(), agent.into());
                self.clients.push(Reader { user, agent, addresses: Vec::new(), seen: now });
                let Some(reader) = self.clients.last_mut() else { return };
                reader
            }
        };
        reader.seen = now;
        reader.addresses.retain(|(_, seen)| now.saturating_sub(*seen) < FORGOTTEN_AFTER);
        let found = reader.addresses.iter_mut().find(|(known, _)| *known == address);
        if let Some((_, seen)) = found {
            *seen = now;
        } else if reader.addresses.len() < ADDRESSES_MAX {
            reader.addresses.push((address, now));
        }
    }

    /// Returns the number of a client's addresses in the last hour, at most [`ADDRESSES_MAX`].
    pub fn addresses(&self, now: Duration, [user, agent]: [&str; 2]) -> usize {
        let reader = self.clients.iter().find(|it| &*it.user == user && &*it.agent == agent);
        let is_new = |(_, seen): &&(u64, Duration)| now.saturating_sub(*seen) < FORGOTTEN_AFTER;
        reader.map_or(0, |reader| reader.addresses.iter().filter(is_new).count())
    }
}

/// More do not change what is said.
pub const ADDRESSES_MAX: usize = 32;
/// Few programs read all pods.
const CLIENTS_MAX: usize = 64;
const FORGOTTEN_AFTER: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn addresses_are_counted_once_and_forgotten() {
        let mut spread = Spread::default();
        for number in 0..100 {
            spread.note(SECOND, ["jane", "agent/1"], number % 12);
            spread.note(SECOND, ["joe", "agent/1"], 7);
        }
        let of = |spread: &Spread, now, user| spread.addresses(now, [user, "agent/1"]);
        assert_eq!(of(&spread, SECOND, "jane"), 12);
        assert_eq!(of(&spread, SECOND, "joe"), 1);
        assert_eq!(of(&spread, SECOND, "nobody"), 0);
        assert_eq!(of(&spread, 3602 * SECOND, "jane"), 0);
    }

    #[test]
    fn memory_is_bounded_and_the_latest_clients_stay() {
        let mut spread = Spread::default();
        for number in 0..1_000_u32 {
            for address in 0..100 {
                spread.note(number * SECOND, [&number.to_string(), ""], address);
            }
        }
        assert_eq!(spread.clients.len(), CLIENTS_MAX);
        assert!(spread.clients.iter().all(|reader| reader.addresses.len() == ADDRESSES_MAX));
        assert_eq!(spread.addresses(999 * SECOND, ["999", ""]), ADDRESSES_MAX);
        assert_eq!(spread.addresses(999 * SECOND, ["1", ""]), 0);
    }
}
