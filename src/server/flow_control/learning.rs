//! Learns what the API servers can do at once: their seats from their metrics, and how many wide
//! requests they do without making short ones wait ([`WideLimit`](crate::flow::wide::WideLimit)).

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep};

use crate::server::flow_control::limits::ServerLimits;
use crate::server::flow_control::queue::Queue;
use crate::upstream::Upstream;
use crate::upstream::capacity::{ShortRequests, nominal_seats};
use crate::upstream::endpoints::ApiServer;

/// Reads the seats of the API servers from their metrics, until it is dropped: when a server is
/// found or usable again, and from time to time, since a balancer hides a server that restarts.
pub(super) async fn learn_seats(limits: &ServerLimits, upstream: &Upstream) {
    if limits.seats.is_some() {
        return;
    }
    let mut read: Vec<(Arc<ApiServer>, Instant)> = Vec::new();
    loop {
        let servers = upstream.endpoints().servers();
        let is_usable = |server: &&Arc<ApiServer>| server.is_admitted() && server.is_usable();
        read.retain(|(server, at)| {
            let is_in_set = servers.iter().any(|other| Arc::ptr_eq(other, server));
            is_in_set && is_usable(&server) && at.elapsed() < READ_AGAIN
        });
        for server in servers.iter().filter(is_usable) {
            if read.iter().any(|(other, _)| Arc::ptr_eq(other, server)) {
                continue;
            }
            read.push((Arc::clone(server), Instant::now()));
            let url = &server.endpoint;
            match nominal_seats(upstream, server).await {
                Ok(seats) => limits.learned(server.key, url, seats),
                Err(error) => {
                    tracing::info!(server = %url, %error, "cannot read the seats of an API server from its metrics");
                }
            }
        }
        sleep(LOOK_INTERVAL).await;
    }
}

/// Sends short requests while wide ones wait, and lets the queue send as many wide ones as the
/// short ones allow, until it is dropped.
pub(super) async fn learn_wide(limits: &ServerLimits, queue: &Queue, upstream: &Upstream) {
    if !limits.limits_wide {
        return;
    }
    let mut requests: Vec<(u64, ShortRequests)> = Vec::new();
    loop {
        queue.until_wide_limited().await;
        let endpoints = upstream.endpoints();
        let (servers, used) = (endpoints.servers(), endpoints.chosen_from());
        requests.retain(|(key, _)| used.contains(key));
        for server in servers.iter().filter(|server| used.contains(&server.key)) {
            if !requests.iter().any(|(key, _)| *key == server.key) {
                requests.push((server.key, ShortRequests::new(Arc::clone(server))));
            }
        }
        let asked = requests.iter_mut().map(async |(key, requests)| {
            let latency = requests.next(upstream).await;
            if let Some(latency) = latency {
                queue.set_allotment(&limits.waited(*key, latency));
            }
        });
        join_all(asked).await;
        sleep(SHORT_INTERVAL).await;
    }
}

const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// kube-apiserver reads its flags when it starts. Prometheus asks for the metrics each 30 seconds.
const READ_AGAIN: Duration = Duration::from_secs(600);
/// Five of these make a verdict.
const SHORT_INTERVAL: Duration = Duration::from_millis(40);
