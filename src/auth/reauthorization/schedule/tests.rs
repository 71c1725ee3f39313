//! The schedule, driven in virtual time by tasks that ask as watches do.

use std::collections::{BTreeMap, HashMap};

use futures::FutureExt as _;
use futures::future::{join, join_all};
use prometheus::Registry;
use proptest::prelude::*;
use tokio::task::JoinHandle;
use tokio::time::{advance, sleep};

use super::*;
use crate::auth::access_review::testing::user;

const INTERVAL: Duration = Duration::from_secs(60);
const RATE: u32 = 50;

/// When which question was reviewed.
type Log = Arc<Mutex<HashMap<Question, Vec<Instant>>>>;

struct Model {
    schedule: Arc<RecheckSchedule>,
    log: Log,
    watches: Vec<JoinHandle<()>>,
}

impl Model {
    /// Opens `each` watches of each permission of each user, all at the same moment.
    fn new(users: u64, permissions: u64, each: usize) -> Self {
        let metrics = RecheckMetrics::register(&Registry::new()).unwrap();
        let schedule = RecheckSchedule::new(INTERVAL, RATE, metrics);
        let mut model = Self { schedule, log: Log::default(), watches: Vec::new() };
        for number in 0..users {
            let key = user(&format!("user{number}"), &[]).key();
            for permission in 0..permissions {
                let asked = [question(key, "token"), question(key, &permission)];
                for _ in 0..each {
                    let watch = watch(Arc::clone(&model.schedule), asked, Arc::clone(&model.log));
                    model.watches.push(tokio::spawn(watch));
                }
            }
        }
        model
    }

    /// Returns the most reviews within any second.
    fn rate_max(&self) -> usize {
        let mut reviews = BTreeMap::<Instant, usize>::new();
        for at in self.log.lock().values().flatten() {
            *reviews.entry(*at).or_default() += 1;
        }
        let second = Duration::from_secs(1);
        let within = |start: Instant| -> usize {
            reviews.range(start..start + second).map(|(_, n)| n).sum()
        };
        reviews.keys().map(|start| within(*start)).max().unwrap_or(0)
    }

    /// Returns the longest time between two reviews of a question.
    fn gap_max(&self) -> Duration {
        let log = self.log.lock();
        let gaps = log.values().flat_map(|times| times.windows(2));
        gaps.map(|two| two[1] - two[0]).max().unwrap_or_default()
    }

    fn shown(&self) -> Duration {
        Duration::from_secs_f64(self.schedule.shown_interval())
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        self.watches.iter().for_each(JoinHandle::abort);
    }
}

async fn watch(schedule: Arc<RecheckSchedule>, asked: [Question; 2], log: Log) {
    let mut after = Instant::now() + INTERVAL / 2;
    loop {
        sleep_until(schedule.due_after(asked[0].0, after)).await;
        let [token, permission] = asked.map(|question| schedule.place(Some(question)));
        join(token, permission).await;
        after = Instant::now();
        for question in asked {
            let mut log = log.lock();
            let times = log.entry(question).or_default();
            // A result is remembered for some seconds.
            if times.last().is_none_or(|last| after - *last > Duration::from_secs(5)) {
                times.push(after);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn few_questions_are_asked_once_in_an_interval() {
    let model = Model::new(20, 5, 2);
    sleep(INTERVAL * 10).await;
    assert!(model.gap_max() <= INTERVAL + Duration::from_secs(5), "{:?}", model.gap_max());
    assert!(model.shown() <= INTERVAL + Duration::from_secs(3), "{:?}", model.shown());
    assert_eq!(model.log.lock().len(), 20 * 6);
    assert!(model.log.lock().values().all(|times| (9..=10).contains(&times.len())));
}

#[tokio::test(start_paused = true)]
async fn more_questions_than_the_budget_has_reviews_stretch_the_interval() {
    let mut model = Model::new(300, 39, 1);
    // 300 tokens, and 39 permissions each.
    let stretched = Duration::from_secs(300 * 40 / 50);
    sleep(stretched * 5).await;
    assert!(model.rate_max() <= RATE as usize + 2, "{} in a second", model.rate_max());
    let longest = stretched + INTERVAL;
    assert!(model.gap_max() <= longest, "{:?}", model.gap_max());
    assert!((stretched..=longest).contains(&model.shown()), "{:?}", model.shown());
    assert_eq!(model.log.lock().len(), 300 * 40);
    assert!(model.log.lock().values().all(|times| times.len() >= 3), "nobody is left out");
    // Most watches end, and what they asked is forgotten.
    model.watches.drain(100..).for_each(|watch| watch.abort());
    sleep(Duration::from_millis(1)).await;
    assert!(model.shown() <= INTERVAL + Duration::from_secs(3), "{:?}", model.shown());
}

#[tokio::test(start_paused = true)]
async fn tasks_that_wake_late_ask_one_by_one() {
    let model = Model::new(40, 39, 1);
    sleep(INTERVAL).await;
    for stall in 1..6 {
        // No task runs, and then all whose time has come wake at once.
        advance(Duration::from_secs(stall)).await;
        sleep(INTERVAL).await;
    }
    assert!(model.rate_max() <= RATE as usize + 2, "{} in a second", model.rate_max());
    assert!(model.gap_max() <= INTERVAL + Duration::from_secs(30), "{:?}", model.gap_max());
}

#[tokio::test(start_paused = true)]
async fn those_who_ask_the_same_share_a_place() {
    let metrics = RecheckMetrics::register(&Registry::new()).unwrap();
    let schedule = RecheckSchedule::new(INTERVAL, 1, metrics);
    let key = user("alice", &[]).key();
    let place = |number: u64| schedule.place(Some(question(key, &number)));
    join_all((0..2).map(place)).await;
    let started = Instant::now();
    let mut left = Box::pin(place(0));
    assert!((&mut left).now_or_never().is_none());
    let all = join_all([1, 2, 2, 2, 1].map(place));
    // A question that nobody asks any more costs no place.
    drop(left);
    all.await;
    let took = started.elapsed().as_secs();
    assert!((1..=2).contains(&took), "{took}");
    assert_eq!(schedule.waiting(), 0);
    place(3).now_or_never();
}

proptest! {
    /// All watches of a user are due together, within one interval.
    #[test]
    fn the_watches_of_a_user_are_due_together(user_number: u8, millis in prop::collection::vec(0_u64..1_000_000, 2)) {
        let key = user(&format!("user{user_number}"), &[]).key();
        let metrics = RecheckMetrics::register(&Registry::new()).unwrap();
        let schedule = RecheckSchedule::new(INTERVAL, RATE, metrics);
        let due = millis.iter().map(|millis| {
            let after = schedule.started + Duration::from_millis(*millis);
            let due = schedule.due_after(key, after);
            assert!(due > after && due <= after + INTERVAL);
            (due - schedule.started).as_nanos() % INTERVAL.as_nanos()
        });
        let due: Vec<_> = due.collect();
        prop_assert_eq!(due[0], due[1]);
    }
}
