//! A client that behaves: it sends one request after the other, and comes back after its
//! Retry-After. It must be served whatever others send (Q2).

use std::time::Duration;

use tokio::time::Instant;

use super::Client;
use super::crowd::{Sent, draw_request};
use crate::checker::Served;

/// Sends until it is calm.
pub(super) async fn run(mut client: Client) {
    let mut sent = 0;
    while !client.setting.phase.is_calm() {
        client.pause(INTERVAL).await;
        client.wander(10);
        let (method, path, body) = draw_request(&mut client.rng);
        let begun = Instant::now();
        let mut audit_ids = Vec::new();
        let is_served = loop {
            let one = Sent::new(&client, sent, &method, &path);
            sent += 1;
            audit_ids.push(one.audit_id().to_owned());
            let call = client.caller.call_as(one.audit_id(), method.clone(), &path, body.clone());
            let answer = call.await;
            let Some(retry_after) = one.ended(&client, &answer) else { break answer.is_ok() };
            if audit_ids.len() == ATTEMPTS_MAX {
                break false;
            }
            tokio::time::sleep(retry_after).await;
        };
        let name = client.name.clone();
        let served = Served { name, begun, ended: Instant::now(), audit_ids, is_served };
        client.setting.checker.served(served);
    }
}

const INTERVAL: Duration = Duration::from_secs(1);
/// Far more than anybody needs.
const ATTEMPTS_MAX: usize = 20;
