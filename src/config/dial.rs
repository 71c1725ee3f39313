//! A replacement for TCP below the connections to the upstream.
//!
//! It is no setting of the YAML file. A simulation of whole clusters in one process, with virtual
//! time, cannot use sockets: the kernel delivers their bytes at moments that no seed decides.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};

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

/// Only a clone of it is equal to it.
impl PartialEq for Dial {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Dial {}

impl fmt::Debug for Dial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dial").finish_non_exhaustive()
    }
}
