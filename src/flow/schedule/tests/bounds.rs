//! The bounds of fair queueing, of lending and of waits, for random loads.

use super::fairness::{Clients, compete, compete_while};
use super::*;

/// Clients that always have requests waiting.
fn backlogged(flow: u64, seats: u64, holds_ms: u32) -> Clients {
    Clients { level: 0, flow, count: 40, seats, holds_ms, guess_ms: holds_ms }
}

fn jain(served: &[u64]) -> f64 {
    let sum: f64 = served.iter().map(|seats| *seats as f64).sum();
    let squares: f64 = served.iter().map(|seats| (*seats as f64).powi(2)).sum();
    sum * sum / (served.len() as f64 * squares)
}

/// Overload reference, §5 row 12.
#[test]
fn a_hundred_flows_get_equal_parts() {
    let mut rig = Rig::new(20, &[level("a", shares(1, 0, None))]);
    let one = |flow| Clients { count: 3, ..backlogged(flow, 1, 20) };
    let clients: Vec<Clients> = (0..100).map(one).collect();
    let served = compete(&mut rig, &clients, 10_000);
    assert!(jain(&served) >= 0.99, "{served:?}");
}

/// Overload reference, §5 row 12.
#[test]
fn flows_of_one_and_of_ten_seats_get_equal_parts() {
    let mut rig = Rig::new(40, &[level("a", shares(1, 0, None))]);
    let served = compete(&mut rig, &[backlogged(1, 1, 20), backlogged(2, 10, 20)], 10_000);
    let part = served[0] as f64 / served[1] as f64;
    assert!((0.95..=1.05).contains(&part), "{served:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 30, ..ProptestConfig::default() })]

    /// SFQ(D) (Jin, Chase, Kaur 2004): over any interval in which two flows have requests that
    /// wait, what they get differs by at most D + 1 times the sum of their largest costs. This is
    /// for two flows of requests of one seat, or two of wider ones: these together have at most a
    /// part of the level, and the largest cost is that of any flow. In a level with fewer seats,
    /// one flow may have only a small part.
    #[test]
    fn two_flows_that_wait_differ_by_a_constant(
        seats in 10_u64..24,
        flows in proptest::collection::vec((1_u64..8, 1_u32..40), 2..6),
    ) {
        let mut rig = Rig::new(seats, &[level("a", shares(1, 0, None))]);
        let clients: Vec<Clients> = (0..)
            .zip(&flows)
            .map(|(flow, (width, holds))| backlogged(flow, *width.min(&seats), *holds))
            .collect();
        let cost = |clients: &Clients| clients.seats as i64 * i64::from(clients.holds_ms);
        let longest = clients.iter().map(cost).max().unwrap_or(0);
        let mut ranges = vec![(0_i64, 0_i64); flows.len() * flows.len()];
        compete_while(&mut rig, &clients, 3000, |served| {
            for (one, given) in served.iter().enumerate() {
                for (other, other_given) in served.iter().enumerate() {
                    let (least, most) = &mut ranges[one * flows.len() + other];
                    let differ = *given as i64 - *other_given as i64;
                    (*least, *most) = (differ.min(*least), differ.max(*most));
                }
            }
        });
        for (place, (least, most)) in ranges.iter().enumerate() {
            let (one, other) = (&clients[place / flows.len()], &clients[place % flows.len()]);
            if (one.seats > 1) != (other.seats > 1) {
                continue;
            }
            // A wide one also waits until the seats of others are collected.
            let costs = if one.seats > 1 { 2 * longest } else { cost(one) + cost(other) };
            let bound = (seats as i64 + 1) * costs;
            prop_assert!(most - least <= bound, "{} of {bound}", most - least);
        }
    }

    /// Max-min fairness: who asks for less than an equal part gets it, but for one wait a request,
    /// and the others share the rest. kube-apiserver gives equal parts
    /// (kubernetes/kubernetes#95979).
    #[test]
    fn who_asks_for_less_gets_it_and_the_rest_is_shared(
        counts in proptest::collection::vec((1_usize..30, 1_u32..40), 2..8),
    ) {
        const SEATS: u64 = 20;
        const TIME: u32 = 2000;
        let mut rig = Rig::new(SEATS, &[level("a", shares(1, 0, None))]);
        let clients: Vec<Clients> = (0..)
            .zip(&counts)
            .map(|(flow, (count, holds))| Clients { count: *count, ..backlogged(flow, 1, *holds) })
            .collect();
        let served = compete(&mut rig, &clients, TIME);
        let longest = counts.iter().map(|(_, holds)| *holds).max().unwrap_or(0);
        for (place, (given, client)) in served.iter().zip(&clients).enumerate() {
            let mut demands: Vec<f64> = counts.iter().map(|(count, _)| *count as f64).collect();
            // Each of its requests waits for the end of another one at most.
            demands[place] *= f64::from(client.holds_ms) / f64::from(client.holds_ms + longest);
            let least = fair_part(SEATS as f64, &demands, demands[place]) * f64::from(TIME);
            let slack = (SEATS + 1) as f64 * f64::from(client.holds_ms + longest);
            prop_assert!(*given as f64 + slack >= least, "{given} of {least}: {counts:?} {served:?}");
        }
    }

    /// Overload reference, §5 row 4: a lender has its least seats at once, and its nominal ones
    /// when what borrowers began before has ended.
    #[test]
    fn what_was_lent_comes_back_within_one_service_time(
        lendable in 0_u32..=90,
        holds in proptest::collection::vec(1_u32..60, 40),
    ) {
        let specs = [level("a", shares(50, lendable, None)), level("b", shares(50, 0, None))];
        let mut rig = Rig::new(40, &specs);
        for (flow, holds) in holds.iter().cycle().take(400).enumerate() {
            rig.arrive(1, request(flow as u64 % 40, 1, *holds), MS * *holds);
        }
        rig.run_until(MS * 500);
        let limits = rig.scheduler.levels[0].limits;
        let at = rig.now;
        let begun: Vec<Duration> = rig.running.iter().map(|(_, _, until)| *until).collect();
        for flow in 0..limits.nominal {
            let has_begun = rig.arrive(0, request(flow, 1, 1000), MS * 1000);
            prop_assert_eq!(has_begun, true, "{} of {:?}", flow, limits);
            if flow + 1 == limits.least {
                break;
            }
        }
        for flow in limits.least..limits.nominal {
            rig.arrive(0, request(flow, 1, 1000), MS * 1000);
        }
        let service = begun.iter().max().map_or(Duration::ZERO, |until| until.saturating_sub(at));
        rig.run_until(at + service);
        prop_assert_eq!(rig.in_use(0), limits.nominal, "after {:?}", service);
    }

    /// Under saturation levels have their nominal proportions.
    #[test]
    fn levels_that_are_all_busy_have_their_nominal_parts(
        parts in proptest::collection::vec((5_u32..50, 0_u32..=100), 2..6),
    ) {
        let specs: Vec<LevelSpec> = parts
            .iter()
            .enumerate()
            .map(|(number, share)| level(&number.to_string(), shares(share.0, share.1, None)))
            .collect();
        let mut rig = Rig::new(200, &specs);
        let busy = |place| Clients { level: place / 2, count: 210, ..backlogged(place as u64, 1, 10) };
        let clients: Vec<Clients> = (0..2 * parts.len()).map(busy).collect();
        compete(&mut rig, &clients, 50);
        let served = compete(&mut rig, &clients, 200);
        let served: Vec<u64> = served.chunks(2).map(|flows| flows.iter().sum()).collect();
        let nominal = |place: usize| rig.scheduler.levels[place].limits.nominal as f64;
        let total: f64 = (0..parts.len()).map(nominal).sum();
        for (place, given) in served.iter().enumerate() {
            let expected = 200.0 * nominal(place) / total * 200.0;
            // Whole seats.
            let slack = (0.05 * expected).max(1.5 * 200.0);
            prop_assert!((*given as f64 - expected).abs() <= slack, "{place}: {given} of {expected}");
        }
    }

    /// A Retry-After is honest: a client that comes back after it finds a place in the queue, if
    /// no others came meanwhile.
    #[test]
    fn who_comes_back_after_its_time_is_taken_in(holds in 100_u32..2000, seats in 1_u64..6) {
        let mut scheduler = Scheduler::default();
        let ids = scheduler.configure(Duration::ZERO, seats, &[level("a", shares(1, 0, None))]);
        let mut rig = Rig { scheduler, ids, ..Rig::new(seats, &[]) };
        let mut last = Duration::ZERO;
        let (mut rejected, mut retry) = (0, Duration::ZERO);
        while rejected < 20 {
            let one = request(1, 1, holds);
            match rig.scheduler.arrive(rig.now, rig.ids[0], one, false) {
                Arrival::Rejected(rejection) => {
                    prop_assert_eq!(rejection.reason, RejectReason::TimeOut);
                    prop_assert!(rejection.retry_after >= last, "it does not fall while nothing ends");
                    (last, retry, rejected) = (rejection.retry_after, rejection.retry_after, rejected + 1);
                }
                Arrival::Started(ticket) => {
                    let key = WaitingKey { level: 0, flow: 1, holds: MS * holds };
                    rig.running.push((key, ticket, rig.now + MS * holds));
                }
                Arrival::Waits(id, _) => {
                    let key = WaitingKey { level: 0, flow: 1, holds: MS * holds };
                    rig.waiting.insert(id, key);
                }
                Arrival::Forced(_) => unreachable!("nothing is forced"),
            }
        }
        prop_assert!(retry <= Duration::from_secs(5) + MS * (2 * holds), "{retry:?}");
        rig.run_until(rig.now + retry);
        rig.arrive(0, request(1, 1, holds), MS * holds);
        prop_assert_eq!(rig.rejected.len(), 0);
    }
}

/// Returns what a flow with this demand gets of all seats, by filling up (water filling).
fn fair_part(seats: f64, demands: &[f64], demand: f64) -> f64 {
    let mut sorted = demands.to_vec();
    sorted.sort_by(f64::total_cmp);
    let mut rest = seats;
    for (place, other) in sorted.iter().enumerate() {
        let equal = rest / (sorted.len() - place) as f64;
        if *other >= equal {
            return demand.min(equal);
        }
        rest -= other;
    }
    demand
}
