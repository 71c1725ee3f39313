//! The classes of traffic to the upstream.

/// The kind of exchange that a request starts. It decides which connections carry the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TrafficClass {
    /// An ordinary request.
    Request,
    /// A list of a whole collection whose body is parsed while it arrives. It uses HTTP/1.1 on a
    /// connection of its own, which Go's server fills in a fifth less time than an HTTP/2 stream,
    /// and where it delays no other exchange.
    List,
    /// A watch or another long-lived stream (logs with `follow`): at most 64 on an HTTP/2
    /// connection, which carries no requests.
    Stream,
    /// An upgrade (SPDY, WebSocket): HTTP/1.1 on a connection of its own. A 101 response has
    /// `hyper::upgrade::OnUpgrade` in its extensions. After any other response the connection is
    /// closed.
    Upgrade,
}
