//! A TCP balancer: each connection goes to the next target that accepts it. It can delay what the
//! targets send, cut all connections, and lead to other targets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// A running balancer. It stops with its runtime.
pub(super) struct Relay {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    targets: Mutex<Vec<u16>>,
    turn: AtomicUsize,
    delay_millis: AtomicU64,
    connections: Mutex<Vec<AbortHandle>>,
}

impl Relay {
    /// Listens on a port of 127.0.0.1 and relays to ports of it.
    pub(super) async fn start(targets: Vec<u16>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared { targets: targets.into(), ..Shared::default() });
        let accepting = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let relayed = tokio::spawn(Arc::clone(&accepting).relay(client));
                let mut connections = accepting.connections.lock();
                connections.retain(|connection| !connection.is_finished());
                connections.push(relayed.abort_handle());
            }
        });
        Self { port, shared }
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Relays later connections to other targets.
    pub(super) fn set_targets(&self, targets: Vec<u16>) {
        *self.shared.targets.lock() = targets;
    }

    /// Delays what the targets send, on open connections too.
    pub(super) fn set_delay(&self, delay: Duration) {
        let millis = u64::try_from(delay.as_millis()).unwrap();
        self.shared.delay_millis.store(millis, Ordering::Relaxed);
    }

    /// Cuts all connections at any byte.
    pub(super) fn cut(&self) {
        self.shared.connections.lock().drain(..).for_each(|connection| connection.abort());
    }
}

impl Shared {
    async fn relay(self: Arc<Self>, client: TcpStream) {
        let Some(server) = self.connect().await else { return };
        drop((client.set_nodelay(true), server.set_nodelay(true)));
        let (mut from_client, to_client) = client.into_split();
        let (from_server, mut to_server) = server.into_split();
        let up = async {
            drop(tokio::io::copy(&mut from_client, &mut to_server).await);
            drop(to_server.shutdown().await);
        };
        tokio::join!(up, self.delayed(from_server, to_client));
    }

    /// Connects to the next target that accepts.
    async fn connect(&self) -> Option<TcpStream> {
        let targets = self.targets.lock().clone();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        for n in 0..targets.len() {
            let port = targets[(turn + n) % targets.len()];
            if let Ok(stream) = TcpStream::connect(("127.0.0.1", port)).await {
                return Some(stream);
            }
        }
        None
    }

    async fn delayed(&self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
        let (sender, mut receiver) = mpsc::channel::<(Instant, Bytes)>(PENDING_MAX);
        let read = async move {
            let mut buffer = vec![0; CHUNK];
            while let Ok(n @ 1..) = from.read(&mut buffer).await {
                let delay = Duration::from_millis(self.delay_millis.load(Ordering::Relaxed));
                let chunk = Bytes::copy_from_slice(&buffer[..n]);
                if sender.send((Instant::now() + delay, chunk)).await.is_err() {
                    return;
                }
            }
        };
        let write = async move {
            while let Some((due, chunk)) = receiver.recv().await {
                tokio::time::sleep_until(due).await;
                if to.write_all(&chunk).await.is_err() {
                    return;
                }
            }
            drop(to.shutdown().await);
        };
        tokio::join!(read, write);
    }
}

const CHUNK: usize = 64 << 10;
const PENDING_MAX: usize = 1024;
