//! Tests of the health of an API server.

use super::*;
use proptest::prelude::*;

const SECOND: Duration = Duration::from_secs(1);

fn is_usable(health: &Health, now: Instant) -> bool {
    health.state(now) == State::Usable
}

/// Requests one after the other, a millisecond apart. Returns the time after the last of them.
fn requests(health: &mut Health, outcome: Outcome, count: u32, mut now: Instant) -> Instant {
    for _ in 0..count {
        let started = now;
        now += Duration::from_millis(1);
        health.record(outcome, started, now);
    }
    now
}

#[test]
fn two_of_three_failed_probes_end_it_and_two_in_a_row_bring_it_back() {
    let now = Instant::now();
    let mut health = Health::configured();
    let expected = [
        (ProbeResult::Failed, true),
        (ProbeResult::Ready, true),
        (ProbeResult::NotReady, false),
        (ProbeResult::Ready, false),
        (ProbeResult::Failed, false),
        (ProbeResult::Ready, false),
        (ProbeResult::Ready, true),
        // The failures before no longer count.
        (ProbeResult::Failed, true),
    ];
    for (step, (result, usable)) in expected.into_iter().enumerate() {
        health.probe(result, now);
        assert_eq!(is_usable(&health, now), usable, "step {step}");
    }
}

#[test]
fn a_server_that_shuts_down_drains_at_once_until_it_is_back() {
    let now = Instant::now();
    let mut health = Health::configured();
    health.probe(ProbeResult::ShuttingDown, now);
    assert_eq!(health.state(now), State::Draining);
    health.probe(ProbeResult::Ready, now);
    assert_eq!(health.state(now), State::Draining);
    health.probe(ProbeResult::Ready, now);
    assert!(is_usable(&health, now));
    health.shutting_down();
    assert_eq!(health.state(now), State::Draining);
    // It ends: nothing answers any more.
    health.probe(ProbeResult::Failed, now);
    health.probe(ProbeResult::Failed, now);
    assert_eq!(health.state(now), State::Ejected);
}

#[test]
fn a_goaway_counts_only_with_a_failing_readiness() {
    let now = Instant::now();
    let mut health = Health::configured();
    health.goaway(now);
    health.probe(ProbeResult::Ready, now);
    assert!(is_usable(&health, now));
    health.probe(ProbeResult::NotReady, now + 11 * SECOND);
    assert!(is_usable(&health, now + 11 * SECOND), "the GOAWAY is too old");
    health.goaway(now + 12 * SECOND);
    assert_eq!(health.state(now + 12 * SECOND), State::Draining);
    let mut health = Health::configured();
    health.goaway(now);
    health.probe(ProbeResult::NotReady, now + SECOND);
    assert_eq!(health.state(now + SECOND), State::Draining);
}

#[test]
fn three_failures_in_a_row_eject_and_one_probe_decides() {
    let mut health = Health::configured();
    let mut now = requests(&mut health, Outcome::TransportFailure, 2, Instant::now());
    now = requests(&mut health, Outcome::Answered, 1, now);
    now = requests(&mut health, Outcome::TransportFailure, 2, now);
    assert!(is_usable(&health, now));
    now = requests(&mut health, Outcome::TransportFailure, 1, now);
    let mut base = SECOND;
    for _ in 0..8 {
        assert_eq!(health.state(now), State::Ejected);
        let due = health.next_probe(now, 100 * SECOND);
        let time = due - now;
        assert!(time >= base.mul_f64(0.75).min(30 * SECOND).min(base), "{time:?} for {base:?}");
        assert!(time <= base.mul_f64(1.25).min(30 * SECOND), "{time:?} for {base:?}");
        now = due;
        assert_eq!(health.state(now), State::HalfOpen);
        health.probe(ProbeResult::Failed, now);
        base = (base * 2).min(32 * SECOND);
    }
    assert_eq!(health.ejections, 9);
    now = health.next_probe(now, 100 * SECOND);
    health.probe(ProbeResult::Ready, now);
    assert!(is_usable(&health, now));
    // After a minute without failure the next ejection is short again.
    now = requests(&mut health, Outcome::TransportFailure, 3, now + 60 * SECOND);
    assert!(health.next_probe(now, 100 * SECOND) - now <= SECOND.mul_f64(1.25));
}

#[test]
fn requests_of_one_broken_connection_are_one_failure() {
    let started = Instant::now();
    let mut health = Health::configured();
    for _ in 0..15 {
        health.record(Outcome::TransportFailure, started, started + SECOND);
    }
    assert!(is_usable(&health, started + SECOND));
}

#[test]
fn failures_between_answers_do_not_eject() {
    let (mut now, mut health) = (Instant::now(), Health::configured());
    for _ in 0..100 {
        now = requests(&mut health, Outcome::TransportFailure, 2, now);
        now = requests(&mut health, Outcome::Answered, 1, now);
    }
    assert!(is_usable(&health, now));
}

#[test]
fn a_response_ends_an_ejection_only_if_its_request_began_later() {
    let start = Instant::now();
    let mut health = Health::configured();
    let now = requests(&mut health, Outcome::TransportFailure, 3, start);
    health.record(Outcome::Answered, start, now);
    assert_eq!(health.state(now), State::Ejected);
    health.record(Outcome::Answered, now, now);
    assert!(is_usable(&health, now));
}

#[test]
fn an_unreachable_server_is_tried_every_minute() {
    let mut now = Instant::now();
    let mut health = Health::unprobed(now);
    assert_eq!(health.next_probe(now, 5 * SECOND), now);
    for _ in 0..3 {
        assert_eq!((health.state(now), health.was_reached()), (State::Unreachable, false));
        health.probe(ProbeResult::Failed, now);
        let due = health.next_probe(now, 5 * SECOND);
        assert_eq!(due, now + 60 * SECOND);
        now = due;
    }
    requests(&mut health, Outcome::TransportFailure, 5, now);
    assert_eq!(health.state(now).as_str(), "unreachable");
    health.probe(ProbeResult::Ready, now);
    assert!(is_usable(&health, now) && health.was_reached());
    // One that starts is reached, and then probed as usual.
    let mut health = Health::unprobed(now);
    health.probe(ProbeResult::NotReady, now);
    assert_eq!((health.state(now), health.was_reached()), (State::Ejected, true));
    assert_eq!(health.next_probe(now, 5 * SECOND), now + 5 * SECOND);
    health.probe(ProbeResult::Ready, now);
    health.probe(ProbeResult::Ready, now);
    assert!(is_usable(&health, now));
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Request(Outcome),
    Probe(ProbeResult),
    Goaway,
    ShuttingDown,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        Just(Event::Request(Outcome::Answered)),
        Just(Event::Request(Outcome::TransportFailure)),
        Just(Event::Request(Outcome::TransportFailure)),
        Just(Event::Request(Outcome::TransportFailure)),
        Just(Event::Probe(ProbeResult::Ready)),
        Just(Event::Probe(ProbeResult::NotReady)),
        Just(Event::Probe(ProbeResult::Failed)),
        Just(Event::Probe(ProbeResult::ShuttingDown)),
        Just(Event::Goaway),
        Just(Event::ShuttingDown),
    ]
}

proptest! {
    /// After any events, the next probe is never far away, and a healthy server is usable after the
    /// probes of two minutes.
    #[test]
    fn a_healthy_server_always_comes_back(
        events in prop::collection::vec((event(), 0_u64..3000), 0..100),
    ) {
        let mut now = Instant::now();
        let mut health = Health::unprobed(now);
        for (event, millis) in events {
            let started = now;
            now += Duration::from_millis(millis);
            match event {
                Event::Request(outcome) => health.record(outcome, started, now),
                Event::Probe(result) => health.probe(result, now),
                Event::Goaway => health.goaway(now),
                Event::ShuttingDown => health.shutting_down(),
            }
            let due = health.next_probe(now, 5 * SECOND);
            prop_assert!(due >= now && due <= now + 60 * SECOND);
        }
        let end = now + 120 * SECOND;
        while now < end {
            now = health.next_probe(now, 5 * SECOND).max(now + SECOND);
            health.probe(ProbeResult::Ready, now);
        }
        prop_assert!(is_usable(&health, now));
    }
}

#[test]
fn a_server_that_hangs_is_probed_again_at_once() {
    let now = Instant::now();
    let mut health = Health::configured();
    health.probe(ProbeResult::Ready, now);
    assert_eq!(health.next_probe(now, 5 * SECOND), now + 5 * SECOND);
    health.probe(ProbeResult::Failed, now);
    assert_eq!(health.next_probe(now, 5 * SECOND), now + SECOND / 2);
    health.probe(ProbeResult::Failed, now);
    assert!(!is_usable(&health, now));
    assert_eq!(health.next_probe(now, 5 * SECOND), now + 5 * SECOND);
}

#[test]
fn a_server_that_answers_neither_a_request_nor_a_probe_is_out() {
    let now = Instant::now();
    let mut health = Health::configured();
    health.suspect();
    assert_eq!(health.next_probe(now, 5 * SECOND), now + SECOND / 2);
    health.probe(ProbeResult::Ready, now);
    assert!(is_usable(&health, now), "the request was slow, and not the server");
    health.probe(ProbeResult::Failed, now);
    assert!(is_usable(&health, now));
    health.suspect();
    health.probe(ProbeResult::NotReady, now);
    assert!(!is_usable(&health, now), "two of three probes failed");
    let mut health = Health::configured();
    health.suspect();
    health.probe(ProbeResult::Failed, now);
    assert!(!is_usable(&health, now));
}
