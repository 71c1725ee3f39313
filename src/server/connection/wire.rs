//! The bytes that a client sends, before hyper and h2 read them.
//!
//! hyper gives Weir no request as it was sent: `http::Uri` cuts a target at `#`, and what it cannot
//! carry, hyper and h2 refuse without a body. So the bytes of a connection pass through
//! [`inbound`], which finds the heads of requests. [`http1`] frames HTTP/1.1, with [`head`] for
//! heads. [`http2`] reads the frames of HTTP/2, and [`header_block`] what matters in them, with
//! [`hpack`]. [`target`] writes request targets in a form that `http::Uri` carries without a
//! change. Parts that hyper cannot carry go around it, beside their request ([`aside`]).
//!
//! `docs/decisions/raw-targets.md` says why this is needed, and what remains.

pub(crate) mod aside;
mod head;
pub(crate) mod header_block;
mod hpack;
mod http1;
mod http2;
pub(crate) mod inbound;
pub(crate) mod target;

#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// The first bytes pass.
    Pass(usize),
    /// The first `taken` bytes are replaced.
    Replace { taken: usize, by: Vec<u8> },
    /// The same, and no other step is taken until all before was delivered.
    Part { taken: usize, by: Vec<u8> },
    /// More bytes are needed to decide.
    Withhold,
}

/// The end of a stream of bytes of which nothing passes any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Weir closes the connection after the response to the last request that has passed.
    Refused,
    /// The body of the last request that has passed cannot be read.
    Broken,
}
