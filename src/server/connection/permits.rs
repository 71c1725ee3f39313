//! How many connections there may be, in all and of one address, how much of the ways to the upstream one address may take up, and how long a client may take nothing of what waits for it.
//!
//! A connection has its [`Seat`] from the moment it is accepted to the moment its socket is closed: the seat travels with the socket
//! ([`Seated`]), below TLS and HTTP, so that a connection that was upgraded goes on counting.
//!
//! A stall is seen where bytes leave: while the socket takes none of what is written, a time-out runs, and what is written next finds it
//! elapsed. A connection on which nothing waits, such as an idle watch's, never stalls. One HTTP/2 stream whose window stays shut, on a
//! connection that is alive, is not seen here but in [`crate::server::connection::send_timeouts`].
//!
//! Locks: one, for the table of addresses, held for a look-up only.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use crate::auth::peer::client_key;
use crate::server::connection::activity::Stall;

/// What is open, by address. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Addresses {
    table: Arc<Mutex<Table>>,
    /// What is counted, for the log.
    what: &'static str,
}

#[derive(Debug, Default)]
struct Table {
    /// Never zero: who has none is not in it. Bounded by all that may be open.
    open: HashMap<Option<IpAddr>, usize>,
    told: Option<Instant>,
}

impl Addresses {
    /// Of something that is called so in the log.
    pub(crate) fn new(what: &'static str) -> Self {
        Self { table: Arc::default(), what }
    }

    /// One more of an address (`None` for all Unix sockets), with its part of all room; `None` if it has so many already.
    pub(crate) fn seat<R>(&self, address: Option<IpAddr>, most: usize, room: R) -> Option<Seat<R>> {
        let key = address.map(client_key);
        let mut table = self.table.lock();
        let open = table.open.entry(key).or_default();
        if *open >= most {
            let silent = table.told.is_some_and(|told| told.elapsed() < TELL_INTERVAL);
            if !silent {
                table.told = Some(Instant::now());
                drop(table);
                let address = address.map_or_else(|| "unix".to_owned(), |it| it.to_string());
                let what = self.what;
                tracing::warn!(address, what, most, "a client has too many; refusing more");
            }
            return None;
        }
        *open += 1;
        drop(table);
        Some(Seat { addresses: self.clone(), key, _room: room })
    }

    #[cfg(test)]
    fn known(&self) -> usize {
        self.table.lock().open.len()
    }
}

/// A place among what is open, given back when dropped.
#[derive(Debug)]
pub(crate) struct Seat<R = ()> {
    addresses: Addresses,
    key: Option<IpAddr>,
    _room: R,
}

impl<R> Drop for Seat<R> {
    fn drop(&mut self) {
        let mut table = self.addresses.table.lock();
        if let Entry::Occupied(mut open) = table.open.entry(self.key) {
            if *open.get() > 1 {
                *open.get_mut() -= 1;
            } else {
                open.remove();
            }
        }
    }
}

/// A client's socket, with what it takes up; see the module.
#[derive(Debug)]
pub(crate) struct Seated<I, S> {
    io: I,
    stall: Stall,
    _seat: S,
}

impl<I, S> Seated<I, S> {
    /// Fails writes once the socket has taken nothing for so long. Drops the seat when the socket is closed.
    pub(crate) fn new(io: I, seat: S, timeout: Duration) -> Self {
        Self { io, stall: Stall::new(timeout), _seat: seat }
    }

    /// An elapsed time-out takes the place of a `Pending`.
    fn judge<T>(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        match self.stall.judge(context, polled) {
            Ok(polled) => polled,
            Err(stalled) => Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, stalled))),
        }
    }
}

impl<I: AsyncRead + Unpin, S: Unpin> AsyncRead for Seated<I, S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl<I: AsyncWrite + Unpin, S: Unpin> AsyncWrite for Seated<I, S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.io).poll_write(context, bytes);
        self.judge(context, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.io).poll_write_vectored(context, buffers);
        self.judge(context, polled)
    }

    /// A socket has nothing to flush, so that this says nothing of stalls.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

/// A flood is told of now and then, not by the line.
const TELL_INTERVAL: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::Semaphore;

    use super::*;

    #[tokio::test]
    async fn an_address_has_so_many_and_gets_them_back() {
        let room = Arc::new(Semaphore::new(100));
        let addresses = Addresses::new("connections");
        let seat = |address: Option<&str>| {
            let permit = Arc::clone(&room).try_acquire_owned().unwrap();
            addresses.seat(address.map(|it| it.parse().unwrap()), 2, permit)
        };
        let first = seat(Some("192.0.2.1"));
        let mapped = seat(Some("::ffff:192.0.2.1"));
        assert!(first.is_some() && mapped.is_some());
        assert!(seat(Some("192.0.2.1")).is_none());
        let (one, two) = (seat(Some("2001:db8::1")), seat(Some("2001:db8::2")));
        assert!(one.is_some() && two.is_some());
        assert!(seat(Some("2001:db8::3")).is_none(), "a host has many addresses");
        let others = [seat(Some("2001:db8:0:1::1")), seat(None), seat(None)];
        assert!(others.iter().all(Option::is_some));
        assert!(seat(None).is_none(), "all Unix sockets are one");
        drop(first);
        assert!(seat(Some("192.0.2.1")).is_some());
        drop((mapped, one, two, others));
        assert_eq!((addresses.known(), room.available_permits()), (0, 100));
    }

    const TIMEOUT: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_is_cut_off_and_who_takes_little_is_not() {
        let (client, mut server) = tokio::io::duplex(8);
        let mut seated = Seated::new(client, (), TIMEOUT);
        seated.write_all(b"12345678").await.unwrap();
        tokio::time::sleep(TIMEOUT * 9).await;
        let slow = tokio::spawn(async move {
            for _ in 0..8 {
                tokio::time::sleep(TIMEOUT - Duration::from_secs(1)).await;
                server.read_u8().await.unwrap();
            }
            server
        });
        seated.write_all(b"abcdefgh").await.unwrap();
        let _server = slow.await.unwrap();
        let started = Instant::now();
        let error = seated.write_all(b"!").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(started.elapsed().as_secs(), TIMEOUT.as_secs());
    }
}
