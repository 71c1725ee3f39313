//! First lists. Many clients, each on a connection of its own, list their node's pods at once. Weir
//! has just started. The pods of a DaemonSet do the same when it is rolled out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::client::{Connection, Endpoint};
use crate::report::{percentiles, print_upstream};
use crate::testbed::{Testbed, name};
use crate::token::token;

/// Lists at resourceVersion=0, and without a resourceVersion with either setting of
/// `cache.consistentLists`.
pub(crate) async fn run(testbed: &mut Testbed) {
    let auto = json!({"consistentLists": "auto"});
    for (title, query, cache) in [
        ("first lists at resourceVersion=0", "&resourceVersion=0", json!({})),
        ("first lists without a resourceVersion, forwarded", "", json!({})),
        ("first lists without a resourceVersion, consistentLists: auto", "", auto),
    ] {
        one(testbed, title, query, cache).await;
    }
}

/// The responses to the clients of one phase.
#[derive(Default)]
struct Seen {
    took: Vec<Duration>,
    codes: BTreeMap<u16, usize>,
    forwarded: usize,
    broken: usize,
}

async fn one(testbed: &mut Testbed, title: &str, query: &str, cache: Value) {
    testbed.start_weir_with(cache).await;
    let (clients, tokens) = (testbed.args.watchers, testbed.args.tokens);
    let seen: Arc<Mutex<Seen>> = Arc::default();
    let started = Instant::now();
    let mut lists = JoinSet::new();
    for number in 0..clients {
        let path =
            format!("/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-{}{query}", number % 100);
        let token = token(&name(number % tokens));
        lists.spawn(list(
            testbed.endpoint.clone(),
            number,
            path,
            token,
            started,
            Arc::clone(&seen),
        ));
    }
    lists.join_all().await;
    let seen = std::mem::take(&mut *seen.lock());
    println!("\n{title}: {clients} clients, {tokens} tokens");
    println!(
        "  clients: answered {}; responses {:?}, {} forwarded, {} attempts without a response",
        percentiles(seen.took),
        seen.codes,
        seen.forwarded,
        seen.broken
    );
    print_upstream(testbed);
}

/// Lists until there is an answer.
async fn list(
    endpoint: Endpoint,
    number: usize,
    path: String,
    token: String,
    started: Instant,
    seen: Arc<Mutex<Seen>>,
) {
    loop {
        let attempt = async {
            let mut connection = Connection::open(&endpoint, number).await?;
            let head = connection.get(&path, &token).await?;
            connection.body(&head).await.map(|_| head)
        };
        let wait = match attempt.await {
            Ok(head) => {
                let mut seen = seen.lock();
                *seen.codes.entry(head.code).or_default() += 1;
                seen.forwarded += usize::from(head.code == 200 && !head.hit);
                if head.code == 200 {
                    seen.took.push(started.elapsed());
                    return;
                }
                Duration::from_secs(head.retry_after.unwrap_or(1))
            }
            Err(_) => {
                seen.lock().broken += 1;
                Duration::from_millis(100)
            }
        };
        sleep(wait).await;
    }
}
