//! Tests of what the answers of API servers let the queue send.

use super::*;
use crate::config::Config;

const LEVEL: &str = "low";

fn limits(adaptive: FlowControlMode) -> Arc<ServerLimits> {
    let config = FlowControlConfig {
        mode: FlowControlMode::Enforce,
        adaptive,
        ..Config::default().flow_control
    };
    ServerLimits::new(&config, LimitFamilies::register(&prometheus::Registry::new()).unwrap())
}

fn seats(allotment: Option<Allotment>) -> u64 {
    allotment.expect("the servers are others").seats
}

fn refuse(limits: &ServerLimits, server: u64) -> Allotment {
    limits.refused(server, Some((&LEVEL.into(), 1.0)), None)
}

#[test]
fn the_seats_are_those_of_the_usable_servers() {
    let limits = limits(FlowControlMode::Observe);
    let change = |weights: &[(u64, f32)]| limits.changed(Weights::from_slice(weights));
    assert_eq!(seats(change(&[(1, 1.0), (2, 1.0), (3, 1.0)])), 1800);
    assert_eq!(change(&[(1, 1.0), (2, 1.0), (3, 1.0)]), None, "nothing has changed");
    assert_eq!(seats(change(&[(1, 1.0), (3, 1.0)])), 1200, "one is out");
    assert_eq!(seats(change(&[(1, 1.0), (2, 0.25), (3, 1.0)])), 1350, "it comes back");
}

#[test]
fn latency_changes_the_seats_only_if_it_is_enforced() {
    for (adaptive, expected) in [(FlowControlMode::Observe, 600), (FlowControlMode::Enforce, 90)] {
        let limits = limits(adaptive);
        limits.changed(Weights::from_slice(&[(1, 1.0)]));
        limits.update(1, |now, limited| {
            limited.limit.take(now, 100);
            (0..20).for_each(|_| limited.limit.lost());
            limited.limit.tick(now + Duration::from_secs(3));
        });
        assert_eq!(limits.allotment(&limits.inner.lock()).seats, expected);
    }
}

#[test]
fn a_level_is_limited_once_all_servers_refuse_it() {
    let limits = limits(FlowControlMode::Observe);
    limits.changed(Weights::from_slice(&[(1, 1.0), (2, 1.0)]));
    assert_eq!(refuse(&limits, 1).caps, [], "the other one may have what there is");
    assert_eq!(refuse(&limits, 2).caps, [(LEVEL.into(), 70)]);
    assert_eq!(limits.allotment(&limits.inner.lock()).seats, 1200, "other levels are not");
    // A server that is out does not count.
    let left = limits.changed(Weights::from_slice(&[(3, 1.0)])).unwrap();
    assert_eq!((left.seats, left.caps.len()), (600, 0));
}

#[test]
fn a_refusal_without_a_level_is_of_the_server() {
    let limits = limits(FlowControlMode::Observe);
    limits.changed(Weights::from_slice(&[(1, 1.0), (2, 1.0)]));
    limits.update(1, |now, limited| limited.limit.take(now, 100));
    let allotment = limits.refused(1, None, Some(Duration::from_secs(1)));
    assert_eq!((allotment.seats, allotment.caps.len()), (670, 0));
}
