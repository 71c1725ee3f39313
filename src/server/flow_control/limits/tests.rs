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
    let change = |keys: &[u64]| limits.changed(Keys::from_slice(keys));
    assert_eq!(seats(change(&[1, 2, 3])), 1800);
    assert_eq!(change(&[1, 2, 3]), None, "nothing has changed");
    assert_eq!(seats(change(&[1, 3])), 1200, "one is out");
    assert_eq!(seats(change(&[1, 2, 3])), 1800, "it comes back");
}

#[test]
fn latency_changes_the_seats_only_if_it_is_enforced() {
    for (adaptive, expected) in [(FlowControlMode::Observe, 600), (FlowControlMode::Enforce, 90)] {
        let limits = limits(adaptive);
        limits.changed(Keys::from_slice(&[1]));
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
    limits.changed(Keys::from_slice(&[1, 2]));
    assert_eq!(refuse(&limits, 1).caps, [], "the other one may have what there is");
    assert_eq!(refuse(&limits, 2).caps, [(LEVEL.into(), 70)]);
    assert_eq!(limits.allotment(&limits.inner.lock()).seats, 1200, "other levels are not");
    // A server that is out does not count.
    let left = limits.changed(Keys::from_slice(&[3])).unwrap();
    assert_eq!((left.seats, left.caps.len()), (600, 0));
}

#[test]
fn a_refusal_without_a_level_is_of_the_server() {
    let limits = limits(FlowControlMode::Observe);
    limits.changed(Keys::from_slice(&[1, 2]));
    limits.update(1, |now, limited| limited.limit.take(now, 100));
    let allotment = limits.refused(1, None, Some(Duration::from_secs(1)));
    assert_eq!((allotment.seats, allotment.caps.len()), (670, 0));
}
