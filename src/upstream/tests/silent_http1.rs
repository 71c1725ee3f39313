//! Tests of HTTP/1.1 connections that stay open and pass nothing, in paused time. No pings show
//! that they are dead.

use tokio::time::sleep;

use super::silent::{MS, SECOND, Sent, World, timed};
use super::*;

/// A request with a connection of its own, which is idle afterwards.
async fn read(world: &World) {
    text(world.read("/x").await.unwrap().unwrap()).await;
}

fn slow_write(world: &World) -> tokio::task::JoinHandle<Sent> {
    let request = Request::post("/slow").body(empty_body()).unwrap();
    world.send(TrafficClass::Request, request, false)
}

#[tokio::test(start_paused = true)]
async fn a_read_without_an_answer_is_tried_on_a_new_connection() {
    let world = World::speaking(false).await;
    read(&world).await;
    world.balancer.freeze();
    let (sent, took) = timed(world.read("/x")).await;
    assert!(text(sent.unwrap()).await.starts_with("HTTP/1.1"));
    assert!(took < 6 * SECOND, "{took:?}");
    let (sent, took) = timed(world.read("/x")).await;
    sent.unwrap();
    assert!(took < 100 * MS, "{took:?}");
    assert_eq!(world.balancer.opened(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_write_without_an_answer_ends_after_the_time_of_the_api_server() {
    let world = World::speaking(false).await;
    read(&world).await;
    world.balancer.freeze();
    let (sent, took) = timed(world.write()).await;
    let error = sent.unwrap_err();
    assert!(matches!(error, UpstreamError::Timeout(_)) && !error.is_not_sent(), "{error}");
    assert!((65 * SECOND..66 * SECOND).contains(&took), "{took:?}");
    let (sent, took) = timed(world.write()).await;
    assert!(text(sent.unwrap()).await.ends_with(" once"));
    assert!(took < 100 * MS, "{took:?}");
    assert_eq!(world.received("POST /write"), 1, "the first one was not sent again");
}

/// A fault that froze the connection of a late request has frozen the idle ones, too.
#[tokio::test(start_paused = true)]
async fn while_a_request_is_late_others_use_connections_that_answered_since() {
    let world = World::speaking(false).await;
    let both = [world.read("/x"), world.read("/x")];
    for sent in both {
        text(sent.await.unwrap().unwrap()).await;
    }
    assert_eq!(world.balancer.opened(), 2);
    world.balancer.freeze();
    let late = world.write();
    sleep(600 * MS).await;
    for opened in [3, 3, 3] {
        let (sent, took) = timed(world.write()).await;
        assert!(text(sent.unwrap()).await.ends_with(" once"));
        assert!(took < 100 * MS, "{took:?}");
        assert_eq!(world.balancer.opened(), opened);
    }
    late.abort();
}

#[tokio::test(start_paused = true)]
async fn a_slow_answer_costs_others_one_connection_and_a_read_two_requests() {
    let world = World::speaking(false).await;
    read(&world).await;
    let (slow_write, slow_read) = (slow_write(&world), world.read("/slow"));
    for _ in 0..50 {
        sleep(SECOND).await;
        read(&world).await;
    }
    assert_eq!(text(slow_write.await.unwrap().unwrap()).await, "slow");
    assert_eq!(text(slow_read.await.unwrap().unwrap()).await, "slow");
    assert_eq!((world.received("POST /slow"), world.received("GET /slow")), (1, 2));
    // One for each of the three slow requests, and one for the others.
    assert!(world.balancer.opened() <= 4, "{}", world.balancer.opened());
}

#[tokio::test(start_paused = true)]
async fn a_body_that_pauses_for_longer_than_the_api_server_has_time_breaks_off() {
    let world = World::speaking(false).await;
    // The server sends the head, and keeps the body open.
    let mut body = world.read("/watch").await.unwrap().unwrap().into_body();
    let mut watch = world.watch().await.unwrap().unwrap().into_body();
    let begun = Instant::now();
    let error = body.frame().await.unwrap().unwrap_err();
    assert!(matches!(error, pool::BodyError::Silent(_)), "{error}");
    assert!((65 * SECOND..66 * SECOND).contains(&begun.elapsed()));
    // A silent watch is a healthy watch.
    tokio::time::timeout(3600 * SECOND, watch.frame()).await.unwrap_err();
}

/// Such as a shell at which nobody types.
#[tokio::test(start_paused = true)]
async fn an_upgrade_in_which_nothing_happens_for_an_hour_goes_on() {
    let world = World::speaking(false).await;
    let exec = Request::post("/exec").header("connection", "upgrade").header("upgrade", "echo");
    let sent = world.send(TrafficClass::Upgrade, exec.body(empty_body()).unwrap(), false);
    let mut response = sent.await.unwrap().unwrap();
    assert_eq!(response.status(), 101);
    let upgraded = hyper::upgrade::on(&mut response).await.unwrap();
    let mut io = hyper_util::rt::TokioIo::new(upgraded);
    sleep(3600 * SECOND).await;
    io.write_all(b"ls").await.unwrap();
    let mut answer = [0; 2];
    io.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"ls");
}
