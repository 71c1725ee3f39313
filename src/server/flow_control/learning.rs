//! Learns what the API servers can do at once: their seats from their metrics, and how many wide
//! requests they do without making short ones wait ([`WideLimit`](crate::flow::wide::WideLimit)).

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use http::StatusCode;
use tokio::time::{Instant, sleep};

use crate::server::flow_control::limits::ServerLimits;
use crate::server::flow_control::queue::Queue;
use crate::upstream::Upstream;
use crate::upstream::capacity::{ShortRequests, nominal_seats};
use crate::upstream::endpoints::ApiServer;
use crate::upstream::error::UpstreamError;

/// Reads the seats of the API servers from their metrics, until it is dropped: when a server is
/// found or usable again, and from time to time, since a balancer hides a server that restarts.
pub(super) async fn learn_seats(limits: &ServerLimits, upstream: &Upstream) {
    if limits.seats.is_some() {
        return;
    }
    // The servers that were asked, and the time until which they are not asked again.
    let mut asked: Vec<(Arc<ApiServer>, Instant)> = Vec::new();
    loop {
        let servers = upstream.endpoints().servers();
        let is_usable = |server: &&Arc<ApiServer>| server.is_admitted() && server.is_usable();
        asked.retain(|(server, until)| {
            let is_in_set = servers.iter().any(|other| Arc::ptr_eq(other, server));
            is_in_set && is_usable(&server) && Instant::now() < *until
        });
        for server in servers.iter().filter(is_usable) {
            if asked.iter().any(|(other, _)| Arc::ptr_eq(other, server)) {
                continue;
            }
            let url = &server.endpoint;
            let interval = match nominal_seats(upstream, server).await {
                Ok(seats) => {
                    limits.learned(server.key, url, seats);
                    READ_INTERVAL
                }
                Err(error @ UpstreamError::Status { code: StatusCode::FORBIDDEN, .. }) => {
                    tracing::info!(server = %url, %error, "Weir may not read an API server's seats");
                    READ_INTERVAL
                }
                Err(error) => {
                    tracing::debug!(server = %url, %error, "cannot read an API server's seats");
                    RETRY_INTERVAL
                }
            };
            asked.push((Arc::clone(server), Instant::now() + interval));
        }
        sleep(LOOK_INTERVAL).await;
    }
}

/// Sends short requests while wide ones run or wait, and lets the queue send as many wide ones as
/// the short ones allow, until it is dropped.
pub(super) async fn learn_wide(limits: &ServerLimits, queue: &Queue, upstream: &Upstream) {
    if !limits.limits_wide {
        return;
    }
    let mut requests: Vec<(u64, ShortRequests)> = Vec::new();
    loop {
        let load = queue.until_wide().await;
        let endpoints = upstream.endpoints();
        let (servers, used) = (endpoints.servers(), endpoints.chosen_from());
        requests.retain(|(key, _)| used.contains(key));
        for server in servers.iter().filter(|server| used.contains(&server.key)) {
            if !requests.iter().any(|(key, _)| *key == server.key) {
                requests.push((server.key, ShortRequests::new(Arc::clone(server))));
            }
        }
        let asked = requests.iter_mut().map(async |(key, requests)| {
            if let Some(latency) = requests.next(upstream).await {
                queue.set_allotment(&limits.waited(*key, latency, load));
            }
        });
        join_all(asked).await;
        sleep(SHORT_INTERVAL).await;
    }
}

const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// kube-apiserver reads its flags when it starts. Prometheus asks for the metrics each 30 seconds.
const READ_INTERVAL: Duration = Duration::from_secs(600);
/// After a failure, such as while the server starts.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);
/// Five of these make a verdict.
const SHORT_INTERVAL: Duration = Duration::from_millis(40);
