//! The balancer before the simulated API servers: it gives each connection to one of them.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

/// How connections are given to API servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balancing {
    /// To each in turn.
    #[default]
    Turns,
    /// A connection whose first request is a watch goes to the last API server, any other to the
    /// first: what a balancer that knows no requests may do as well.
    WatchesApart,
}

#[derive(Debug)]
pub(super) struct Balancer {
    servers: usize,
    balancing: Mutex<Balancing>,
    turn: AtomicUsize,
}

/// The API server of one connection. It is chosen with the first request.
#[derive(Debug)]
pub(super) struct ChosenServer(OnceLock<usize>);

impl ChosenServer {
    /// Returns the server of a connection to the address of this one.
    pub(super) fn with_server(server: Option<usize>) -> Self {
        Self(server.map_or_else(OnceLock::new, OnceLock::from))
    }
}

impl Balancer {
    /// Returns a balancer before this number of API servers.
    pub(super) fn new(servers: usize) -> Self {
        Self { servers: servers.max(1), balancing: Mutex::default(), turn: AtomicUsize::new(0) }
    }

    /// Sets how later connections are given to API servers.
    pub(super) fn set(&self, balancing: Balancing) {
        *self.balancing.lock() = balancing;
    }

    /// Returns the API server of a connection that sends a request.
    pub(super) fn choose(&self, connection: &ChosenServer, is_watch: bool) -> usize {
        *connection.0.get_or_init(|| match *self.balancing.lock() {
            Balancing::Turns => self.turn.fetch_add(1, Ordering::Relaxed) % self.servers,
            Balancing::WatchesApart if is_watch => self.servers - 1,
            Balancing::WatchesApart => 0,
        })
    }
}
