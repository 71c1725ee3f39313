//! Forwarding requests to the upstream.
//!
//! [`identity`] sets the identity of a request, [`quota`] limits what one client has open,
//! [`forwarder`] sends the request and relays the response. [`upgrade`] splices upgraded
//! connections, [`watch`] ends forwarded watches when Weir drains, and [`documents`] serves
//! discovery and OpenAPI documents that the upstream revalidates.

pub(crate) mod documents;
pub(crate) mod forwarder;
pub(crate) mod guards;
pub(crate) mod identity;
pub(crate) mod quota;
mod relay;
mod traffic_class;
pub(crate) mod upgrade;
pub(crate) mod watch;
