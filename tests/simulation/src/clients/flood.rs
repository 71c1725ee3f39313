//! A client that sends more than its share: waves of many requests at once on one connection. Some
//! are given up while they wait. Some waves come back after their Retry-After, others at once.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Client;
use super::crowd::{Sent, draw_request};

/// One of many senders of a wave.
struct Sender {
    client: Client,
    ends: Instant,
    heeds_refusals: bool,
}

/// Sends waves until it is calm.
pub(super) async fn run(mut client: Client) {
    let mut sent = 0;
    while !client.setting.phase.is_calm() {
        let quiet = Duration::from_secs(client.rng.u64(5..60));
        client.pause(quiet).await;
        if client.setting.phase.is_calm() {
            return;
        }
        client.wander(2);
        let lasts = Duration::from_millis(client.rng.u64(2000..12_000));
        let heeds_refusals = client.rng.bool();
        let ends = Instant::now() + lasts;
        let mut wave = JoinSet::new();
        for _ in 0..client.rng.usize(8..40) {
            if let Err(why) = client.caller.dial_shared().await {
                client.trace_failure("a wave", &why);
                break;
            }
            let sender = Sender { client: client.twin(), ends, heeds_refusals };
            wave.spawn(sender.run(sent));
            sent += IDS_OF_A_SENDER;
        }
        while wave.join_next().await.is_some() {}
    }
}

impl Sender {
    /// Sends one request after the other until the wave ends, or a request fails.
    async fn run(mut self, first: u64) {
        for number in first..first + IDS_OF_A_SENDER {
            if Instant::now() >= self.ends || self.client.setting.phase.is_calm() {
                return;
            }
            let (method, path, body) = draw_request(&mut self.client.rng);
            let leaves = (self.client.rng.u8(..5) == 0)
                .then(|| Duration::from_millis(self.client.rng.u64(1..2000)));
            let Some(wait) = self.send(number, (method, path, body), leaves).await else { return };
            tokio::time::sleep(wait).await;
        }
    }

    /// Sends a request. Returns how long to wait before the next one; `None` after a failure.
    async fn send(
        &mut self,
        number: u64,
        (method, path, body): (Method, String, Bytes),
        leaves: Option<Duration>,
    ) -> Option<Duration> {
        let sent = Sent::new(&self.client, number, &method, &path);
        let call = self.client.caller.call_as(sent.audit_id(), method, &path, body);
        let answer = match leaves {
            Some(leaves) => tokio::time::timeout(leaves, call).await.ok(),
            None => Some(call.await),
        };
        let soon = Duration::from_millis(self.client.rng.u64(10..200));
        let Some(answer) = answer else {
            sent.given_up(&self.client);
            return Some(soon);
        };
        let is_failed = answer.is_err();
        let refused = sent.ended(&self.client, &answer);
        match refused {
            _ if is_failed => None,
            Some(retry_after) if self.heeds_refusals => Some(retry_after),
            _ => Some(soon),
        }
    }
}

/// The most requests of one sender in a wave.
const IDS_OF_A_SENDER: u64 = 1000;
