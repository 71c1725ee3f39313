//! The parts of a Weir that tests replace beside its configuration: constants, and the sockets
//! below the connections to the upstream. No file, flag or variable sets any of them.
//!
//! A simulation of whole clusters in one process, with virtual time, cannot use sockets: the kernel
//! delivers their bytes at moments that no seed decides.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};

/// Constants of a Weir, for tests to change. The default is what every Weir has.
#[derive(Clone, Debug)]
pub struct Seams {
    /// A cache without any use for this time is stopped: longer than the pauses of controllers
    /// that resync every few minutes, short enough that a client that listed everything once does
    /// not fill the memory permanently.
    pub idle_timeout: Duration,

    /// Lists and watches of one resource that may be forwarded at once because its cache exceeds a
    /// byte budget. This may last, so that there must be enough for all clients. A watch counts
    /// only until it has begun, as in kube-apiserver, which by default runs 400 reads at once.
    pub over_budget_forwards: usize,

    /// Objects on a page when the reflector lists in pages: the page size of client-go's pager.
    pub page_size: u32,

    /// The time in which all objects of a cache are compared once: 100,000 objects are 200 pages
    /// of metadata, one each 3 seconds.
    pub verify_round: Duration,

    /// The bytes of whole objects that are compared in a round, over all caches, as a rough limit.
    /// A megabyte of whole objects costs kube-apiserver some 3 ms more than its metadata, so that
    /// these cost less than a tenth of a percent of a core (docs/decisions/verified-caches.md).
    pub verify_whole_bytes: usize,

    /// Time-out for reading the head of a request: kube-apiserver's `ReadHeaderTimeout` (apiserver
    /// `pkg/server/secure_serving.go`).
    pub header_read_timeout: Duration,

    /// How long a request waits for the cache to become fresh before it is forwarded:
    /// kube-apiserver's `blockTimeout` (docs/semantics.md §2.1). The slowest proof, a short watch
    /// of a large and quiet resource, takes up to 2.3 s.
    pub freshness_timeout: Duration,

    /// How long a request waits for the first state of a cache before it is forwarded: long enough
    /// for the first list of ten thousand objects, short enough that a client with the common
    /// time-out of 30 s still gets the forwarded response.
    pub warmup_timeout: Duration,

    /// How long a client may stall before its connection is closed: it neither reads the bytes that
    /// wait for it, nor sends the rest of a request body. Longer than TCP needs to recover from a
    /// few seconds of loss, and as long as a node may be paused before Kubernetes treats it as
    /// gone.
    pub stall_timeout: Duration,

    /// Opens the connections to the upstream; `None` for TCP.
    pub dial: Option<Dial>,

    /// Resolves the names of API servers; `None` for the system's resolver.
    pub resolver: Option<Resolver>,
}

impl Default for Seams {
    fn default() -> Self {
        Self {
            idle_timeout: Duration::from_secs(600),
            over_budget_forwards: 256,
            page_size: 500,
            verify_round: Duration::from_secs(600),
            verify_whole_bytes: 128 << 20,
            header_read_timeout: Duration::from_secs(32),
            freshness_timeout: Duration::from_secs(3),
            warmup_timeout: Duration::from_secs(10),
            stall_timeout: Duration::from_secs(60),
            dial: None,
            resolver: None,
        }
    }
}

/// A connection in place of a TCP connection.
pub trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// A connection that is being opened.
pub type Dialing = Pin<Box<dyn Future<Output = io::Result<Box<dyn Connection>>> + Send>>;

/// Opens connections to a host and a port.
#[derive(Clone)]
pub struct Dial(Arc<Open>);

type Open = dyn Fn(&str, u16) -> Dialing + Send + Sync;

impl Dial {
    /// Creates a replacement that calls `open` for each connection.
    pub fn new(open: impl Fn(&str, u16) -> Dialing + Send + Sync + 'static) -> Self {
        Self(Arc::new(open))
    }

    /// Opens a connection.
    pub(crate) fn open(&self, host: &str, port: u16) -> Dialing {
        (self.0)(host, port)
    }
}

crate::api::opaque!(Dial);

/// Resolves a host name and a port to addresses.
#[derive(Clone)]
pub struct Resolver(Arc<Resolve>);

type Resolve = dyn Fn(&str, u16) -> Resolving + Send + Sync;

/// A name that is being resolved.
pub type Resolving = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

impl Resolver {
    /// Creates a replacement that calls `resolve` each time.
    pub fn new(resolve: impl Fn(&str, u16) -> Resolving + Send + Sync + 'static) -> Self {
        Self(Arc::new(resolve))
    }

    /// Resolves a name.
    pub(crate) fn resolve(&self, host: &str, port: u16) -> Resolving {
        (self.0)(host, port)
    }
}

crate::api::opaque!(Resolver);
