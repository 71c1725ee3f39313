//! Tests of bodies and tasks that share slots.

use futures_util::task::noop_waker_ref;

use super::*;

fn poll(used: &mut LaneUse) -> bool {
    used.poll_slot(Some(1 << 20), &Context::from_waker(noop_waker_ref())).is_ready()
}

/// Sends pieces until there is no slot for another. Returns their number, `most` at most.
fn send(used: &mut LaneUse, most: usize) -> usize {
    let send = |_: &usize| {
        let may = poll(used);
        if may {
            used.sent(PIECE_BYTES);
        }
        may
    };
    (0..most).take_while(send).count()
}

#[tokio::test(start_paused = true)]
async fn a_lone_answer_never_waits() {
    let lanes = Lanes::new(1);
    let mut alone = LaneUse::new(lanes.lane(1));
    assert_eq!(send(&mut alone, 1000), 1000);
    end_poll();
    assert_eq!(send(&mut alone, 1000), 1000);
    end_poll();
    assert_eq!(lanes.inner.lock().core.waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn answers_take_turns_in_parts() {
    let lanes = Lanes::new(1);
    let [mut one, mut other] = [1, 2].map(|flow| LaneUse::new(lanes.lane(flow)));
    assert_eq!(send(&mut one, 3), 3);
    // A short answer is sent meanwhile.
    assert_eq!(send(&mut other, 9), 1);
    assert_eq!(lanes.waiting(), 1);
    // Its part has four pieces, of which two were sent.
    assert_eq!(send(&mut one, 9), 2);
    tokio::time::advance(Duration::from_millis(1)).await;
    end_poll();
    assert_eq!(send(&mut one, 9), 0);
    assert_eq!(send(&mut other, 9), 4);
    tokio::time::advance(Duration::from_millis(2)).await;
    end_poll();
    assert_eq!((send(&mut one, 9), send(&mut other, 9)), (4, 0));
    drop((one, other));
    end_poll();
    assert_eq!(lanes.waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_dropped_leaves_its_place() {
    let lanes = Lanes::new(1);
    let [mut one, mut other, mut third] = [1, 2, 3].map(|flow| LaneUse::new(lanes.lane(flow)));
    assert_eq!((send(&mut one, 2), send(&mut other, 2), send(&mut third, 2)), (2, 1, 1));
    drop(other);
    assert_eq!(lanes.waiting(), 1);
    end_poll();
    // It was granted to the third, which is gone too.
    drop(third);
    assert_eq!(send(&mut one, 100), 100);
    end_poll();
}

#[tokio::test(start_paused = true)]
async fn work_on_another_thread_holds_a_slot() {
    let lanes = Lanes::new(1);
    let slot = lanes.lane(1).slot().await;
    let lane = lanes.lane(2);
    let waits = tokio::spawn(async move { drop(lane.slot().await) });
    yield_now().await;
    assert_eq!((lanes.waiting(), waits.is_finished()), (1, false));
    drop(slot);
    waits.await.unwrap();
    // One that goes away while it waits leaves nothing behind.
    let slot = lanes.lane(1).slot().await;
    let gone = lanes.lane(3);
    let waits = tokio::spawn(async move { drop(gone.slot().await) });
    yield_now().await;
    waits.abort();
    assert!(waits.await.is_err());
    assert_eq!(lanes.waiting(), 0);
    drop(slot);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_had_nothing_to_send_begins_again() {
    let lanes = Lanes::new(1);
    let _slot = lanes.lane(1).slot().await;
    let mut watch = LaneUse::new(lanes.lane(2));
    assert_eq!(send(&mut watch, 9), 1);
    watch.rested();
    assert_eq!(send(&mut watch, 9), 1);
}

#[tokio::test]
async fn what_is_ready_runs_before_the_next_part() {
    let lanes = Lanes::new(1);
    let slot = lanes.lane(1).slot().await;
    let order = Arc::new(Mutex::new(Vec::new()));
    let (lane, seen) = (lanes.lane(2), Arc::clone(&order));
    let waits = tokio::spawn(async move {
        let slot = lane.slot().await;
        seen.lock().push("a part");
        drop(slot);
    });
    yield_now().await;
    assert_eq!(lanes.waiting(), 1);
    drop(slot);
    let seen = Arc::clone(&order);
    let small = tokio::spawn(async move { seen.lock().push("a small answer") });
    waits.await.unwrap();
    small.await.unwrap();
    assert_eq!(*order.lock(), ["a small answer", "a part"]);
}
