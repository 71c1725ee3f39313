//! Forwarding requests to the upstream.
//!
//! [`identity`] sets the identity of a request, [`quota`] limits what one client has open,
//! [`forwarder`] sends the request and relays the response. [`upgrade`] splices upgraded
//! connections, [`claim`] holds what a request takes from the forward budgets, and [`share`] limits
//! one client there. [`watch`] ends forwarded watches when Weir drains or a cache takes over, and
//! [`documents`] serves discovery and OpenAPI documents that the upstream revalidates.
//! [`upstream_gate`] holds requests back while no API server is usable. [`packed_head`] keeps the
//! head of one small that waits for seats. [`list_times`] measures consistent lists.

pub(crate) mod claim;
pub(crate) mod documents;
pub(crate) mod forwarder;
pub(crate) mod identity;
pub(crate) mod list_times;
mod packed_head;
pub(crate) mod quota;
pub(crate) mod relay;
pub(crate) mod share;
mod traffic_class;
pub(crate) mod upgrade;
pub(crate) mod upstream_gate;
pub(crate) mod watch;
