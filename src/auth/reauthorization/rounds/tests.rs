//! The rounds, driven by a loop over virtual time as the tasks of the watches drive them.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use proptest::prelude::*;

use super::*;

const INTERVAL: Duration = Duration::from_secs(60);
const RATE: u32 = 50;

/// An open watch as its task sees it.
struct Watch {
    user: u32,
    questions: Vec<Question>,
    last: u64,
    /// When the task wakes, and whether it checks then.
    step: Step,
    /// Whether the reviews of the check have begun.
    has_begun: bool,
}

/// The rounds, their watches, and the reviews that the checks cost.
struct Model {
    rounds: Rounds<u32>,
    watches: BTreeMap<usize, Watch>,
    /// When which watch wakes.
    wakes: BTreeSet<(Instant, usize)>,
    opened: usize,
    now: Instant,
    /// The number of reviews at each moment.
    reviews: BTreeMap<Instant, usize>,
    /// When which question of which user was reviewed.
    reviewed: HashMap<(u32, Question), Vec<Instant>>,
}

impl Step {
    fn time(self) -> Instant {
        match self {
            Self::Wait(at) | Self::Check { at, .. } => at,
        }
    }
}

impl Model {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            rounds: Rounds::new(INTERVAL, RATE, now),
            watches: BTreeMap::new(),
            wakes: BTreeSet::new(),
            opened: 0,
            now,
            reviews: BTreeMap::new(),
            reviewed: HashMap::new(),
        }
    }

    fn open(&mut self, user: u32, questions: &[Question]) {
        let delay = INTERVAL / 2 + INTERVAL * (user % 97) / 97;
        let costly: Vec<_> = questions.iter().map(|question| (*question, true)).collect();
        let last = self.rounds.enter(user, &costly, self.now, delay);
        let step = self.rounds.next(user, questions, last, self.now);
        self.opened += 1;
        self.wakes.insert((step.time(), self.opened));
        let questions = questions.to_vec();
        let watch = Watch { user, questions, last, step, has_begun: false };
        self.watches.insert(self.opened, watch);
    }

    /// Closes the `nth` of the open watches.
    fn close(&mut self, nth: usize) {
        let number = *self.watches.keys().nth(nth % self.watches.len()).unwrap();
        let watch = self.watches.remove(&number).unwrap();
        self.wakes.remove(&(watch.step.time(), number));
        self.rounds.leave(watch.user, &watch.questions);
    }

    /// Lets the tasks run until `end`. Concurrent checks of a question share one review.
    fn run_until(&mut self, end: Instant) {
        while let Some((time, number)) = self.wakes.first().copied().filter(|(at, _)| *at < end) {
            self.wakes.pop_first();
            self.now = time.max(self.now);
            let watch = self.watches.get_mut(&number).unwrap();
            if let Step::Check { round, .. } = watch.step {
                let begins = std::mem::replace(&mut watch.has_begun, true);
                if !begins
                    && let Some(at) =
                        self.rounds.begin(watch.user, &watch.questions, round, self.now)
                {
                    watch.step = Step::Check { at, round };
                    self.wakes.insert((at, number));
                    continue;
                }
                watch.has_begun = false;
                for question in &watch.questions {
                    let times = self.reviewed.entry((watch.user, *question)).or_default();
                    // A result is remembered for some seconds.
                    let remembered = Duration::from_secs(5);
                    if times.last().is_none_or(|last| self.now - *last > remembered) {
                        times.push(self.now);
                        *self.reviews.entry(self.now).or_default() += 1;
                    }
                }
                watch.last = round;
            }
            watch.step = self.rounds.next(watch.user, &watch.questions, watch.last, self.now);
            self.wakes.insert((watch.step.time(), number));
        }
        self.now = end;
    }

    /// Returns the most reviews within any second.
    fn rate_max(&self) -> usize {
        let second = Duration::from_secs(1);
        let within = |start: Instant| -> usize {
            self.reviews.range(start..start + second).map(|(_, count)| count).sum()
        };
        self.reviews.keys().map(|start| within(*start)).max().unwrap_or(0)
    }

    /// Returns the longest time between two reviews of a question.
    fn gap_max(&self) -> Duration {
        let gaps = self.reviewed.values().flat_map(|times| times.windows(2));
        gaps.map(|two| two[1] - two[0]).max().unwrap_or_default()
    }
}

fn questions(user: u32, permissions: u64) -> Vec<Vec<Question>> {
    (0..permissions)
        .map(|attributes| vec![Question::Token(user.into()), Question::Permission(attributes)])
        .collect()
}

#[test]
fn few_questions_are_asked_once_in_an_interval() {
    let mut model = Model::new();
    for user in 0..20 {
        for asked in questions(user, 5) {
            model.open(user, &asked);
            model.open(user, &asked);
        }
    }
    assert_eq!(model.rounds.interval(), INTERVAL);
    model.run_until(model.now + INTERVAL * 10);
    assert!(model.gap_max() <= INTERVAL + Duration::from_secs(5), "{:?}", model.gap_max());
    let (rounds, questions) = (9..=10, 20 * 6);
    let total: usize = model.reviews.values().sum();
    assert!((rounds.start() * questions..=rounds.end() * questions).contains(&total), "{total}");
}

#[test]
fn more_questions_than_the_budget_has_reviews_stretch_the_interval() {
    let mut model = Model::new();
    // A herd: all watches begin at the same moment.
    for user in 0..300 {
        for asked in questions(user, 39) {
            model.open(user, &asked);
        }
    }
    // 300 tokens, and 39 permissions each.
    let stretched = Duration::from_secs(300 * 40 / 50);
    assert_eq!(model.rounds.interval(), stretched);
    model.run_until(model.now + stretched * 5);
    assert!(model.rate_max() <= RATE as usize + 2, "{} in a second", model.rate_max());
    assert!(model.gap_max() <= stretched + INTERVAL / 4, "{:?}", model.gap_max());
    assert!(model.reviewed.values().all(|times| times.len() >= 3), "nobody is left out");
    assert_eq!(model.reviewed.len(), 300 * 40);
    // Most watches end.
    while model.watches.len() > 100 {
        model.close(50);
    }
    assert_eq!(model.rounds.interval(), INTERVAL);
}

#[test]
fn tasks_that_wake_late_ask_one_by_one() {
    let mut model = Model::new();
    for user in 0..40 {
        for asked in questions(user, 39) {
            model.open(user, &asked);
        }
    }
    model.run_until(model.now + INTERVAL);
    for stall in 1..6 {
        // No task runs, and then all whose time has come wake at once.
        model.now += Duration::from_secs(stall);
        model.run_until(model.now + INTERVAL);
    }
    assert!(model.rate_max() <= RATE as usize + 1, "{} in a second", model.rate_max());
    assert!(model.gap_max() <= INTERVAL + Duration::from_secs(15), "{:?}", model.gap_max());
}

#[test]
fn a_watch_that_asks_long_after_the_others_takes_a_place_of_its_own() {
    let (now, question) = (Instant::now(), Question::Permission(1));
    let mut rounds = Rounds::new(INTERVAL, 1, now);
    rounds.enter(1, &[(question, true)], now, INTERVAL);
    let late = now + INTERVAL;
    assert_eq!(rounds.next(1, &[question], 0, late), Step::Check { at: late, round: 1 });
    let begin = |rounds: &mut Rounds<u32>, round, millis| {
        let at = late + Duration::from_millis(millis);
        rounds.begin(1, &[question], round, at).map(|later| later - at)
    };
    assert_eq!(begin(&mut rounds, 1, 0), None);
    assert_eq!(begin(&mut rounds, 1, 500), None, "shares the review");
    // The answer has expired: another review.
    assert_eq!(begin(&mut rounds, 1, 5_000), None);
    assert_eq!(rounds.next_begin, late + Duration::from_secs(5));
    // The next round has reserved its time, and a watch is late for this one.
    let next = late + INTERVAL;
    assert_eq!(rounds.next(1, &[question], 1, next), Step::Check { at: next, round: 2 });
    assert_eq!(begin(&mut rounds, 1, 60_000), None);
    assert_eq!(begin(&mut rounds, 2, 60_000), None);
    assert_eq!(rounds.next_begin, next + Duration::from_secs(1), "two places");
}

#[test]
fn what_roles_decide_costs_nothing() {
    let mut rounds = Rounds::new(INTERVAL, 1, Instant::now());
    let now = Instant::now();
    for user in 0..1000 {
        rounds.enter(user, &[(Question::Permission(0), false)], now, INTERVAL);
    }
    assert_eq!(rounds.interval(), INTERVAL);
    let later = now + INTERVAL;
    for user in 0..1000 {
        let step = rounds.next(user, &[Question::Permission(0)], 0, later);
        assert_eq!(step, Step::Check { at: later, round: 1 });
    }
    rounds.set_costly(7, Question::Permission(0), true);
    rounds.set_costly(7, Question::Permission(0), true);
    assert_eq!(rounds.costly, 1);
    // The last look at the roles counts, whichever watch took it.
    rounds.enter(7, &[(Question::Permission(0), false)], now, INTERVAL);
    assert_eq!(rounds.costly, 0);
    rounds.enter(7, &[(Question::Permission(0), true)], now, INTERVAL);
    assert_eq!(rounds.costly, 1);
    for _ in 0..3 {
        rounds.leave(7, &[Question::Permission(0)]);
    }
    assert_eq!((rounds.costly, rounds.users.len()), (0, 999));
}

proptest! {
    /// Watches open and close at random. The budget holds, every question is asked in time, and a
    /// watch that has closed leaves nothing behind.
    #[test]
    fn the_budget_holds_and_nobody_waits_for_ever(
        steps in prop::collection::vec((0_u32..40, 0_u64..60, 0_u64..2000, any::<bool>()), 1..120)
    ) {
        let mut model = Model::new();
        let mut asked = HashSet::new();
        for (user, permission, millis, opens) in steps {
            if opens || model.watches.is_empty() {
                let questions = [Question::Token(user.into()), Question::Permission(permission)];
                asked.extend(questions.map(|question| (user, question)));
                model.open(user, &questions);
            } else {
                model.close(permission as usize);
            }
            model.run_until(model.now + Duration::from_millis(millis * 50));
            let live: HashSet<_> = model
                .watches
                .values()
                .flat_map(|watch| watch.questions.iter().map(|question| (watch.user, *question)))
                .collect();
            prop_assert_eq!(model.rounds.costly as usize, live.len());
        }
        let stretched = INTERVAL.max(Duration::from_secs(1) * asked.len() as u32 / RATE);
        let from = model.now;
        model.run_until(from + stretched * 3);
        prop_assert!(model.rate_max() <= RATE as usize + 2);
        for watch in model.watches.values() {
            for question in &watch.questions {
                let times = &model.reviewed[&(watch.user, *question)];
                prop_assert!(times.iter().any(|at| *at > from + stretched));
            }
        }
        while !model.watches.is_empty() {
            model.close(0);
        }
        prop_assert!(model.rounds.users.is_empty());
    }
}
