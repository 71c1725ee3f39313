//! Measures the latency that Weir adds to a forwarded request. The same GET is sent alternately to
//! the upstream and to Weir, one at a time.

use tokio::time::Instant;

use crate::client::{Connection, JSON, PreparedRequest, Protocol};
use crate::results::{Results, percentile, sorted};
use crate::server::Server;

pub(crate) const ROW: &str = "forwarded-get";

/// A GET without a resourceVersion. It requires the latest state, so Weir forwards it.
const PATH: &str = "/api/v1/namespaces/weir-compare-0";

/// Measures Weir, in alternation with the upstream if there is one.
pub(crate) async fn compare(
    upstream: Option<&Server>,
    weir: &Server,
    times: usize,
    results: &mut Results,
) {
    let mut servers = Vec::new();
    for server in upstream.into_iter().chain([weir]) {
        let request = PreparedRequest::get(server, PATH, JSON, false);
        let connection = Connection::open(server, Protocol::Http2).await;
        servers.push((server.name, connection, request, Vec::new()));
    }
    let warm_up = times / 10;
    let mut before = weir.usage.sample().await;
    for round in 0..times {
        if round == warm_up {
            before = weir.usage.sample().await;
        }
        for (_, connection, request, latency) in &mut servers {
            let start = Instant::now();
            let summary = connection.count(request).await;
            // The first requests open connections, so they are not measured.
            if round >= warm_up {
                latency.push(start.elapsed().as_secs_f64() * 1e6);
            }
            assert!(summary.code.is_success(), "{}", summary.code);
            assert!(summary.cache.is_none() || !summary.is_hit(), "a response came from the cache");
        }
    }
    let cpu = weir.usage.sample().await.cpu - before.cpu;
    results.set(ROW, weir.name, "cpu_us", cpu * 1e6 / (times - warm_up) as f64);
    for (name, _, _, latency) in servers {
        let latency = sorted(latency);
        results.set(ROW, name, "p50_us", percentile(&latency, 50));
        results.set(ROW, name, "p99_us", percentile(&latency, 99));
    }
}
