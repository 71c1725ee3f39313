//! Asks the admin listener of a running Weir, by TCP or over a Unix socket.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use bytes::Bytes;
use http::StatusCode;
use http::uri::Authority;
use serde_json::Value;
use tokio::time::timeout;

use crate::cli::http::Connection;

/// The admin listener of a running Weir.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) enum AdminUrl {
    /// Plain HTTP by TCP.
    Tcp(Authority),
    /// A Unix socket.
    Unix(PathBuf),
}

impl FromStr for AdminUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(path) = text.strip_prefix("unix://").or_else(|| text.strip_prefix("unix:")) {
            if !path.starts_with('/') {
                return Err(format!("{text} is not a socket such as unix:///run/weir/admin.sock"));
            }
            return Ok(Self::Unix(path.into()));
        }
        let invalid = || format!("{text} is not an address such as http://127.0.0.1:6441");
        let address = text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/');
        let authority: Authority = address.parse().map_err(|_| invalid())?;
        if authority.port().is_none() || address.contains('@') {
            return Err(invalid());
        }
        Ok(Self::Tcp(authority))
    }
}

impl Default for AdminUrl {
    fn default() -> Self {
        Self::Tcp(Authority::from_static(ADMIN_DEFAULT.trim_start_matches("http://")))
    }
}

impl fmt::Display for AdminUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(authority) => write!(f, "http://{authority}"),
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
        }
    }
}

impl AdminUrl {
    /// Connects. The error says what to check.
    async fn connect(&self) -> anyhow::Result<Connection> {
        let opened = match self {
            Self::Tcp(authority) => Connection::open(authority.as_str(), AGENT).await,
            Self::Unix(path) => Connection::open_unix(path, AGENT).await,
        };
        opened.map_err(|error| {
            let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
            match kind {
                Some(io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) => {
                    anyhow!("nothing listens at {self}. {HELP}")
                }
                _ => error.context(format!("cannot connect to {self}. {HELP}")),
            }
        })
    }

    /// Reads kinds of the API. Clients that are not counted are null beside other kinds.
    pub(super) async fn kinds(&self, kinds: &[&str], limit: usize) -> anyhow::Result<Vec<Value>> {
        let mut session = Session::open(self).await?;
        let mut answers = Vec::new();
        for kind in kinds {
            let query = match *kind {
                "clients" | "findings" => format!("?limit={limit}"),
                _ => String::new(),
            };
            let path = format!("/api/{kind}{query}");
            let (status, body) = session.read(&path, "application/json").await?;
            match status {
                StatusCode::OK => answers.push(serde_json::from_slice(&body)?),
                // Costs are not added up. All else can be shown, unless details are off.
                StatusCode::NOT_FOUND if kinds.len() > 1 && *kind == "clients" => {
                    answers.push(Value::Null);
                }
                StatusCode::NOT_FOUND => bail!("{}", session.why_off().await?),
                _ => {
                    let text = String::from_utf8_lossy(&body);
                    bail!("{self}{path} was answered with {status}: {}", text.trim())
                }
            }
        }
        Ok(answers)
    }

    /// Reads pages by their names and paths. Fails only if nothing listens; a page that cannot be
    /// read has an error.
    pub(super) async fn pages<'a>(
        &self,
        pages: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> anyhow::Result<Vec<Page<'a>>> {
        let mut session = Session::open(self).await?;
        let mut answers = Vec::new();
        for (name, path) in pages {
            answers.push(Page { name, answer: session.read(path, "*/*").await });
        }
        Ok(answers)
    }

    /// Reads one page, which must be answered within `time`, the connection included.
    pub(super) async fn page_within(
        &self,
        path: &str,
        time: Duration,
    ) -> anyhow::Result<(StatusCode, Bytes)> {
        let read = async { Session::open(self).await?.read(path, "*/*").await };
        timeout(time, read).await.with_context(|| format!("{self}{path} did not answer in time"))?
    }
}

/// A page, with its status and body.
pub(super) struct Page<'a> {
    pub(super) name: &'a str,
    pub(super) answer: anyhow::Result<(StatusCode, Bytes)>,
}

/// Requests one after another, over one connection if the listener keeps it: one that has few
/// places left ends each after one response.
struct Session<'a> {
    url: &'a AdminUrl,
    connection: Option<Connection>,
}

impl<'a> Session<'a> {
    async fn open(url: &'a AdminUrl) -> anyhow::Result<Self> {
        Ok(Self { url, connection: Some(url.connect().await?) })
    }

    async fn read(&mut self, path: &str, accept: &str) -> anyhow::Result<(StatusCode, Bytes)> {
        let mut kept = self.connection.take();
        if let Some(connection) = &mut kept
            && !connection.is_open().await
        {
            kept = None;
        }
        let connection = match kept {
            Some(connection) => self.connection.insert(connection),
            None => self.connection.insert(self.url.connect().await?),
        };
        let read = connection.read(path, accept, ANSWER_BYTES_MAX).await;
        if read.is_err() {
            self.connection = None;
        }
        read.with_context(|| format!("cannot read {}{path}", self.url))
    }

    /// Returns what to set where a kind of the API is off: clients are not counted, or nobody may
    /// see details.
    async fn why_off(&mut self) -> anyhow::Result<String> {
        let url = self.url;
        let (status, _) = self.read("/api/overview", "application/json").await?;
        Ok(match status {
            StatusCode::OK => format!(
                "the Weir at {url} does not count what its clients do: set flowControl.mode: observe in the configuration"
            ),
            _ => format!(
                "the Weir at {url} shows no details: set admin.detail: local in the configuration"
            ),
        })
    }
}

/// Where Weir listens by default.
pub(super) const ADMIN_DEFAULT: &str = "http://127.0.0.1:6441";
const AGENT: &str = concat!("weir/", env!("CARGO_PKG_VERSION"));
const HELP: &str = "Does Weir run, and is this its admin listener (admin.listen, admin.socket)? In a cluster: kubectl -n NAMESPACE port-forward deploy/weir 6441";
/// Some thousand caches.
const ANSWER_BYTES_MAX: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_sockets_are_read() {
        let read = |text: &str| text.parse::<AdminUrl>().map(|url| url.to_string());
        for (text, url) in [
            ("127.0.0.1:6441", "http://127.0.0.1:6441"),
            ("http://localhost:1/", "http://localhost:1"),
            ("http://[::1]:6441", "http://[::1]:6441"),
            ("unix:///run/weir/admin.sock", "unix:///run/weir/admin.sock"),
            ("unix:/run/a", "unix:///run/a"),
        ] {
            assert_eq!(read(text), Ok(url.to_owned()), "{text}");
        }
        for text in ["", "localhost", "https://localhost:1", "unix:a", "a@b:1", "http://a b:1"] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[tokio::test]
    async fn nothing_that_listens_is_explained() {
        let directory = tempfile::tempdir().unwrap();
        let port = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let tcp = format!("http://{}", port.local_addr().unwrap());
        drop(port);
        for url in [tcp, format!("unix://{}/none", directory.path().display())] {
            let url: AdminUrl = url.parse().unwrap();
            assert_eq!(AdminUrl::default().to_string(), ADMIN_DEFAULT);
            let error = format!("{:#}", url.kinds(&["caches"], 1).await.unwrap_err());
            assert!(error.starts_with(&format!("nothing listens at {url}.")), "{error}");
            assert!(error.contains("kubectl -n NAMESPACE port-forward"), "{error}");
        }
    }
}
