//! Reads metrics of a Weir that runs.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Returns the series whose names begin with one of `shown`, unless they are zero.
pub(crate) async fn metrics_of(admin: SocketAddr, names: &[&str]) -> Vec<String> {
    let mut tcp = TcpStream::connect(admin).await.expect("it listens");
    let request = "GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    tcp.write_all(request.as_bytes()).await.expect("it is taken");
    let mut text = String::new();
    tcp.read_to_string(&mut text).await.expect("an answer");
    let is_shown =
        |line: &&str| names.iter().any(|name| line.starts_with(name)) && !line.ends_with(" 0");
    text.lines().filter(is_shown).map(str::to_owned).collect()
}
