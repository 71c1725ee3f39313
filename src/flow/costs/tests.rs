//! Windows and batches.

use super::*;
use crate::hitters::KEYS_MAX;

const SECOND: Duration = Duration::from_secs(1);

fn origin(user: &str, agent: &str) -> Origin {
    let hasher = BuildKeyedHash::default();
    let text = |text: &str| Text { hash: hash(text), ..Text::new(&hasher, text) };
    Origin {
        user: text(user),
        agent: text(agent),
        schema: Some("global-default".into()),
        flow: text(user),
        resource: text("pods"),
        verb: "list",
        habit: Habit::default(),
    }
}

/// The same for all origins of a test.
fn hash(text: &str) -> u64 {
    text.bytes().fold(7, |hash: u64, byte| hash.wrapping_mul(131).wrapping_add(u64::from(byte)))
}

fn cost(seconds: f64) -> Cost {
    Cost { requests: 1.0, seat_seconds: seconds, ..Cost::default() }
}

fn add(costs: &mut Costs, now: Duration, who: &[(&str, f64)]) {
    let mut batch = Batch::default();
    for (user, seconds) in who {
        let is_full = batch.add(hash(user), &cost(*seconds), || origin(user, "agent"));
        if is_full {
            costs.add(now, &mut batch);
        }
    }
    costs.add(now, &mut batch);
}

fn users(window: &Window) -> Vec<(Box<str>, f64)> {
    let summary = window.summary(Dimension::User);
    let counters = summary.heaviest().into_iter();
    counters.map(|counter| (counter.key[0].1.clone(), counter.cost.seat_seconds)).collect()
}

#[test]
fn a_batch_adds_up_each_origin() {
    let mut batch = Batch::default();
    let mut made = 0;
    for number in 0..1_000_u64 {
        let is_full = batch.add(number % 55 * 256, &cost(1.0), || {
            made += 1;
            origin("jane", "")
        });
        assert!(!is_full, "{number}");
    }
    assert_eq!(made, 55);
    assert!(batch.add(9, &cost(1.0), || origin("joe", "")), "the 56th origin fills it");
    let mut costs = Costs::new(Duration::ZERO, true);
    costs.add(Duration::ZERO, &mut batch);
    assert!((costs.windows()[0].total().requests - 1_001.0).abs() < 1e-6);
    assert!(!batch.add(9, &cost(1.0), || origin("joe", "")), "it is empty again");
}

#[test]
fn a_window_forgets_what_is_long_ago() {
    let mut costs = Costs::new(Duration::ZERO, true);
    add(&mut costs, Duration::ZERO, &[("jane", 100.0), ("joe", 1.0)]);
    for minute in 1..=10 {
        add(&mut costs, minute * 60 * SECOND, &[("joe", 10.0)]);
    }
    let [short, long] = costs.windows();
    assert_eq!(&*users(short)[0].0, "joe");
    assert_eq!(&*users(long)[0].0, "joe");
    assert!(users(short)[1].1 < 0.01, "jane's is forgotten");
    assert!(users(long)[1].1 > 80.0, "an hour remembers it");
}

#[test]
fn a_constant_rate_is_shown_as_it_is() {
    let mut costs = Costs::new(Duration::ZERO, true);
    for second in 0..1_000 {
        add(&mut costs, second * SECOND, &[("jane", 2.0)]);
        for window in costs.windows().iter().filter(|_| second > 120) {
            let rate = window.total().seat_seconds / window.seconds(second * SECOND);
            assert!((rate - 2.0).abs() < 0.1, "{rate} after {second} s");
        }
    }
}

#[test]
fn a_sidecar_has_actions_by_agent_and_no_users() {
    let mut costs = Costs::new(Duration::ZERO, false);
    let mut batch = Batch::default();
    let nobody = || Origin { schema: None, ..origin("", "kubectl/v1.36") };
    batch.add(1, &cost(1.0), nobody);
    costs.add(Duration::ZERO, &mut batch);
    let window = &costs.windows()[0];
    let keys = |dimension| {
        let heaviest = window.summary(dimension).heaviest();
        heaviest.iter().map(|counter| counter.key.clone()).collect::<Vec<_>>()
    };
    assert!(keys(Dimension::User).is_empty() && keys(Dimension::Flow).is_empty());
    assert_eq!(keys(Dimension::Agent), [Key::from([("userAgent", "kubectl/v1.36".into())])]);
    let action = [
        ("userAgent", "kubectl/v1.36".into()),
        ("resource", "pods".into()),
        ("verb", "list".into()),
    ];
    assert_eq!(keys(Dimension::Action), [Key::from(action)]);
}

#[test]
fn long_texts_are_cut_and_stay_distinct() {
    let long = "é".repeat(500);
    let mut costs = Costs::new(Duration::ZERO, true);
    let (one, other) = (format!("{long}a"), format!("{long}b"));
    add(&mut costs, Duration::ZERO, &[(&one, 1.0), (&other, 1.0)]);
    let users = users(&costs.windows()[0]);
    assert_eq!(users.len(), 2);
    assert!(users.iter().all(|(name, _)| name.len() <= TEXT_BYTES_MAX && name.ends_with(CUT)));
}

/// The bytes of all keys, and of what stands beside them, when clients choose the longest texts.
#[test]
fn memory_is_below_one_and_a_half_mebibytes() {
    let mut costs = Costs::new(Duration::ZERO, true);
    for number in 0..2_000 {
        let (user, agent) = (format!("{number:0>200}"), format!("{number:0>300}"));
        let mut batch = Batch::default();
        batch.add(number, &cost(1.0), || Origin {
            resource: origin(&agent, "").user,
            ..origin(&user, &agent)
        });
        costs.add(Duration::ZERO, &mut batch);
    }
    let mut bytes = 0;
    for window in costs.windows() {
        for dimension in Dimension::ALL {
            let counters = window.summary(dimension).heaviest();
            assert_eq!(counters.len(), KEYS_MAX);
            for counter in counters {
                let texts = counter.key.iter().map(|(_, text)| text.len());
                let texts: usize = texts.sum();
                assert!(texts <= KEY_BYTES_MAX);
                let place = 2 * size_of::<(u64, usize)>();
                bytes += texts + size_of_val(&*counter.key) + size_of_val(counter) + place;
            }
        }
    }
    let habits = costs.habits().heaviest();
    assert_eq!(habits.len(), HABITS_MAX);
    for counter in habits {
        let HabitKey { user, agent, resource, .. } = &counter.key.key;
        let place = 2 * size_of::<(u64, usize)>();
        bytes += user.len() + agent.len() + resource.len() + size_of_val(counter) + place;
    }
    assert!(bytes < 3 << 19, "{bytes}");
    assert!(costs.replaced() > 0);
}

/// Ten thousand users whose requests follow Zipf's law: the five that cost most are shown among the
/// first seven, and their costs are right within 5 %.
#[test]
fn the_heaviest_of_ten_thousand_users_are_found() {
    let users: Vec<String> = (0..10_000).map(|number| format!("user-{number}")).collect();
    let mut sums = Vec::new();
    let mut sum = 0.0;
    for rank in 1..=users.len() {
        sum += 1.0 / rank as f64;
        sums.push(sum);
    }
    let mut random = fastrand::Rng::with_seed(7);
    let mut costs = Costs::new(Duration::ZERO, true);
    let (mut batch, mut exact) = (Batch::default(), vec![Cost::default(); users.len()]);
    for _ in 0..300_000 {
        let point = random.f64() * sum;
        let number = sums.partition_point(|sum| *sum < point).min(users.len() - 1);
        let cost = Cost {
            bytes: 1_000.0 * random.f64(),
            cpu_seconds: 1e-5 * random.f64(),
            ..cost(0.01 * random.f64())
        };
        exact[number].add(&cost);
        let user = &users[number];
        if batch.add(hash(user), &cost, || origin(user, "agent")) {
            costs.add(Duration::ZERO, &mut batch);
        }
    }
    costs.add(Duration::ZERO, &mut batch);
    let mut order: Vec<_> = (0..users.len()).collect();
    order.sort_by(|one, other| exact[*other].weight().total_cmp(&exact[*one].weight()));
    for window in costs.windows() {
        let heaviest = window.summary(Dimension::User).heaviest();
        for &number in &order[..5] {
            let estimate = heaviest[..7].iter().find(|counter| *counter.key[0].1 == *users[number]);
            let (estimate, exact) = (estimate.unwrap().cost, exact[number]);
            for (estimate, exact) in [
                (estimate.requests, exact.requests),
                (estimate.bytes, exact.bytes),
                (estimate.seat_seconds, exact.seat_seconds),
                (estimate.cpu_seconds, exact.cpu_seconds),
            ] {
                assert!((estimate / exact - 1.0).abs() < 0.05, "{estimate} of {exact}");
            }
        }
    }
}
