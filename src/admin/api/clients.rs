//! The costs of clients, with the numbers of their open connections.

use serde_json::{Map, Value};

use crate::admin::api::json::{fields, object};
use crate::server::connection::list::ClientConnections;
use crate::server::{ConnectionList, FlowControl};

/// Returns the content of `/api/clients`: at most `limit` clients in each list.
pub(super) fn content(
    costs: &FlowControl,
    connections: &ConnectionList,
    limit: usize,
) -> Map<String, Value> {
    // One user may have several programs.
    let open = connections.clients(limit.saturating_mul(PROGRAMS));
    let connections: Value = open.iter().map(describe).collect();
    fields([("windows", costs.report(limit)), ("connections", connections)])
}

fn describe(client: &ClientConnections) -> Value {
    object([
        ("user", (&*client.user).into()),
        ("userAgent", (&*client.agent).into()),
        ("addresses", client.addresses.into()),
        ("connections", client.connections.into()),
        ("openRequests", client.open_requests.into()),
    ])
}

const PROGRAMS: usize = 4;
