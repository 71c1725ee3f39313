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
    let families = LimitFamilies::register(&prometheus::Registry::new()).unwrap();
    ServerLimits::new(&config, true, families)
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
    limits.update(1, |_, limited| limited.in_use = 100);
    let allotment = limits.refused(1, None, Some(Duration::from_secs(1)));
    assert_eq!((allotment.seats, allotment.caps.len()), (670, 0));
}

#[test]
fn seats_are_those_that_the_metrics_of_a_server_name() {
    let limits = limits(FlowControlMode::Observe);
    limits.changed(Keys::from_slice(&[1, 2]));
    let url = Endpoint::parse("https://127.0.0.1:6443", None).unwrap();
    limits.learned(1, &url, Some(40));
    let seats = || limits.allotment(&limits.inner.lock()).seats;
    assert_eq!(seats(), 640);
    limits.learned(1, &url, None);
    assert_eq!(seats(), 1200, "the default where a server names none");
}

#[test]
fn wide_requests_begin_with_one_and_grow_while_short_ones_are_quick() {
    let limits = limits(FlowControlMode::Enforce);
    limits.changed(Keys::from_slice(&[1, 2]));
    assert_eq!(limits.allotment(&limits.inner.lock()).wide_seats, Some(2));
    let load = WideLoad { seats: 8, seats_max: 2, is_limited: true };
    let quick = |_| limits.waited(1, Some(Duration::from_millis(2)), load).wide_seats;
    let grown: Vec<Option<u64>> = (0..5).map(quick).collect();
    assert_eq!(grown[4], Some(21), "each server has a limit of its own");
    let off = self::limits(FlowControlMode::Observe);
    assert_eq!(off.allotment(&off.inner.lock()).wide_seats, None);
}
