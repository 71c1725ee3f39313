//! A relay between Weir and the upstream that can be cut, and whose open connections can freeze.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fastrand::Rng;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

/// A listener whose connections lead to the upstream while it is open.
pub(crate) struct Relay {
    pub(crate) kubeconfig: PathBuf,
    connections: Arc<Mutex<Vec<Connection>>>,
    closed: Arc<AtomicBool>,
}

struct Connection {
    task: AbortHandle,
    is_frozen: Arc<AtomicBool>,
}

impl Relay {
    pub(crate) async fn start(upstream: &Path) -> Self {
        let text = std::fs::read_to_string(upstream).unwrap();
        let (_, rest) = text.split_once("https://127.0.0.1:").unwrap();
        let port: u16 = rest.split_once('"').unwrap().0.parse().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let relay_port = listener.local_addr().unwrap().port();
        let kubeconfig = upstream.with_extension("relay");
        std::fs::write(&kubeconfig, text.replace(&port.to_string(), &relay_port.to_string()))
            .unwrap();
        let connections = Arc::new(Mutex::new(Vec::<Connection>::new()));
        let closed = Arc::new(AtomicBool::new(false));
        let (opened, refuses) = (Arc::clone(&connections), Arc::clone(&closed));
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                drop(client.set_nodelay(true));
                if refuses.load(Ordering::Acquire) {
                    continue;
                }
                let is_frozen = Arc::new(AtomicBool::new(false));
                let freezes = Arc::clone(&is_frozen);
                let relayed = tokio::spawn(async move {
                    let Ok(mut server) = TcpStream::connect(("127.0.0.1", port)).await else {
                        return;
                    };
                    drop(server.set_nodelay(true));
                    let (from_client, to_client) = client.split();
                    let (from_server, to_server) = server.split();
                    tokio::join!(
                        copy(from_client, to_server, &freezes),
                        copy(from_server, to_client, &freezes)
                    );
                });
                let mut opened = opened.lock();
                opened.retain(|connection| !connection.task.is_finished());
                opened.push(Connection { task: relayed.abort_handle(), is_frozen });
                if refuses.load(Ordering::Acquire) {
                    relayed.abort();
                }
            }
        });
        Self { kubeconfig, connections, closed }
    }

    /// Cuts all connections and accepts none until [`Relay::open`].
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.connections.lock().drain(..).for_each(|connection| connection.task.abort());
    }

    /// Accepts connections again.
    pub(crate) fn open(&self) {
        self.closed.store(false, Ordering::Release);
    }

    /// Cuts some of the connections at any byte; sometimes all.
    pub(crate) fn cut(&self, rng: &mut Rng) {
        let cuts_all = rng.bool();
        for connection in self.connections.lock().iter() {
            if cuts_all || rng.u8(..3) > 0 {
                connection.task.abort();
            }
        }
    }

    /// Freezes the open connections: they stay open, take bytes and pass none.
    pub(crate) fn freeze(&self) {
        for connection in self.connections.lock().iter() {
            connection.is_frozen.store(true, Ordering::Release);
        }
    }
}

/// Copies one direction to its end, and discards its bytes while it is frozen.
async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    is_frozen: &AtomicBool,
) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        if !is_frozen.load(Ordering::Acquire) && to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
    drop(to.shutdown().await);
}
