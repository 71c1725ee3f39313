//! The number of addresses from which a client watches the pods of all nodes at the same time, in
//! bounded memory.
//!
//! A client is a user with a user agent. Only open watches count: a program that runs now and then,
//! or that is rolled out again, has a new address each time, but few at once. Addresses are kept as
//! hashes. If there are too many clients, the one that opened no watch for longest is forgotten.

use std::time::Duration;

/// The addresses of the clients that watch the pods of all nodes.
#[derive(Debug, Default)]
pub struct Spread {
    clients: Vec<Reader>,
}

#[derive(Debug)]
struct Reader {
    user: Box<str>,
    agent: Box<str>,
    /// The hash of each address, and the number of its open watches.
    addresses: Vec<(u64, u32)>,
    began: Duration,
}

impl Spread {
    /// Notes that a client began to watch the pods of all nodes from an address at `now`.
    pub fn open(&mut self, now: Duration, who: [&str; 2], address: u64) {
        let place = self.place(who).unwrap_or_else(|| {
            if self.clients.len() >= CLIENTS_MAX {
                let oldest = self.clients.iter().enumerate().min_by_key(|(_, client)| client.began);
                let oldest = oldest.map_or(0, |(place, _)| place);
                self.clients.swap_remove(oldest);
            }
            let [user, agent] = who.map(Into::into);
            self.clients.push(Reader { user, agent, addresses: Vec::new(), began: now });
            self.clients.len() - 1
        });
        let Some(reader) = self.clients.get_mut(place) else { return };
        reader.began = now;
        let entry = reader.addresses.iter_mut().find(|(counted, _)| *counted == address);
        if let Some((_, count)) = entry {
            *count = count.saturating_add(1);
        } else if reader.addresses.len() < ADDRESSES_MAX {
            reader.addresses.push((address, 1));
        }
    }

    /// Notes that such a watch has ended.
    pub fn close(&mut self, who: [&str; 2], address: u64) {
        let Some(place) = self.place(who) else { return };
        let Some(reader) = self.clients.get_mut(place) else { return };
        if let Some((_, count)) =
            reader.addresses.iter_mut().find(|(counted, _)| *counted == address)
        {
            *count = count.saturating_sub(1);
        }
        reader.addresses.retain(|(_, count)| *count > 0);
        if reader.addresses.is_empty() {
            self.clients.swap_remove(place);
        }
    }

    /// Returns the number of a client's addresses, at most [`ADDRESSES_MAX`].
    pub fn addresses(&self, who: [&str; 2]) -> usize {
        let reader = self.place(who).and_then(|place| self.clients.get(place));
        reader.map_or(0, |reader| reader.addresses.len())
    }

    fn place(&self, [user, agent]: [&str; 2]) -> Option<usize> {
        self.clients.iter().position(|client| &*client.user == user && &*client.agent == agent)
    }
}

/// More do not change what is said.
pub const ADDRESSES_MAX: usize = 32;
/// Few programs watch all pods.
const CLIENTS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_addresses_of_open_watches_are_counted_once() {
        let mut spread = Spread::default();
        for number in 0..100 {
            spread.open(SECOND, ["jane", "agent/1"], number % 12);
            spread.open(SECOND, ["joe", "agent/1"], 7);
        }
        let addresses = |spread: &Spread, user| spread.addresses([user, "agent/1"]);
        assert_eq!(addresses(&spread, "jane"), 12);
        assert_eq!(addresses(&spread, "joe"), 1);
        assert_eq!(addresses(&spread, "nobody"), 0);
        for number in 0..96 {
            spread.close(["jane", "agent/1"], number % 12);
        }
        assert_eq!(addresses(&spread, "jane"), 4, "these began once more");
        // A program that runs each few minutes, each time at a new address.
        for address in 1_000..1_100 {
            spread.open(SECOND, ["job", "agent/1"], address);
            assert_eq!(addresses(&spread, "job"), 1);
            spread.close(["job", "agent/1"], address);
        }
        assert_eq!(addresses(&spread, "job"), 0);
    }

    #[test]
    fn memory_is_bounded_and_the_latest_clients_stay() {
        let mut spread = Spread::default();
        for number in 0..1_000_u32 {
            for address in 0..100 {
                spread.open(number * SECOND, [&number.to_string(), ""], address);
            }
        }
        assert_eq!(spread.clients.len(), CLIENTS_MAX);
        assert!(spread.clients.iter().all(|reader| reader.addresses.len() == ADDRESSES_MAX));
        assert_eq!(spread.addresses(["999", ""]), ADDRESSES_MAX);
        assert_eq!(spread.addresses(["1", ""]), 0);
        spread.close(["1", ""], 1);
        spread.close(["999", ""], 99);
        assert_eq!(spread.addresses(["999", ""]), ADDRESSES_MAX, "neither is known");
    }
}
