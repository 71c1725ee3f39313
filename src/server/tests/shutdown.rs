//! Draining: no connection is accepted, watches end cleanly, requests in flight are finished, and
//! all others are aborted at the deadline.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::harness::{Settings, Weir, get, http2_on, whole};
use crate::testing::eventually;
use crate::upstream::testing::{answer, channel_body};

#[tokio::test]
async fn watches_end_cleanly_and_requests_are_finished() {
    let settings = Settings { shutdown_timeout: Duration::from_secs(8), ..Settings::default() };
    let (release, released) = tokio::sync::watch::channel(false);
    let weir = Weir::start_with(settings, move |_| {
        let mut released = released.clone();
        async move {
            released.wait_for(|released| *released).await.unwrap();
            answer(200, "done")
        }
    })
    .await;
    let _feed = weir.fill([("x".to_owned(), 5)]);

    let path = "/api/v1/configmaps?watch=1&resourceVersion=0";
    let mut one = weir.http1().await;
    let first = one.send_request(get(path)).await.unwrap();
    assert_eq!(first.headers()["x-weir-cache"], "hit");
    let mut two = http2_on(weir.tcp().await).await;
    let absolute = format!("http://localhost{path}");
    let second =
        two.send_request(Request::get(absolute).body(Full::default()).unwrap()).await.unwrap();
    let mut three = weir.http1().await;
    let slow = tokio::spawn(async move {
        let response = three.send_request(get("/version")).await.unwrap();
        whole(response).await.text().to_owned()
    });
    let idle = weir.http1().await;
    eventually("the request is in flight", || weir.scrape().contains("weir_requests_in_flight 1"))
        .await;

    let started = Instant::now();
    weir.shutdown.cancel();
    for body in [first.into_body(), second.into_body()] {
        let body = body.collect().await.expect("the body did not end cleanly").to_bytes();
        assert_eq!(body.iter().filter(|byte| **byte == b'\n').count(), 1);
    }
    assert!(TcpStream::connect(weir.plain()).await.is_err(), "no connection is accepted");
    release.send(true).unwrap();
    assert_eq!(slow.await.unwrap(), "done");
    weir.served.await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(8), "ends before the deadline");
    drop((one, two, idle));
}

#[tokio::test]
async fn forwarded_watches_end_cleanly_between_two_events() {
    let settings = Settings { shutdown_timeout: Duration::from_secs(8), ..Settings::default() };
    let weir = Weir::start_with(settings, |_| {
        let (sender, body) = channel_body();
        tokio::spawn(async move {
            sender.send(Bytes::from_static(b"{\"type\":\"ADDED\"}\n{\"type\":")).await.unwrap();
            tokio::time::sleep(Duration::from_secs(3)).await;
            sender.send(Bytes::from_static(b"\"ADDED\"}\n")).await.unwrap();
            sender.closed().await;
        });
        let mut answer = Response::new(body);
        let form = http::HeaderValue::from_static("application/json");
        answer.headers_mut().insert(http::header::CONTENT_TYPE, form);
        async move { answer }
    })
    .await;
    let mut client = weir.http1().await;
    let path = "/api/v1/events?watch=1&resourceVersion=0";
    let mut response = client.send_request(get(path)).await.unwrap();
    let mut seen = response.frame().await.unwrap().unwrap().into_data().unwrap().to_vec();
    let started = Instant::now();
    weir.shutdown.cancel();
    seen.extend(
        response.into_body().collect().await.expect("the body did not end cleanly").to_bytes(),
    );
    assert_eq!(seen.iter().filter(|byte| **byte == b'\n').count(), 2, "no event is cut");
    weir.served.await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(8), "ends before the deadline");
}

#[tokio::test]
async fn connections_that_do_not_end_are_aborted_at_the_deadline() {
    let settings = Settings { shutdown_timeout: Duration::from_millis(300), ..Settings::default() };
    let weir = Weir::start_with(settings, |_| {
        let (sender, body) = channel_body();
        tokio::spawn(async move {
            sender.send(Bytes::from_static(b"line\n")).await.unwrap();
            sender.closed().await;
        });
        async move { Response::new(body) }
    })
    .await;
    let mut client = weir.http1().await;
    let path = "/api/v1/namespaces/a/pods/p/log?follow=true";
    let response = client.send_request(get(path)).await.unwrap();
    // A connection that stalls within HTTP/2's preface.
    let mut stuck = weir.tcp().await;
    tokio::io::AsyncWriteExt::write_all(&mut stuck, b"PRI * HT").await.unwrap();
    // A connection that never starts its TLS handshake.
    let silent = TcpStream::connect(&weir.listeners[1].address).await.unwrap();
    let started = Instant::now();
    weir.shutdown.cancel();
    weir.served.await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(8), "the deadline holds for all of them");
    drop(silent);
    assert!(response.into_body().collect().await.is_err(), "cut, and seen to be cut");
}
