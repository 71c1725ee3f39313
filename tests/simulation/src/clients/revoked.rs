//! A user of a gateway whose permission to watch comes and goes (A2).

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use super::Client;
use crate::checker::Form;
use crate::guests;

/// Watches until the run is over, while nothing fails.
pub(super) async fn run(mut client: Client) {
    while !client.setting.phase.is_over() {
        client.pause(INTERVAL).await;
        if client.setting.phase.is_settled() {
            client.wander(3);
            guests::permit(&client.setting.simulator.store());
            sleep(PERMITTED).await;
            watch(&mut client).await;
        }
    }
    guests::revoke(&client.setting.simulator.store());
}

/// A2: opens a watch, revokes the permission after a while, and sees whether the watch ends.
async fn watch(client: &mut Client) {
    let path = guests::REVOKED_PATH;
    let api = client.setting.simulator.store();
    let opened = client.caller.open(path, Form::Json).await;
    let Ok(mut frames) = opened else { return guests::revoke(&api) };
    client.trace(path, frames.status, &frames.cache, &bytes::Bytes::new());
    let mut revoked = None;
    let mut until = Instant::now() + Duration::from_millis(client.rng.u64(1000..40_000));
    while frames.is_hit() && frames.status == 200 {
        match timeout_at(until, frames.next()).await {
            Ok(Ok(Some(_))) => {}
            Ok(_) => break,
            Err(_) if revoked.is_none() => {
                revoked = Some(Instant::now());
                until = Instant::now() + ENDED_WITHIN;
                guests::revoke(&api);
            }
            Err(_) => {
                let checker = &client.setting.checker;
                if client.setting.phase.is_settled() {
                    let target = client.caller.target();
                    let what = format!(
                        "a watch of {path} from {target} goes on {ENDED_WITHIN:?} after the \
                         loss of its permission"
                    );
                    checker.violated("A2", &what);
                }
                break;
            }
        }
    }
    if revoked.is_some() {
        client.setting.checker.checked("A2");
    }
    guests::revoke(&api);
}

const INTERVAL: Duration = Duration::from_secs(2);
/// Longer than a denial is kept.
const PERMITTED: Duration = Duration::from_secs(12);
/// One and a half intervals of the check, the life of a decision, and the time of a review.
const ENDED_WITHIN: Duration = Duration::from_secs(45);
