//! The open connections of clients, for operators. The list names users, so that only the admin
//! listener's rule for details may give it away.
//!
//! Memory: about 200 bytes and two texts of at most [`TEXT_BYTES_MAX`] for each connection, of
//! which there is a limit.
//!
//! Lock order: alone.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::server::accept::listener::ListenerKind;
use crate::server::connection::activity::ConnActivity;

/// The open connections. Cheap to clone: all clones share them.
#[derive(Clone, Default)]
pub struct ConnectionList(Arc<Mutex<HashMap<u64, Arc<OpenConnection>>>>);

/// A connection in the list, until it is dropped.
pub(crate) struct ListedConnection {
    list: ConnectionList,
    number: u64,
    connection: Arc<OpenConnection>,
}

/// The open connections of a client: of a user, if known, with a User-Agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientConnections {
    /// The user; empty if not known.
    pub(crate) user: Box<str>,
    /// The User-Agent of the first request of each.
    pub(crate) agent: Box<str>,
    /// The addresses that they come from.
    pub(crate) addresses: usize,
    pub(crate) connections: usize,
    /// The open requests on them, most of which are watches.
    pub(crate) open_requests: usize,
}

struct OpenConnection {
    listener: ListenerKind,
    address: Option<IpAddr>,
    activity: ConnActivity,
    requests: AtomicU64,
    /// The user, if known, and the User-Agent of the first request.
    client: OnceLock<[Box<str>; 2]>,
}

impl ConnectionList {
    pub(crate) fn add(
        &self,
        number: u64,
        listener: ListenerKind,
        address: Option<IpAddr>,
        activity: ConnActivity,
    ) -> ListedConnection {
        let (requests, client) = (AtomicU64::new(0), OnceLock::new());
        let connection = Arc::new(OpenConnection { listener, address, activity, requests, client });
        self.0.lock().insert(number, Arc::clone(&connection));
        ListedConnection { list: self.clone(), number, connection }
    }

    /// Returns the number of open connections, and at most `limit` of them: those with the most
    /// open requests first, then those with the most requests.
    pub fn describe(&self, limit: usize) -> Value {
        let mut open: Vec<_> = self
            .0
            .lock()
            .iter()
            .map(|(number, connection)| (*number, Arc::clone(connection)))
            .collect();
        let count = open.len();
        let busy = |connection: &OpenConnection| {
            (connection.activity.open_requests(), connection.requests.load(Ordering::Relaxed))
        };
        // Each is read once: they change meanwhile, and a sort may panic at an order that does.
        open.sort_by_cached_key(|(number, connection)| {
            (std::cmp::Reverse(busy(connection)), *number)
        });
        open.truncate(limit);
        let items: Vec<_> =
            open.iter().map(|(number, connection)| connection.describe(*number)).collect();
        json!({
            "apiVersion": "weir.dev/v1alpha1",
            "kind": "ConnectionList",
            "open": count,
            "items": items,
        })
    }

    /// Returns the open connections by their clients: at most `limit` of those, the ones with the
    /// most open requests first.
    pub(crate) fn clients(&self, limit: usize) -> Vec<ClientConnections> {
        let open: Vec<_> = self.0.lock().values().map(Arc::clone).collect();
        let mut clients = HashMap::<&[Box<str>; 2], (HashSet<IpAddr>, usize, usize)>::new();
        for connection in &open {
            let Some(client) = connection.client.get() else { continue };
            let (addresses, connections, requests) = clients.entry(client).or_default();
            addresses.extend(connection.address);
            *connections += 1;
            *requests += connection.activity.open_requests();
        }
        let mut clients: Vec<_> = clients.into_iter().collect();
        clients.sort_unstable_by(|(one, (.., few)), (other, (.., many))| {
            many.cmp(few).then_with(|| one.cmp(other))
        });
        clients
            .into_iter()
            .take(limit)
            .map(|([user, agent], (addresses, connections, open_requests))| ClientConnections {
                user: user.clone(),
                agent: agent.clone(),
                addresses: addresses.len(),
                connections,
                open_requests,
            })
            .collect()
    }
}

impl ListedConnection {
    /// Counts a request. Returns whether it is the first, whose client is to be noted.
    pub(crate) fn begin_request(&self) -> bool {
        self.connection.requests.fetch_add(1, Ordering::Relaxed) == 0
    }

    /// Notes the user, if known, and the User-Agent of the first request.
    pub(crate) fn note_client(&self, user: &str, agent: &str) {
        self.connection.client.get_or_init(|| [cut(user), cut(agent)]);
    }
}

impl Drop for ListedConnection {
    fn drop(&mut self) {
        self.list.0.lock().remove(&self.number);
    }
}

impl OpenConnection {
    fn describe(&self, number: u64) -> Value {
        let client = self.client.get();
        let [user, agent] = client.map_or(["", ""], |[user, agent]| [user, agent]);
        json!({
            "number": number,
            "listener": self.listener.as_str(),
            "address": self.address.map(|address| address.to_string()),
            "isHTTP2": self.activity.is_http2(),
            "ageSeconds": self.activity.age().as_secs(),
            "requests": self.requests.load(Ordering::Relaxed),
            "openRequests": self.activity.open_requests(),
            "user": user,
            "userAgent": agent,
        })
    }
}

fn cut(text: &str) -> Box<str> {
    text.get(..text.floor_char_boundary(TEXT_BYTES_MAX)).unwrap_or_default().into()
}

/// The costs of clients use the same bound.
const TEXT_BYTES_MAX: usize = 120;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn clients_are_those_of_a_user_and_an_agent() {
        let list = ConnectionList::default();
        let open = |number, last| {
            let address = Some(IpAddr::from([10, 0, 0, last]));
            list.add(number, ListenerKind::Tls, address, ConnActivity::new())
        };
        let connections = [open(0, 1), open(1, 1), open(2, 2), open(3, 3)];
        connections[..3].iter().for_each(|connection| connection.note_client("jane", "kubectl"));
        connections[3].note_client("jane", "python");
        let _watch = connections[3].connection.activity.begin_request();
        let clients = list.clients(10);
        let figures =
            clients.iter().map(|client| (&*client.agent, client.addresses, client.connections));
        assert_eq!(figures.collect::<Vec<_>>(), [("python", 1, 1), ("kubectl", 2, 3)]);
        assert_eq!((clients[0].open_requests, clients[1].open_requests), (1, 0));
        assert_eq!(list.clients(1).len(), 1);
    }

    #[tokio::test]
    async fn the_busiest_connections_are_first_and_closed_ones_are_gone() {
        let list = ConnectionList::default();
        let open = |number| list.add(number, ListenerKind::Tls, None, ConnActivity::new());
        let connections: Vec<_> = (0..5).map(open).collect();
        assert!(connections[3].begin_request() && !connections[3].begin_request());
        connections[3].note_client("jane", &"x".repeat(500));
        connections[3].note_client("joe", "");
        assert!(connections[1].begin_request());
        let described = list.describe(2);
        assert_eq!((&described["open"], &described["items"][0]["number"]), (&json!(5), &json!(3)));
        assert_eq!(
            (&described["items"][1]["number"], &described["items"][2]),
            (&json!(1), &Value::Null)
        );
        let first = &described["items"][0];
        assert_eq!((&first["user"], &first["requests"]), (&json!("jane"), &json!(2)));
        assert_eq!(first["userAgent"].as_str().unwrap().len(), TEXT_BYTES_MAX);
        drop(connections);
        assert_eq!(list.describe(9)["open"], 0);
    }
}
