//! A small HTTP client for plain connections: of `weir top` and `weir doctor` to the admin
//! listener, and of the demo's clients.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use http::header::{ACCEPT, HOST, USER_AGENT};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// A connection, which ends when it is dropped.
pub(super) struct Connection {
    sender: SendRequest<Empty<Bytes>>,
    host: String,
    agent: String,
    _driver: JoinSet<()>,
}

impl Connection {
    /// Connects to a host with a port. `agent` is the User-Agent of all requests.
    pub(super) async fn open(address: &str, agent: &str) -> anyhow::Result<Self> {
        let stream = timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await;
        Self::over(stream.context("no connection in time")??, address, agent).await
    }

    /// Connects to a Unix socket.
    pub(super) async fn open_unix(path: &Path, agent: &str) -> anyhow::Result<Self> {
        Self::over(UnixStream::connect(path).await?, "localhost", agent).await
    }

    async fn over<S>(stream: S, host: &str, agent: &str) -> anyhow::Result<Self>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection ended");
            }
        });
        let (host, agent) = (host.to_owned(), agent.to_owned());
        Ok(Self { sender, host, agent, _driver: driver })
    }

    /// Waits until the connection takes a request. Returns whether it does: a server may have ended
    /// it after its last response.
    pub(super) async fn is_open(&mut self) -> bool {
        self.sender.ready().await.is_ok()
    }

    /// Sends a GET, and returns the response with a body that is not read yet.
    pub(super) async fn get(
        &mut self,
        path: &str,
        accept: &str,
    ) -> anyhow::Result<Response<Incoming>> {
        self.sender.ready().await?;
        let request = Request::get(path)
            .header(HOST, &self.host)
            .header(USER_AGENT, &self.agent)
            .header(ACCEPT, accept);
        Ok(self.sender.send_request(request.body(Empty::new())?).await?)
    }

    /// Sends a GET, and returns the status and the whole body, of at most `bytes_max`.
    pub(super) async fn read(
        &mut self,
        path: &str,
        accept: &str,
        bytes_max: usize,
    ) -> anyhow::Result<(StatusCode, Bytes)> {
        let exchange = async {
            let response = self.get(path, accept).await?;
            let status = response.status();
            match Limited::new(response.into_body(), bytes_max).collect().await {
                Ok(body) => Ok((status, body.to_bytes())),
                Err(error) => bail!("the response cannot be read: {error}"),
            }
        };
        timeout(READ_TIMEOUT, exchange).await.context("no response in time")?
    }
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A list of a large cluster takes seconds.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
