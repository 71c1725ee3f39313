//! Tests of the upstream's absence, in paused time.

use prometheus::Registry;

use super::*;
use crate::testing::eventually;

fn availability() -> Availability {
    Availability::new(AvailabilityMetrics::register(&Registry::new()).unwrap())
}

fn check(availability: &Availability, is_answered: bool) {
    availability.note_check(Instant::now(), is_answered);
}

async fn advance(millis: u64) {
    tokio::time::advance(Duration::from_millis(millis)).await;
}

#[tokio::test(start_paused = true)]
async fn the_upstream_is_away_after_a_second_of_failed_checks() {
    let availability = availability();
    assert!(availability.is_usable() && !availability.is_away());
    check(&availability, false);
    assert!(!availability.is_usable());
    advance(999).await;
    assert!(!availability.is_away());
    check(&availability, false);
    advance(1).await;
    assert!(availability.is_away(), "the first failure counts");
    check(&availability, true);
    assert!(availability.is_usable() && !availability.is_away());
}

#[tokio::test(start_paused = true)]
async fn a_failover_of_less_than_a_second_is_no_absence() {
    let availability = availability();
    for _ in 0..5 {
        check(&availability, false);
        advance(900).await;
        check(&availability, true);
        advance(100).await;
        assert!(availability.away_since().is_none());
    }
}

/// A check that hung while another one was answered says nothing about the time after it.
#[tokio::test(start_paused = true)]
async fn a_check_that_was_sent_before_an_answer_does_not_count() {
    let availability = availability();
    let sent = Instant::now();
    advance(10).await;
    check(&availability, true);
    availability.note_check(sent, false);
    assert!(availability.is_usable());
}

#[tokio::test(start_paused = true)]
async fn a_response_ends_an_absence_but_that_of_a_load_balancer_does_not() {
    let availability = availability();
    check(&availability, false);
    for status in [502, 503, 504] {
        availability.note_response(Instant::now(), StatusCode::from_u16(status).unwrap());
        assert!(!availability.is_usable(), "{status}");
    }
    availability.note_response(Instant::now(), StatusCode::FORBIDDEN);
    assert!(availability.is_usable());
}

#[tokio::test(start_paused = true)]
async fn waits_end_with_the_answer_or_at_their_deadline() {
    let availability = availability();
    check(&availability, false);
    let begun = Instant::now();
    let deadline = begun + Duration::from_secs(1);
    assert!(!availability.usable_by(deadline).await);
    assert_eq!(begun.elapsed(), Duration::from_secs(1));

    let moment = Instant::now();
    let waiting = tokio::spawn({
        let availability = availability.clone();
        async move { availability.answered_after(moment, moment + Duration::from_secs(1)).await }
    });
    sleep(Duration::from_millis(100)).await;
    check(&availability, true);
    assert!(waiting.await.unwrap());
    assert_eq!(moment.elapsed(), Duration::from_millis(100));
    advance(1).await;
    assert!(!availability.answered_after(Instant::now(), Instant::now()).await, "an old answer");
}

#[tokio::test(start_paused = true)]
async fn silence_while_a_request_waits_asks_for_a_check() {
    let availability = availability();
    let waiting = availability.waiting();
    let begun = Instant::now();
    assert_eq!(availability.next_check(begun).await, CheckCause::Suspicion);
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    waiting.responded();
    let begun = Instant::now();
    assert_eq!(availability.next_check(begun).await, CheckCause::Interval);
    assert!(begun.elapsed() >= Duration::from_secs(8), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_failed_request_asks_for_a_check_at_once() {
    let availability = availability();
    sleep(Duration::from_secs(5)).await;
    availability.suspect();
    let begun = Instant::now();
    let last = begun - Duration::from_secs(5);
    assert_eq!(availability.next_check(last).await, CheckCause::Suspicion);
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn an_absence_shows_in_the_metrics() {
    let registry = Registry::new();
    let availability = Availability::new(AvailabilityMetrics::register(&registry).unwrap());
    let cancel = CancellationToken::new();
    let report = tokio::spawn(availability.clone().report(cancel.clone()));
    let value = |name: &str| {
        let families = registry.gather();
        let family = families.iter().find(|family| family.name() == name).unwrap();
        let metric = &family.get_metric()[0];
        metric.get_gauge().get_value() + metric.get_counter().get_value()
    };
    check(&availability, false);
    eventually("the gauge rises", || value("weir_upstream_away") > 0.0).await;
    sleep(Duration::from_secs(5)).await;
    assert!(value("weir_upstream_away_seconds_total") >= 4.0);
    check(&availability, true);
    eventually("the gauge falls", || value("weir_upstream_away") < 1.0).await;
    cancel.cancel();
    report.await.unwrap();
}
