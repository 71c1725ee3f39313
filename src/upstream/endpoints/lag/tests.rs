//! Tests of the check of a server's lag.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use super::*;
use crate::upstream::endpoints::prober::tests::{Server, seconds};
use crate::upstream::testing::answer;

fn lease(renewed: &str) -> String {
    format!(r#"{{"kind":"LeaseList","items":[{{"spec":{{"renewTime":"{renewed}"}}}}]}}"#)
}

#[tokio::test]
async fn three_checks_in_a_row_find_a_server_that_lags_and_one_brings_it_back() {
    let lag = Arc::new(AtomicI64::new(6));
    let current = lag.clone();
    let server = Server::start(move |target| {
        let lag =
            if target.contains("resourceVersion=0") { current.load(Ordering::SeqCst) } else { 0 };
        Some(answer(200, lease(&format!("2026-01-01T00:00:{:02}.000000Z", 30 - lag))))
    })
    .await;
    let checked = server.clone();
    tokio::spawn(async move { run(&checked.checked).await });
    for (check, lags, expected) in [
        (1, 6, false),
        (2, 6, false),
        (3, 6, true),
        (4, 6, true),
        (5, 5, false),
        (6, 6, false),
        (7, 6, false),
    ] {
        lag.store(lags, Ordering::SeqCst);
        // A check is two reads.
        while server.asked.lock().len() < 2 * check {
            seconds(1).await;
        }
        seconds(1).await;
        assert_eq!(server.checked.server.is_lagging(), expected, "check {check}");
    }
}

#[tokio::test]
async fn nothing_is_known_where_the_lease_cannot_be_read() {
    let server = Server::start(|_| None).await;
    for (code, body) in [(403, "{}"), (404, "{}"), (200, r#"{"items":[]}"#), (200, "{}")] {
        server.answers(move |_| Some(answer(code, body)));
        assert!(check(&server.checked).await.unwrap().is_none(), "{code} {body}");
    }
    for code in [429, 500] {
        server.answers(move |_| Some(answer(code, "{}")));
        assert!(check(&server.checked).await.is_err(), "{code}");
    }
}

#[test]
fn a_renewal_between_the_two_reads_is_no_lag() {
    let mut lag = Lag::default();
    for _ in 0..10 {
        lag.note(Duration::from_secs(3));
    }
    assert!(!lag.is_lagging());
}
