//! Tests of the choice among API servers.

use super::*;
use proptest::prelude::*;

fn candidate(name: &str) -> Candidate {
    Candidate { key: key(name), in_use: 0, latency: None, is_avoided: false, seats_part: 1.0 }
}

fn three() -> Vec<Candidate> {
    ["10.0.0.1:6443", "10.0.0.2:6443", "10.0.0.3:6443"].map(candidate).to_vec()
}

/// How often each candidate is chosen.
fn shares(candidates: &[Candidate]) -> Vec<usize> {
    let mut counts = vec![0; candidates.len()];
    for _ in 0..3000 {
        counts[spread(candidates).unwrap()] += 1;
    }
    counts
}

#[test]
fn equal_servers_get_equal_shares() {
    fastrand::seed(1);
    assert!(shares(&three()).iter().all(|share| (800..1200).contains(share)));
    assert_eq!(shares(&[candidate("a")]), [3000]);
    assert_eq!(spread(&[]), None);
}

#[test]
fn the_loaded_the_slow_and_the_refusing_server_get_nothing_from_two_choices() {
    fastrand::seed(2);
    for change in [
        (|one: &mut Candidate| one.in_use = 10) as fn(&mut Candidate),
        |one| one.latency = Some(1.0),
        |one| one.is_avoided = true,
        |one| one.seats_part = 0.1,
    ] {
        let mut candidates = three();
        for one in &mut candidates {
            one.latency = Some(0.01);
        }
        change(&mut candidates[1]);
        assert_eq!(shares(&candidates)[1], 0);
    }
}

#[test]
fn an_unknown_latency_counts_as_the_mean() {
    fastrand::seed(3);
    let mut candidates = three();
    candidates[0].latency = Some(0.010);
    candidates[1].latency = Some(0.030);
    let shares = shares(&candidates);
    assert!(shares[0] > shares[2] && shares[2] > shares[1], "{shares:?}");
}

#[test]
fn a_client_stays_at_its_server_while_that_may_be_used() {
    let mut candidates = three();
    let chosen = sticky(7, None, &candidates).unwrap();
    let current = Some(candidates[chosen].key);
    candidates[chosen].in_use = 1000;
    assert_eq!(sticky(7, current, &candidates), Some(chosen));
    // A new client with the same key goes elsewhere, because of the load.
    assert_ne!(sticky(7, None, &candidates), Some(chosen));
    candidates.remove(chosen);
    assert!(sticky(7, current, &candidates).is_some());
    assert_eq!(sticky(7, current, &[]), None);
}

#[test]
fn all_servers_down_are_tried_in_turn() {
    assert_eq!(panic_order(0, &[true, true, true]).as_slice(), [0, 1, 2]);
    assert_eq!(panic_order(4, &[true, true, true]).as_slice(), [1, 2, 0]);
    assert_eq!(panic_order(1, &[true, false, true]).as_slice(), [2, 0]);
    assert_eq!(panic_order(1, &[false, false]).as_slice(), [1, 0]);
    assert!(panic_order(3, &[]).is_empty());
}

proptest! {
    /// When a server goes, only what was there moves; the order of the others stays.
    #[test]
    fn only_what_was_at_a_lost_server_moves(resource in any::<u64>(), servers in 2_usize..8) {
        let candidates: Vec<_> = (0..servers).map(|server| candidate(&server.to_string())).collect();
        let order = rendezvous(resource, &candidates);
        for lost in 0..servers {
            let rest: Vec<_> =
                candidates.iter().filter(|one| one.key != candidates[lost].key).copied().collect();
            let keys: Vec<_> =
                rendezvous(resource, &rest).iter().map(|&index| rest[index].key).collect();
            let expected: Vec<_> = order
                .iter()
                .filter(|&&index| index != lost)
                .map(|&index| candidates[index].key)
                .collect();
            prop_assert_eq!(keys, expected);
        }
    }

    /// No server gets more than 1.25 times the mean, whatever the keys are.
    #[test]
    fn the_load_of_sticky_clients_is_bounded(
        keys in prop::collection::vec(any::<u64>(), 1..200),
        servers in 1_usize..8,
    ) {
        let mut candidates: Vec<_> = (0..servers).map(|server| candidate(&server.to_string())).collect();
        for &client in &keys {
            let chosen = sticky(client, None, &candidates).unwrap();
            candidates[chosen].in_use += 1;
        }
        let most = candidates.iter().map(|one| one.in_use).max().unwrap();
        prop_assert!(most * servers * 4 <= keys.len() * 5 + servers * 4);
    }
}
