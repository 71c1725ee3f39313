//! Replicas of Weir that fill their caches from one another (`cache.siblings`), before a real
//! kube-apiserver whose audit log says which lists and watches reached it.
//!
//! The replicas are gateways, so that a sibling authenticates and authorizes another one as any
//! client: by Weir's own token, over TLS.

mod audit;
mod client;
mod informer;
mod reference;
mod replicas;
mod report;
pub(crate) mod restart;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::Runtime;

use self::audit::AuditedPlane;
use self::replicas::{Replica, Settings};
use crate::control_plane::ADMIN;
use crate::suite::objects::fill;
use crate::suite::read_request::Marks;
use crate::suite::wire::{Answer, Call, Endpoint};
use crate::support::free_port;
use crate::wait::eventually;

/// A built-in resource, and a custom one.
const COLLECTIONS: [(&str, &str); 2] =
    [("/api/v1/configmaps", "configmaps"), ("/apis/example.com/v1/widgets", "widgets")];

/// A replica fills from another one and costs the API server no list. One that has a wrong sibling,
/// or none, lists once.
pub(crate) fn before_a_real_api_server() {
    let plane = AuditedPlane::start();
    let other = AuditedPlane::start();
    Runtime::new().unwrap().block_on(async {
        let direct = plane.endpoint(ADMIN);
        fill(&direct, &mut Marks::default()).await;
        let first = beside(&plane, "").await;
        for (path, resource) in COLLECTIONS {
            equal(&first, &direct, path).await;
            watches(&first, resource).await;
        }
        from_a_sibling(&plane, &first, &direct).await;

        // A socket that does not listen refuses connections, and keeps its port from others.
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let away = format!("http://{}", socket.local_addr().unwrap());
        one_list(&plane, &direct, &plane.siblings(&[away]), "unreachable").await;
        drop(socket);
        let altered = altered_list(&first).await;
        one_list(&plane, &direct, &plane.siblings(&[altered]), "damaged").await;
        // It has objects of the same names, and accepts the same token.
        fill(&other.endpoint(ADMIN), &mut Marks::default()).await;
        let foreign = beside(&other, "").await;
        eventually("the foreign cache answers", async || {
            foreign.get(&any(COLLECTIONS[0].0)).await.cache() == "hit"
        })
        .await;
        watches(&foreign, COLLECTIONS[0].1).await;
        let siblings = other.siblings(&[foreign.url()]);
        one_list(&plane, &direct, &siblings, "other-cluster").await;
    });
}

async fn from_a_sibling(plane: &AuditedPlane, first: &Replica, direct: &Endpoint) {
    for attempt in 1..=ATTEMPTS {
        let before = COLLECTIONS.map(|(_, resource)| plane.requests(resource).lists);
        let second = beside(plane, &plane.siblings(&[first.url()])).await;
        for (path, _) in COLLECTIONS {
            equal(&second, direct, path).await;
        }
        let adopted = second.seeds("adopted");
        if adopted < 2.0 && attempt < ATTEMPTS && is_out_of_time(&second, "adopted") {
            continue;
        }
        assert_eq!(adopted, 2.0, "{:?}", second.outcomes());
        let after = COLLECTIONS.map(|(_, resource)| plane.requests(resource).lists);
        assert_eq!(after, before, "no list reaches the API server");
        return;
    }
}

/// Starts a replica with these siblings, none of which is right, and reads config maps.
async fn one_list(plane: &AuditedPlane, direct: &Endpoint, siblings: &str, outcome: &str) {
    let (path, resource) = COLLECTIONS[0];
    for attempt in 1..=ATTEMPTS {
        let before = plane.requests(resource).lists;
        let replica = beside(plane, siblings).await;
        equal(&replica, direct, path).await;
        assert_eq!(plane.requests(resource).lists, before + 1, "{outcome}: one list");
        if attempt < ATTEMPTS && is_out_of_time(&replica, outcome) {
            continue;
        }
        assert_eq!(replica.outcomes(), [(outcome.to_owned(), 1.0)].into(), "{outcome}");
        return;
    }
}

/// Whether a replica has not got as far as to an outcome. A sibling has two seconds, half a second
/// of them to be connected, also on a busy machine; then the replica lists.
fn is_out_of_time(replica: &Replica, outcome: &str) -> bool {
    ["late", "unreachable"].iter().any(|it| *it != outcome && replica.seeds(it) > 0.0)
}

/// Starts a replica that is ready and warms nothing.
async fn beside(plane: &AuditedPlane, siblings: &str) -> Replica {
    // Flow control has two caches of its own.
    let more = "flowControl: {mode: off}\n";
    let settings = Settings { siblings: siblings.to_owned(), more, ..Settings::default() };
    let replica = Replica::spawn(plane, free_port(), &settings);
    tokio::task::spawn_blocking(move || {
        replica.weir.wait_until_ready();
        replica
    })
    .await
    .unwrap()
}

/// Waits until a collection comes from the cache, and compares it with the API server's at the same
/// resourceVersion, byte for byte.
async fn equal(replica: &Replica, direct: &Endpoint, path: &str) {
    let mut cached = Answer::default();
    eventually("the cache answers", async || {
        cached = replica.get(&any(path)).await;
        cached.cache() == "hit"
    })
    .await;
    let list = cached.json();
    let at = list["metadata"]["resourceVersion"].as_str().unwrap();
    let exact = format!("{path}?resourceVersion={at}&resourceVersionMatch=Exact");
    let expected = direct.send(&Call::get(exact)).await;
    assert!(list["items"].as_array().unwrap().len() > 3, "{path} has objects");
    assert_eq!(cached.body, expected.body, "{path} at {at}");
}

/// Waits until the cache of a resource may be sent to siblings.
async fn watches(replica: &Replica, resource: &str) {
    let labels = [format!("resource=\"{resource}\""), "state=\"watching\"".to_owned()];
    let labels = labels.each_ref().map(String::as_str);
    eventually("the cache follows", async || {
        replica.weir.metric("weir_reflector_state", &labels) == 1.0
    })
    .await;
}

/// Starts a server that sends a replica's own list, in which one letter is another. Returns its
/// URL.
async fn altered_list(of: &Replica) -> String {
    let call = Call::get(any(COLLECTIONS[0].0)).header("x-weir-seed", "codec=1");
    let answer = of.endpoint().send(&call).await;
    let text = String::from_utf8(answer.body.to_vec()).unwrap();
    let altered = text.replacen("\"name\":\"x\"", "\"name\":\"w\"", 1);
    assert_ne!(altered, text);
    let manifest = answer.header("x-weir-seed");
    assert!(manifest.contains("digest="), "{} {manifest:?}", answer.status);
    let response = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\
         x-weir-seed: {manifest}\r\n\r\n{altered}"
    );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                match tokio::time::timeout(HEAD_TIMEOUT, stream.read_u8()).await {
                    Ok(Ok(byte)) => head.push(byte),
                    _ => break,
                }
            }
            drop(stream.write_all(response.as_bytes()).await);
        }
    });
    format!("http://{address}")
}

fn any(path: &str) -> String {
    format!("{path}?resourceVersion=0")
}

const ATTEMPTS: usize = 5;
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
