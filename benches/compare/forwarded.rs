//! What Weir adds to a request that it forwards: the same GET asked of the upstream and of Weir by turns, one at a time.

use tokio::time::Instant;

use crate::client::{Ask, Connection, JSON, Protocol};
use crate::results::{Results, percentile, sorted};
use crate::server::Server;

pub(crate) const ROW: &str = "forwarded-get";

/// No cache answers this: it asks for the very latest state.
const PATH: &str = "/api/v1/namespaces/weir-compare-0";

/// Measures Weir, by turns with the upstream if one is given.
pub(crate) async fn compare(
    upstream: Option<&Server>,
    weir: &Server,
    times: usize,
    results: &mut Results,
) {
    let mut servers = Vec::new();
    for server in upstream.into_iter().chain([weir]) {
        let ask = Ask::get(server, PATH, JSON, false);
        let connection = Connection::open(server, Protocol::Http2).await;
        servers.push((server.name, connection, ask, Vec::new()));
    }
    let warm_up = times / 10;
    let mut before = weir.usage.used().await;
    for turn in 0..times {
        if turn == warm_up {
            before = weir.usage.used().await;
        }
        for (_, connection, ask, latency) in &mut servers {
            let start = Instant::now();
            let counted = connection.count(ask).await;
            // The first requests open connections.
            if turn >= warm_up {
                latency.push(start.elapsed().as_secs_f64() * 1e6);
            }
            assert!(counted.code.is_success(), "{}", counted.code);
            assert!(counted.cache.is_none() || !counted.hit(), "it is not forwarded");
        }
    }
    let cpu = weir.usage.used().await.cpu - before.cpu;
    results.set(ROW, weir.name, "cpu_us", cpu * 1e6 / (times - warm_up) as f64);
    for (name, _, _, latency) in servers {
        let latency = sorted(latency);
        results.set(ROW, name, "p50_us", percentile(&latency, 50));
        results.set(ROW, name, "p99_us", percentile(&latency, 99));
    }
}
