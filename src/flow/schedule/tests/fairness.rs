//! Fairness among flows and levels, and the work that is lost to it.

use super::*;

/// Clients of one flow, which send the next request when one ends.
#[derive(Clone, Copy)]
pub(super) struct Clients {
    pub(super) level: usize,
    pub(super) flow: u64,
    pub(super) count: usize,
    pub(super) seats: u64,
    pub(super) holds_ms: u32,
    /// The guess in place of the true time.
    pub(super) guess_ms: u32,
}

/// Runs clients for `milliseconds`; returns the seat-milliseconds of each.
pub(super) fn compete(rig: &mut Rig, clients: &[Clients], milliseconds: u32) -> Vec<u64> {
    compete_while(rig, clients, milliseconds, |_| {})
}

/// Does what [`compete`] does, and shows the sums after each millisecond.
pub(super) fn compete_while(
    rig: &mut Rig,
    clients: &[Clients],
    milliseconds: u32,
    mut show: impl FnMut(&[u64]),
) -> Vec<u64> {
    let mut served = vec![0; clients.len()];
    for _ in 0..milliseconds {
        let mut open: HashMap<(usize, u64), usize> = HashMap::new();
        let running = rig.running.iter().map(|(key, _, _)| key);
        for key in running.chain(rig.waiting.values()) {
            *open.entry((key.level, key.flow)).or_default() += 1;
        }
        for client in clients {
            let request = Arriving {
                wait_max: Duration::from_secs(600),
                ..request(client.flow, client.seats, client.guess_ms)
            };
            for _ in open.get(&(client.level, client.flow)).copied().unwrap_or(0)..client.count {
                rig.arrive(client.level, request, MS * client.holds_ms);
            }
        }
        for (given, client) in served.iter_mut().zip(clients) {
            let running = rig
                .running
                .iter()
                .filter(|(key, _, _)| (key.level, key.flow) == (client.level, client.flow));
            *given += running.map(|(_, ticket, _)| ticket.seats).sum::<u64>();
        }
        show(&served);
        rig.run_until(rig.now + MS);
    }
    served
}

#[test]
fn two_flows_share_a_level_equally_however_many_requests_one_has() {
    let mut rig = Rig::new(10, &[level("a", shares(1, 0, None))]);
    let small = Clients { level: 0, flow: 1, count: 10, seats: 1, holds_ms: 10, guess_ms: 10 };
    let large = Clients { flow: 2, count: 200, ..small };
    let served = compete(&mut rig, &[small, large], 2000);
    assert!(served[0].abs_diff(served[1]) < 400, "{served:?}");
}

#[test]
fn wrong_guesses_are_corrected() {
    let mut rig = Rig::new(10, &[level("a", shares(1, 0, None))]);
    let honest = Clients { level: 0, flow: 1, count: 20, seats: 1, holds_ms: 10, guess_ms: 10 };
    let cheap = Clients { flow: 2, holds_ms: 100, guess_ms: 1, ..honest };
    let served = compete(&mut rig, &[honest, cheap], 5000);
    assert!(served[0] * 10 > served[1] * 8, "{served:?}");
}

#[test]
fn a_flow_that_sends_one_at_a_time_waits_for_about_one_request() {
    let mut rig = Rig::new(10, &[level("a", shares(1, 0, None))]);
    let crowd = Clients { level: 0, flow: 2, count: 200, seats: 1, holds_ms: 10, guess_ms: 10 };
    let single = Clients { flow: 1, count: 1, ..crowd };
    let served = compete(&mut rig, &[single, crowd], 4000);
    // Alone it would have a seat all the time.
    assert!(served[0] > 3000, "{served:?}");
}

#[test]
fn wide_lists_leave_seats_to_requests_of_one() {
    let mut rig = Rig::new(40, &[level("a", shares(1, 0, None))]);
    let lists = Clients { level: 0, flow: 2, count: 50, seats: 10, holds_ms: 100, guess_ms: 100 };
    let gets = Clients { level: 0, flow: 1, count: 5, seats: 1, holds_ms: 5, guess_ms: 5 };
    let served = compete(&mut rig, &[gets, lists], 4000);
    // Five at a time would have five seats all the time.
    assert!(served[0] > 18_000, "{served:?}");
    assert!(served[1] > 100_000, "the rest is used: {served:?}");
}

/// The two wide flows may not run together, and one seat is rarely free beside them.
#[test]
fn a_flow_of_short_wide_requests_is_not_passed_by_each_long_one() {
    let mut rig = Rig::new(12, &[level("a", shares(1, 0, None))]);
    let one = |flow, seats, holds_ms| Clients {
        level: 0,
        flow,
        count: 40,
        seats,
        holds_ms,
        guess_ms: holds_ms,
    };
    let served = compete(&mut rig, &[one(0, 4, 13), one(1, 6, 1), one(2, 1, 8)], 10_000);
    let part = served[1] as f64 / served[0] as f64;
    assert!((0.95..=1.05).contains(&part), "{served:?}");
}

#[test]
fn levels_have_their_nominal_parts_when_all_are_busy() {
    let specs = [level("low", shares(10, 50, None)), level("high", shares(30, 50, None))];
    let mut rig = Rig::new(40, &specs);
    let low = Clients { level: 0, flow: 1, count: 200, seats: 1, holds_ms: 10, guess_ms: 10 };
    let high = Clients { level: 1, ..low };
    let served = compete(&mut rig, &[low, high], 2000);
    let part = served[0] as f64 / (served[0] + served[1]) as f64;
    assert!((0.2..0.3).contains(&part), "{served:?}");
}

#[test]
fn no_seat_is_idle_while_one_waits_that_may_borrow_it() {
    let specs = [level("a", shares(10, 100, None)), level("b", shares(30, 100, None))];
    let mut rig = Rig::new(40, &specs);
    let busy = Clients { level: 0, flow: 1, count: 300, seats: 1, holds_ms: 10, guess_ms: 10 };
    let served = compete(&mut rig, &[busy], 1000);
    assert!(served[0] > 39_000, "{served:?}");
}
