//! Tests against simulated API servers, in virtual time.

use std::time::Duration;

use proptest::prelude::*;

use super::*;

mod model;
mod refusals;

use self::model::{Load, Model, Server};

const CEILING: u64 = 600;
/// Long enough to know what is usual.
const LEARNED_SECONDS: f64 = 70.0;

/// Returns the rate that takes this part of a server's capacity.
fn rate(server: &Server, part: f64) -> f64 {
    server.workers as f64 * part * 1000.0 / server.service_ms
}

/// Returns a server that was used long enough, at a constant rate.
fn learned(seed: u64, server: Server, part: f64) -> Model {
    let mut model = Model::new(seed, CEILING, server, Load::Open(rate(&server, part)));
    model.run(LEARNED_SECONDS);
    assert_eq!(model.limit(), CEILING as f64, "before");
    model
}

fn is_near(limit: f64, knee: usize) -> bool {
    (limit / knee as f64 - 1.0).abs() <= 0.2
}

/// Whether the limit is at the knee after ten seconds, and stays there. Latencies are random, and
/// single seconds follow them a little.
fn settles(limits: &[f64], knee: usize) -> bool {
    let after = limits.get(9..).unwrap_or_default();
    let mean = after.iter().sum::<f64>() / after.len() as f64;
    let is_far = |limit: &f64| (limit / knee as f64 - 1.0).abs() > 0.35;
    is_near(mean, knee) && !after.iter().any(is_far)
}

/// Returns a number between two others, the same for each run of the tests.
fn between(random: &mut fastrand::Rng, least: f64, most: f64) -> f64 {
    least + (most - least) * random.f64()
}

/// The target of the design. The load takes more than half of what the server could do.
#[test]
fn a_server_that_is_halved_gets_what_it_can_do_within_ten_seconds() {
    for seed in 0..10 {
        let random = &mut fastrand::Rng::with_seed(seed);
        let workers = random.usize(80..400);
        let service_ms = between(random, 25.0, 100.0);
        let part = between(random, 0.6, 0.9);
        let mut model = learned(seed, Server { service_ms, ..Server::new(workers) }, part);
        model.server.workers = workers / 2;
        let (knee, limits) = (workers / 2, model.limits(30));
        assert!(settles(&limits, knee), "seed {seed}, {knee}: {limits:?}");
    }
}

/// An hour of mixed load: a slow webhook, pauses of all work, peaks of nine tenths, latencies that
/// drift.
#[test]
fn a_server_that_is_well_gets_all_that_is_needed() {
    for seed in 0..2 {
        let random = &mut fastrand::Rng::with_seed(seed);
        let part = between(random, 0.3, 0.8);
        let pause_ms = between(random, 0.0, 250.0);
        let server =
            Server { pause_ms, pause_each_ms: 5000.0, webhook_ms: 800.0, ..Server::new(60) };
        let mut model = Model::new(seed, CEILING, server, Load::Open(rate(&server, part)));
        for minute in 0..60 {
            let part = if minute % 7 == 3 { 0.9 } else { part };
            let rate = rate(&server, part);
            model.set_load(Load::Open(rate));
            model.server.service_ms = 50.0 * (1.0 - 0.3 * f64::from(minute) / 60.0);
            model.server.delay_ms = 20.0 * f64::from(minute) / 60.0;
            let least = model.limits(60).into_iter().fold(f64::MAX, f64::min);
            let needed = model.needed(rate);
            assert!(least >= 0.9 * needed, "seed {seed}, minute {minute}: {least} of {needed}");
        }
        assert_eq!(model.rejected, 0, "seed {seed}");
    }
}

#[test]
fn a_slow_etcd_is_not_taken_for_a_queue() {
    for seed in 0..3 {
        let mut model = learned(seed, Server::new(200), 0.6);
        model.server.delay_ms = 200.0;
        let limits = model.limits(60);
        // A cut shows that answers fall with the seats, and is taken back.
        let low = limits.iter().filter(|limit| **limit < CEILING as f64).count();
        assert!(low <= 3, "{limits:?}");
        assert_eq!(model.rejected, 0);
        // Nor is a queue taken for a slow etcd after that.
        model.server.delay_ms = 0.0;
        model.run(LEARNED_SECONDS);
        model.server.workers = 100;
        let limits = model.limits(30);
        assert!(settles(&limits, 100), "{limits:?}");
    }
}

#[test]
fn a_slow_webhook_and_single_pauses_change_nothing() {
    for seed in 0..3 {
        let mut model = learned(seed, Server::new(60), 0.6);
        model.server.webhook_ms = 1500.0;
        model.server.pause_ms = 400.0;
        model.server.pause_each_ms = 10_000.0;
        assert!(model.limits(120).iter().all(|limit| *limit == CEILING as f64), "seed {seed}");
    }
}

#[test]
fn the_limit_leaves_its_floor_after_a_minute_of_good_answers() {
    let few = |errors| {
        let mut model = Model::new(1, CEILING, Server::new(1000), Load::Open(40.0));
        model.run(LEARNED_SECONDS);
        // There are too few answers to distinguish a delay from a queue.
        model.server.delay_ms = 5000.0;
        model.server.errors = errors;
        model.limits(120)
    };
    let limits = few(0.0);
    let at_floor = limits.iter().filter(|limit| **limit == FLOOR as f64).count();
    assert!((55..=70).contains(&at_floor), "{limits:?}");
    assert!(limits.iter().skip(100).all(|limit| *limit >= CEILING as f64 / 2.0), "{limits:?}");
    let limits = few(0.1);
    assert_eq!(limits.last(), Some(&(FLOOR as f64)), "its answers are no good");
}

#[test]
fn a_server_that_has_recovered_is_used_again() {
    for seed in 0..3 {
        let mut model = learned(seed, Server::new(200), 0.9);
        model.server.workers = 40;
        model.run(30.0);
        assert!(model.limit() < 60.0, "seed {seed}: {}", model.limit());
        model.server.workers = 200;
        model.run(90.0);
        let needed = model.needed(rate(&model.server, 0.9));
        assert!(model.limit() >= needed, "seed {seed}: {} of {needed}", model.limit());
    }
}

#[test]
fn who_only_observes_sees_the_knee_as_well() {
    for seed in 0..3 {
        let mut model = Model::new(seed, CEILING, Server::new(200), Load::Closed(190));
        model.observes = true;
        model.run(LEARNED_SECONDS);
        model.server.workers = 80;
        let limits = model.limits(30);
        assert!(settles(&limits, 80), "{limits:?}");
    }
}

#[test]
fn lost_connections_lower_the_limit() {
    let mut limit = AdaptiveLimit::new(Duration::ZERO, CEILING);
    limit.take(Duration::ZERO, 200);
    let answer = |class| Answer { class, seats: 1, latency: FLOOR_FOR, is_error: false };
    (0..90).for_each(|_| limit.answered(answer(None)));
    (0..10).for_each(|_| limit.lost());
    limit.tick(Duration::from_secs(3));
    assert_eq!(limit.limit(true), 180, "nine tenths of what was in use");
    assert_eq!(limit.limit(false), CEILING);
    (0..100).for_each(|_| limit.answered(answer(None)));
    (0..5).for_each(|_| limit.lost());
    limit.tick(Duration::from_secs(6));
    assert_eq!(limit.limit(true), 180, "one of twenty is not too many");
}

#[test]
fn a_limit_that_was_not_lowered_follows_its_ceiling() {
    let mut limit = AdaptiveLimit::new(Duration::ZERO, 600);
    limit.set_ceiling(200);
    assert_eq!((limit.limit(true), limit.ceiling()), (200, 200));
    limit.set_ceiling(600);
    assert_eq!(limit.limit(true), 600);
    limit.set_ceiling(20);
    assert_eq!(limit.limit(true), 20, "the floor is not above the ceiling");
}

/// The figures of `docs/decisions/adaptive-limits.md`.
#[test]
#[ignore = "prints figures"]
fn figures() {
    println!("workers -> half | load | s to +-20 % | then: seconds within +-20 % | mean / knee");
    for (workers, part) in [(80, 0.95), (120, 0.6), (200, 0.8), (400, 0.7)] {
        let knee = workers / 2;
        let (mut slowest, mut after) = (0, Vec::new());
        for seed in 0..25 {
            let mut model = learned(seed, Server::new(workers), part);
            model.server.workers = knee;
            let limits = model.limits(40);
            let first = limits.iter().position(|limit| is_near(*limit, knee));
            slowest = slowest.max(first.map_or(usize::MAX, |first| first + 1));
            after.extend_from_slice(limits.get(10..).unwrap_or_default());
        }
        let within = after.iter().filter(|limit| is_near(**limit, knee)).count();
        let within = 100.0 * within as f64 / after.len() as f64;
        let mean = after.iter().sum::<f64>() / after.len() as f64 / knee as f64;
        println!("{workers} -> {knee} | {part} | {slowest} | {within:.1} % | {mean:.2}");
    }
}
