//! What questions may cost, in memory and in the patience of others.

use super::*;

#[tokio::test]
async fn long_questions_are_not_remembered() {
    let script = Script::start(&config(0), Reply::Allow).await;
    let uri = format!("{PODS}/{}", "x".repeat(10_000));
    for asked in 1..3 {
        assert_eq!(ask(&script, "alice", &uri).await, Ok((true, Source::Review)));
        assert_eq!(script.asked(), asked);
    }
}

#[tokio::test]
async fn so_many_are_under_way_and_no_more() {
    let script = Arc::new(Script::start(&config(0), Reply::Hold).await);
    let asking: Vec<_> = (0..70)
        .map(|name| {
            let script = Arc::clone(&script);
            tokio::spawn(async move { ask(&script, "alice", &format!("{PODS}/p{name}")).await })
        })
        .collect();
    until(|| script.asked() == 64).await;
    seconds(3).await;
    until(|| asking.iter().filter(|one| one.is_finished()).count() == 6).await;
    script.reply(Reply::Allow);
    let mut unavailable = 0;
    for one in asking {
        unavailable += usize::from(one.await.unwrap() == Err(Unavailable));
    }
    assert_eq!((unavailable, script.asked()), (6, 64));
}

/// As many labels that must be there.
fn labels(count: usize) -> String {
    let labels: Vec<_> = (0..count).map(|n| format!("{n}")).collect();
    format!("{PODS}?labelSelector={}", labels.join(","))
}

#[tokio::test]
async fn a_question_of_many_small_parts_is_as_long_as_what_it_takes() {
    let script = Script::start(&config(0), Reply::Allow).await;
    for expected in [Source::Review, Source::Cached] {
        assert_eq!(ask(&script, "alice", &labels(30)).await, Ok((true, expected)));
    }
    for _ in 0..2 {
        assert_eq!(ask(&script, "alice", &labels(150)).await, Ok((true, Source::Review)));
    }
    assert_eq!(script.asked(), 3);
    // What nobody has a use for is not even asked.
    let values = format!("{PODS}?labelSelector=a+in+({})", vec!["x"; 1000].join(","));
    assert_eq!(ask(&script, "alice", &values).await, Ok((true, Source::Review)), "all the same");
    let values: Vec<_> = (0..1000).map(|n| format!("{n}")).collect();
    let values = format!("{PODS}?labelSelector=a+in+({})", values.join(","));
    let fields = format!("{PODS}?fieldSelector={}", vec!["a="; 1000].join(","));
    let path = format!("{PODS}/{}", "x".repeat(30_000));
    for uri in [labels(1000), values, fields, path] {
        assert_eq!(ask(&script, "alice", &uri).await, Err(Unavailable));
    }
    assert_eq!(script.asked(), 4);
}

#[tokio::test]
async fn one_user_leaves_room_for_others() {
    const MORE: usize = 44;
    let script = Arc::new(Script::start(&config(0), Reply::Hold).await);
    let asking = |name: &'static str, pod: usize| {
        let script = Arc::clone(&script);
        tokio::spawn(async move { ask(&script, name, &format!("{PODS}/p{pod}")).await })
    };
    let flood: Vec<_> = (0..256 + MORE).map(|pod| asking("alice", pod)).collect();
    let finished = || flood.iter().filter(|one| one.is_finished()).count();
    until(|| finished() >= MORE).await;
    assert_eq!(finished(), MORE);
    let other = asking("bob", 0);
    tokio::task::yield_now().await;
    script.reply(Reply::Allow);
    assert_eq!(other.await.unwrap(), Ok((true, Source::Review)));
    futures::future::join_all(flood).await;
    assert_eq!(ask(&script, "alice", PODS).await, Ok((true, Source::Review)));
}

#[tokio::test]
async fn an_upstream_that_throttles_is_not_asked_for_a_while() {
    let script = Script::start(&config(0), Reply::Allow).await;
    assert_eq!(ask(&script, "carol", PODS).await, Ok((true, Source::Review)));
    script.reply(Reply::Code(429));
    assert_eq!(ask(&script, "alice", PODS).await, Err(Unavailable));
    script.reply(Reply::Allow);
    assert_eq!(ask(&script, "bob", PODS).await, Err(Unavailable));
    assert_eq!(ask(&script, "carol", PODS).await, Ok((true, Source::Cached)));
    assert_eq!(script.asked(), 2);
    seconds(1).await;
    for name in ["alice", "bob"] {
        assert_eq!(ask(&script, name, PODS).await, Ok((true, Source::Review)));
    }
}
