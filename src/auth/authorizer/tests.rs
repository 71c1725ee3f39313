//! Decisions against an upstream that answers as it is told.

mod bounds;
mod revoked;

use std::time::Duration;

use super::*;
use crate::auth::access_review::testing::{Reply, Script, attributes, config, pass, until, user};

const PODS: &str = "/api/v1/namespaces/a/pods";

async fn ask(script: &Script, name: &str, uri: &str) -> Result<(bool, Source), Unavailable> {
    let decision = script.authorizer.authorize(&user(name, &["g"]), &attributes(uri)).await?;
    Ok((decision.allowed, decision.source))
}

async fn seconds(seconds: u64) {
    pass(Duration::from_secs(seconds)).await;
}

#[tokio::test]
async fn a_decision_is_believed_for_its_time() {
    for (reply, allowed, ttl) in [(Reply::Allow, true, 10), (Reply::Deny, false, 5)] {
        let script = Script::start(&config(0), reply).await;
        assert_eq!(ask(&script, "alice", PODS).await, Ok((allowed, Source::Review)));
        seconds(ttl - 1).await;
        assert_eq!(ask(&script, "alice", PODS).await, Ok((allowed, Source::Cached)));
        assert_eq!(script.asked(), 1);
        seconds(1).await;
        assert_eq!(ask(&script, "alice", PODS).await, Ok((allowed, Source::Review)));
        assert_eq!(script.asked(), 2);
    }
}

#[tokio::test]
async fn a_decision_is_as_old_as_its_question() {
    let script = Arc::new(Script::start(&config(0), Reply::Hold).await);
    let asking = tokio::spawn({
        let script = Arc::clone(&script);
        async move { ask(&script, "alice", PODS).await }
    });
    until(|| script.asked() == 1).await;
    seconds(6).await;
    script.reply(Reply::Allow);
    assert_eq!(asking.await.unwrap(), Ok((true, Source::Review)));
    assert_eq!(ask(&script, "alice", PODS).await, Ok((true, Source::Cached)));
    seconds(4).await;
    assert_eq!(ask(&script, "alice", PODS).await, Ok((true, Source::Review)));
}

#[tokio::test]
async fn the_reason_is_the_upstreams() {
    let script = Script::start(&config(0), Reply::Deny).await;
    for _ in 0..2 {
        let pods = attributes(PODS);
        let decision = script.authorizer.authorize(&user("alice", &[]), &pods).await.unwrap();
        assert_eq!(&*decision.reason, "no role");
    }
}

#[tokio::test]
async fn nobody_has_another_users_decision() {
    let script = Script::start(&config(0), Reply::AllowOnly("alice")).await;
    let pods = attributes(PODS);
    let mut users = vec![user("alice", &["g"]), user("bob", &["g"]), user("alic", &["eg"])];
    // The same name, but not the same user: each is a question of its own.
    users.extend([user("alice", &["h"]), user("alice", &["g", "h"]), user("alice", &[])]);
    let uid = User::new("alice".into(), "1".into(), vec!["g".into()], Default::default());
    users.push(Arc::new(uid));
    for round in 0..2 {
        for user in &users {
            let decision = script.authorizer.authorize(user, &pods).await.unwrap();
            assert_eq!(decision.allowed, user.name == "alice");
            let source = if round == 0 { Source::Review } else { Source::Cached };
            assert_eq!(decision.source, source);
        }
    }
    assert_eq!(script.asked(), users.len());
}

#[tokio::test]
async fn other_questions_are_other_decisions() {
    let script = Script::start(&config(0), Reply::Allow).await;
    let uris = [
        "/api/v1/namespaces/a/configmaps/x",
        "/api/v1/namespaces/a/secrets/x",
        "/api/v1/namespaces/b/configmaps/x",
        "/api/v1/namespaces/a/configmaps",
        "/api/v1/namespaces/a/configmaps?watch=1",
        "/api/v1/namespaces/a/configmaps?fieldSelector=metadata.name%3Dx",
        "/api/v1/namespaces/a/configmaps?labelSelector=a%3Db",
        "/api/v1/namespaces/a/configmaps/x/status",
        "/version",
        "/version/",
    ];
    for uri in uris {
        assert_eq!(ask(&script, "alice", uri).await, Ok((true, Source::Review)), "{uri}");
    }
    script.reply(Reply::Deny);
    for uri in uris {
        assert_eq!(ask(&script, "alice", uri).await, Ok((true, Source::Cached)), "{uri}");
    }
    let mut bodies = script.bodies();
    bodies.sort();
    bodies.dedup();
    assert_eq!(bodies.len(), uris.len());
}

#[tokio::test]
async fn one_question_is_asked_once_whoever_gives_up() {
    let script = Arc::new(Script::start(&config(0), Reply::Hold).await);
    let ask = || {
        let script = Arc::clone(&script);
        tokio::spawn(async move { ask(&script, "alice", PODS).await })
    };
    let leader = ask();
    until(|| script.asked() == 1).await;
    let others: Vec<_> = (0..20).map(|_| ask()).collect();
    tokio::task::yield_now().await;
    leader.abort();
    assert!(leader.await.unwrap_err().is_cancelled());
    script.reply(Reply::Allow);
    for other in others {
        assert!(other.await.unwrap().unwrap().0);
    }
    assert_eq!(script.asked(), 1);
}

#[tokio::test]
async fn what_is_not_answered_is_remembered_shortly() {
    for code in [401, 403, 422, 429, 500, 503] {
        let script = Script::start(&config(0), Reply::Code(code)).await;
        for _ in 0..3 {
            assert_eq!(ask(&script, "alice", PODS).await, Err(Unavailable), "{code}");
        }
        assert_eq!(script.asked(), 1, "{code}");
        // Another question is not hit by it, unless the upstream throttles.
        assert_eq!(ask(&script, "bob", PODS).await, Err(Unavailable));
        assert_eq!(script.asked(), if code == 429 { 1 } else { 2 });
        script.reply(Reply::Allow);
        seconds(1).await;
        assert_eq!(ask(&script, "alice", PODS).await, Ok((true, Source::Review)));
    }
}

#[tokio::test]
async fn errors_of_the_upstreams_authorizers_are_its_own_to_word() {
    let script =
        Script::start(&config(0), Reply::Status(r#"{"allowed":false,"evaluationError":"x"}"#))
            .await;
    assert_eq!(ask(&script, "alice", PODS).await, Err(Unavailable));
    script.reply(Reply::Status(r#"{"allowed":true,"evaluationError":"x"}"#));
    assert_eq!(ask(&script, "bob", PODS).await, Ok((true, Source::Review)));
}

#[tokio::test]
async fn a_silent_upstream_is_given_up() {
    let script = Arc::new(Script::start(&config(0), Reply::Hold).await);
    let asking = tokio::spawn({
        let script = Arc::clone(&script);
        async move { ask(&script, "alice", PODS).await }
    });
    until(|| script.asked() == 1).await;
    seconds(11).await;
    assert_eq!(asking.await.unwrap(), Err(Unavailable));
}

#[tokio::test]
async fn an_expired_decision_is_used_only_within_the_grace_and_with_the_upstream_away() {
    for (reply, allowed) in [(Reply::Allow, true), (Reply::Deny, false)] {
        let script = Script::start(&config(60), reply).await;
        assert_eq!(ask(&script, "alice", PODS).await, Ok((allowed, Source::Review)));
        script.reply(Reply::Code(503));
        seconds(11).await;
        for _ in 0..2 {
            assert_eq!(ask(&script, "alice", PODS).await, Ok((allowed, Source::Stale)));
        }
        assert_eq!(ask(&script, "bob", PODS).await, Err(Unavailable));
        // One that answers may have changed its mind.
        for code in [401, 403, 429] {
            script.reply(Reply::Code(code));
            seconds(2).await;
            assert_eq!(ask(&script, "alice", PODS).await, Err(Unavailable));
        }
        script.reply(Reply::Code(503));
        seconds(60).await;
        assert_eq!(ask(&script, "alice", PODS).await, Err(Unavailable));
    }
}

#[tokio::test]
async fn nothing_stale_is_used_unless_configured() {
    let script = Script::start(&config(0), Reply::Allow).await;
    assert_eq!(ask(&script, "alice", PODS).await, Ok((true, Source::Review)));
    script.reply(Reply::Code(503));
    seconds(10).await;
    assert_eq!(ask(&script, "alice", PODS).await, Err(Unavailable));
}

#[tokio::test]
async fn an_upstream_that_is_back_is_believed_again() {
    let script = Script::start(&config(600), Reply::Allow).await;
    assert_eq!(ask(&script, "alice", PODS).await, Ok((true, Source::Review)));
    script.reply(Reply::Code(500));
    seconds(11).await;
    assert_eq!(ask(&script, "alice", PODS).await, Ok((true, Source::Stale)));
    script.reply(Reply::Deny);
    // That it was away is no news.
    seconds(2).await;
    assert_eq!(ask(&script, "alice", PODS).await, Ok((false, Source::Review)));
}

#[tokio::test]
async fn a_question_that_the_upstream_chokes_on_makes_no_others_stale() {
    let script = Script::start(&config(600), Reply::Allow).await;
    for name in ["alice", "bob", "carol"] {
        assert_eq!(ask(&script, name, PODS).await, Ok((true, Source::Review)));
    }
    seconds(11).await;
    script.reply(Reply::Code(500));
    assert_eq!(ask(&script, "alice", PODS).await, Ok((true, Source::Stale)));
    script.reply(Reply::Deny);
    assert_eq!(ask(&script, "bob", PODS).await, Ok((false, Source::Review)));
    assert_eq!(ask(&script, "carol", PODS).await, Ok((false, Source::Review)));
}

#[tokio::test]
async fn nobody_waits_for_an_upstream_that_was_away_for_others() {
    let script = Script::start(&config(600), Reply::Allow).await;
    for name in ["alice", "bob", "carol"] {
        assert_eq!(ask(&script, name, PODS).await, Ok((true, Source::Review)));
    }
    seconds(11).await;
    script.reply(Reply::Code(500));
    assert_eq!(ask(&script, "alice", PODS).await, Ok((true, Source::Stale)));
    assert_eq!(ask(&script, "bob", PODS).await, Ok((true, Source::Stale)));
    script.reply(Reply::Hold);
    assert_eq!(ask(&script, "carol", PODS).await, Ok((true, Source::Stale)));
    until(|| script.asked() == 6).await;
}
