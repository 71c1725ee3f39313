//! Users behind one address, such as that of a load balancer: each has the limits of a user, and
//! what proves no user has those of the address.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use weir::simulator::{Simulator, SimulatorOptions, User};

use crate::client::within;
use crate::harness::{Proxy, as_gateway, seed};
use crate::wait::eventually;

const CACHED: &str = "/api/v1/namespaces/ns1/configmaps?resourceVersion=0";
const FORWARDED: &str = "/api/v1/namespaces/ns1/configmaps";
const USERS: [&str; 4] = ["alice", "bob", "carol", "dave"];

async fn gateway(per_address_max: usize, per_user_max: usize) -> Proxy {
    let users = USERS.iter().map(|name| User::admin(name, name));
    let users = users.chain([User::admin("weirs-own", "weir")]).collect();
    let options = SimulatorOptions { users, anonymous: false, ..SimulatorOptions::default() };
    let upstream = Simulator::start(options).await.unwrap();
    seed(&upstream);
    Proxy::before(upstream, "weirs-own", |config| {
        as_gateway(config);
        config.server.connections_per_address_max = per_address_max;
        config.server.connections_per_user_max = per_user_max;
    })
    .await
}

/// A connection that stays open.
struct Connection(TcpStream);

impl Connection {
    async fn open(proxy: &Proxy) -> Self {
        Self(TcpStream::connect(proxy.plain()).await.unwrap())
    }

    /// Sends a request and returns the status of its response; `None` if the connection was closed.
    async fn get(&mut self, path: &str, token: &str) -> Option<u16> {
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"
        );
        self.0.write_all(request.as_bytes()).await.ok()?;
        within("a response", self.read()).await
    }

    /// Reads a response to its end, which is that of a JSON object, or of the last chunk.
    async fn read(&mut self) -> Option<u16> {
        let mut text = String::new();
        loop {
            let mut bytes = [0; 4096];
            let read = self.0.read(&mut bytes).await.ok().filter(|read| *read > 0)?;
            text += &String::from_utf8_lossy(&bytes[..read]);
            let is_whole = text.split_once("\r\n\r\n").is_some_and(|(head, body)| {
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                length
                    .map_or(body.ends_with("0\r\n\r\n"), |length| length.parse() == Ok(body.len()))
            });
            if is_whole {
                return text.split(' ').nth(1).and_then(|code| code.parse().ok());
            }
        }
    }

    async fn is_closed(&mut self) -> bool {
        matches!(within("the end", self.0.read(&mut [0; 1])).await, Ok(0) | Err(_))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_behind_one_address_do_not_share_its_connections() {
    let proxy = gateway(2, 3).await;
    let mut open = Vec::new();
    for path in [CACHED, FORWARDED] {
        for user in USERS {
            let mut connection = Connection::open(&proxy).await;
            assert_eq!(connection.get(path, user).await, Some(200), "{user}");
            open.push(connection);
        }
    }
    // The third one of a user at an address is closed, and its place is free for others.
    for path in [CACHED, FORWARDED, CACHED] {
        let mut beyond = Connection::open(&proxy).await;
        assert_eq!(beyond.get(path, "alice").await, Some(429));
        assert!(beyond.is_closed().await);
    }
    let refused = proxy.metric("weir_connections_refused_total", &["cause=\"user-limit\""]).await;
    assert_eq!(refused, 3.0);
    for connection in &mut open[..4] {
        assert_eq!(connection.get(FORWARDED, "bob").await, Some(200), "a connection stays");
    }
    drop(open);
    eventually("a connection of the user is free", async || {
        Connection::open(&proxy).await.get(CACHED, "alice").await == Some(200)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_proves_no_user_has_the_limit_of_the_address() {
    let proxy = gateway(2, 100).await;
    let mut proven = Connection::open(&proxy).await;
    assert_eq!(proven.get(CACHED, "alice").await, Some(200));
    // Requests with forged tokens are answered; their connections count for the address.
    let mut forged = Vec::new();
    for number in 0..2 {
        let mut connection = Connection::open(&proxy).await;
        assert_eq!(connection.get(CACHED, &format!("forged{number}")).await, Some(401));
        forged.push(connection);
    }
    let open = async || proxy.metric("weir_connections", &["listener=\"plain\""]).await;
    assert_eq!(open().await, 3.0);
    let mut next = Connection::open(&proxy).await;
    assert_eq!(next.get(CACHED, "bob").await, Some(200), "an idle one made room");
    assert!(forged[0].is_closed().await, "the oldest");
    assert_eq!(forged[1].get(CACHED, "forged").await, Some(401));
    assert_eq!(proven.get(CACHED, "alice").await, Some(200));
    eventually("the closed connection is counted no more", async || open().await == 3.0).await;
}

/// Silent connections take the places of the address, of which the oldest one makes room.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_connections_lock_nobody_out() {
    let proxy = gateway(8, 100).await;
    let mut silent = Vec::new();
    for _ in 0..32 {
        silent.push(Connection::open(&proxy).await);
    }
    for user in USERS {
        let mut connection = Connection::open(&proxy).await;
        assert_eq!(connection.get(CACHED, user).await, Some(200), "{user}");
    }
    assert!(silent[0].is_closed().await);
    let evicted = proxy.metric("weir_connections_refused_total", &["cause=\"evicted\""]).await;
    assert!(evicted >= 24.0, "{evicted}");
    eventually("the evicted ones are closed", async || {
        proxy.metric("weir_connections", &["listener=\"plain\""]).await <= 8.0
    })
    .await;
}
