//! Tests of the queue: waits, cancels, and the seats of kube-apiserver's own levels.

use tokio::task::JoinSet;

use super::*;
use crate::flow::schedule::request::{Load, RejectReason};

fn request(level: &Arc<str>, flow: u64, wait_max: Duration) -> SeatRequest<'_> {
    SeatRequest { level, flow, seats: 1, kind: 0, wait_max, is_short_read: false, observer: None }
}

async fn acquire(
    queue: &Arc<Queue>,
    request: SeatRequest<'_>,
) -> Result<Option<SeatHold>, Rejected> {
    match queue.ask(request)? {
        Seats::Now(seats) => Ok(seats),
        Seats::Later(waiter) => waiter.wait().await.map(Some),
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_waits_longer_than_it_may_and_all_seats_come_back() {
    let metrics = FlowMetrics::register(&prometheus::Registry::new()).unwrap();
    let queue = Queue::new(true, 28, metrics);
    queue.set_plan(None);
    let level: Arc<str> = UNIDENTIFIED.into();
    let mut held = Vec::new();
    for _ in 0..20 {
        held.push(acquire(&queue, request(&level, 0, Duration::ZERO)).await.unwrap());
    }
    let mut waiters = JoinSet::new();
    for number in 1..=40 {
        let (queue, level) = (Arc::clone(&queue), Arc::clone(&level));
        waiters.spawn(async move {
            let wait_max = Duration::from_millis(120 * number);
            let began = Instant::now();
            let rejected = acquire(&queue, request(&level, number, wait_max)).await.err();
            assert_eq!(rejected.map(|rejection| rejection.reason), Some(RejectReason::TimeOut));
            let over = began.elapsed().saturating_sub(wait_max);
            assert!(began.elapsed() >= wait_max && over <= Duration::from_millis(50));
        });
    }
    while let Some(waiter) = waiters.join_next().await {
        waiter.unwrap();
    }
    // A client that goes away while it waits leaves nothing behind, also when its seat comes
    // at the same moment.
    let mut gone = Box::pin(acquire(&queue, request(&level, 50, Duration::from_secs(5))));
    assert!(futures_util::poll!(&mut gone).is_pending());
    drop(held);
    drop(gone);
    let inner = queue.inner.lock();
    let (id, _) = inner.levels[&level];
    let load = inner.scheduler.load(id);
    assert_eq!((load.seats, load.waiting, inner.waiting.len()), (0, 0, 0));
}

/// The table of `docs/priority-levels.md` has the seats of one API server.
#[test]
fn the_page_for_operators_has_the_seats_of_the_levels() {
    let metrics = FlowMetrics::register(&prometheus::Registry::new()).unwrap();
    let queue = Queue::new(true, 600, metrics);
    queue.set_plan(Some(&Plan::built_in()));
    let page = include_str!("../../../../docs/priority-levels.md");
    let inner = queue.inner.lock();
    for (name, (id, _)) in &inner.levels {
        let Load { nominal, least, .. } = inner.scheduler.load(*id);
        let row = match &**name {
            "exempt" => "| `exempt` | | |".to_owned(),
            name => format!("| `{name}` | {nominal} | {least} |"),
        };
        assert!(page.contains(&row), "{row}");
    }
    assert_eq!(inner.levels.len(), 9);
}
