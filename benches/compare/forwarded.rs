//! What Weir adds to a request that it forwards: the same GET asked of the upstream and of Weir by turns, one at a time.

use tokio::time::Instant;

use crate::client::{Ask, Connection, JSON, Protocol};
use crate::results::{Results, percentile, sorted};
use crate::server::{Server, UPSTREAM, WEIR};

pub(crate) const ROW: &str = "forwarded-get";

/// No cache answers this: it asks for the very latest state.
const PATH: &str = "/api/v1/namespaces/weir-compare-0";

pub(crate) async fn compare(upstream: &Server, weir: &Server, times: usize, results: &mut Results) {
    let mut both = Vec::new();
    for server in [upstream, weir] {
        let ask = Ask::get(server, PATH, JSON, false);
        both.push((Connection::open(server, Protocol::Http2).await, ask, Vec::new()));
    }
    for turn in 0..times {
        for (connection, ask, latency) in &mut both {
            let start = Instant::now();
            let counted = connection.count(ask).await;
            // The first ones open connections.
            if turn >= times / 10 {
                latency.push(start.elapsed().as_secs_f64() * 1e6);
            }
            assert!(counted.code.is_success(), "{}", counted.code);
            assert!(counted.cache.is_none() || !counted.hit(), "it is not forwarded");
        }
    }
    for ((_, _, latency), name) in both.into_iter().zip([UPSTREAM, WEIR]) {
        let latency = sorted(latency);
        results.set(ROW, name, "p50_us", percentile(&latency, 50));
        results.set(ROW, name, "p99_us", percentile(&latency, 99));
    }
}
