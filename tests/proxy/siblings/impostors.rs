//! Siblings whose answers are not what they should be. Each costs the list that there would have
//! been without siblings.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::AbortHandle;
use weir::config::siblings::SEED_TIMEOUT;

use super::{ANY, CONFIGMAPS, SEED, beside, first, lists_of, within};
use crate::client::{Answer, Call};
use crate::harness::{Proxy, configmap};

/// The part of a response after its head.
#[derive(Clone)]
enum Rest {
    /// These bytes, and the end of the connection.
    Bytes(Vec<u8>),
    /// These bytes, and nothing more.
    Silence(Vec<u8>),
    /// These bytes again and again.
    Endless(Vec<u8>),
}

/// A server that answers each request in the same way. Dropping it stops it.
struct Impostor {
    address: SocketAddr,
    task: AbortHandle,
}

impl Impostor {
    async fn start(headers: String, rest: Rest) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, headers.clone(), rest.clone()));
            }
        });
        Self { address, task: task.abort_handle() }
    }
}

impl Drop for Impostor {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(mut stream: TcpStream, headers: String, rest: Rest) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let headers = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{headers}\r\n");
    drop(stream.write_all(headers.as_bytes()).await);
    match rest {
        Rest::Bytes(bytes) => drop(stream.write_all(&bytes).await),
        Rest::Silence(bytes) => {
            drop(stream.write_all(&bytes).await);
            // Until the client gives up.
            drop(stream.read_u8().await);
        }
        Rest::Endless(bytes) => while stream.write_all(&bytes).await.is_ok() {},
    }
}

/// Starts a Weir whose sibling answers so, and returns the outcome that it counts.
async fn seeded_by(first: &Proxy, headers: String, rest: Rest, outcome: &str) {
    let impostor = Impostor::start(headers, rest).await;
    first.upstream.requests().reset();
    let second = beside(first, &[impostor.address]).await;
    let answer = second.get(ANY).await;
    assert_eq!(answer.cache(), "hit", "{outcome}");
    assert_eq!(second.seeds(outcome).await, 1.0, "{outcome}");
    assert_eq!(second.metric("weir_seeds_total", &[]).await, 1.0, "{outcome}");
    assert_eq!(lists_of(&first.upstream, "configmaps").len(), 1, "{outcome}");
    let direct = second.direct(&Call::get(ANY)).await;
    assert_eq!(answer.json()["items"], direct.json()["items"], "{outcome}");
}

/// Returns the header of a sibling's response, and the body.
async fn genuine(first: &Proxy) -> (String, Answer) {
    let answer = first.seed(ANY, "codec=1").await;
    (answer.headers[SEED].to_str().unwrap().to_owned(), answer)
}

fn header(manifest: &str) -> String {
    format!("{SEED}: {manifest}\r\n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_that_is_not_the_siblings_cache_is_not_used() {
    let first = first().await;
    let (manifest, answer) = genuine(&first).await;
    let body = || Rest::Bytes(answer.body.to_vec());
    // A forwarded list has no such header.
    seeded_by(&first, "x-weir-cache: forward\r\n".to_owned(), body(), "damaged").await;
    let other_codec = header(&manifest.replace("codec=1", "codec=2"));
    seeded_by(&first, other_codec, body(), "damaged").await;
    let other_release = header(&manifest.replace("release=v1.", "release=v2."));
    seeded_by(&first, other_release, body(), "damaged").await;
    let cluster = manifest.split("cluster=").nth(1).unwrap().split(';').next().unwrap();
    let other_cluster = header(&manifest.replace(cluster, "another"));
    seeded_by(&first, other_cluster, body(), "other-cluster").await;
    assert!(manifest.contains("; definition=0; "), "{manifest}");
    let other_definition = header(&manifest.replace("definition=0", "definition=7"));
    seeded_by(&first, other_definition, body(), "damaged").await;
    seeded_by(&first, header("codec=1; objects=1"), body(), "damaged").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_that_was_damaged_on_its_way_is_not_used() {
    let first = first().await;
    let (manifest, answer) = genuine(&first).await;
    let text = answer.text();
    let altered = text.replacen(r#""n":"1""#, r#""n":"7""#, 1);
    assert_ne!(altered, text);
    seeded_by(&first, header(&manifest), Rest::Bytes(altered.into()), "damaged").await;
    let half = answer.body[..answer.body.len() / 2].to_vec();
    // A body without a length ends with its connection.
    seeded_by(&first, header(&manifest), Rest::Bytes(half), "unreachable").await;
    let fewer = header(&manifest.replace("objects=12", "objects=11"));
    seeded_by(&first, fewer, Rest::Bytes(answer.body.to_vec()), "damaged").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sibling_that_does_not_end_is_left() {
    let first = first().await;
    let (manifest, answer) = genuine(&first).await;
    let half = answer.body[..answer.body.len() / 2].to_vec();
    let impostor = Impostor::start(header(&manifest), Rest::Silence(half)).await;
    let second = within(&first, &[impostor.address], SEED_TIMEOUT).await;
    assert_eq!(second.get(ANY).await.cache(), "hit");
    assert_eq!(second.seeds("late").await, 1.0);
    // The next cache does not wait for it as well.
    assert_eq!(second.get("/api/v1/pods?resourceVersion=0").await.cache(), "hit");
    assert_eq!((second.seeds("late").await, second.seeds("unreachable").await), (1.0, 1.0));
    // Blanks between tokens are JSON, however many there are.
    let blanks = vec![b' '; 4096];
    seeded_by(&first, header(&manifest), Rest::Endless(blanks), "damaged").await;
}

/// A list that is larger than a cache may be.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_oversized_list_is_not_held() {
    let first = first().await;
    let (manifest, answer) = genuine(&first).await;
    let text = answer.text();
    let (_, items) = text.split_once(r#""items":["#).unwrap();
    let item = items.split_once("}},{").map(|(item, _)| format!("{item}}}}},")).unwrap();
    let open = format!(r#"{}"items":["#, text.split_once(r#""items":["#).unwrap().0);
    // The head of a list, and an object for ever.
    let mut body = open.into_bytes();
    for _ in 0..20_000 {
        body.extend_from_slice(item.as_bytes());
    }
    let impostor = Impostor::start(header(&manifest), Rest::Silence(body)).await;
    let url = format!("http://{}", impostor.address);
    let second = Proxy::before(first.upstream.clone(), "", |config| {
        config.cache.siblings.addresses = vec![url];
        config.cache.resource_bytes_max = 1 << 20;
        config.cache.history_bytes_max = 1 << 18;
    })
    .await;
    assert_eq!(second.get(ANY).await.cache(), "hit");
    let outcomes = second.seeds("damaged").await + second.seeds("late").await;
    assert_eq!(outcomes, 1.0);
    second.has_it_all().await;
}

/// A sibling whose watch has hung for long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sibling_that_lags_behind_the_upstreams_history_is_not_used() {
    let first = first().await;
    let (manifest, answer) = genuine(&first).await;
    for number in 0..5 {
        first.upstream.store().update(configmap("ns1", "cm-b", 100 + number)).unwrap();
    }
    first.upstream.compact();
    first.catch_up(CONFIGMAPS).await;
    let body = Rest::Bytes(answer.body.to_vec());
    seeded_by(&first, header(&manifest), body, "out-of-step").await;
}

/// A sibling that is only a little behind is as good as one that is not: the watch brings the rest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sibling_that_lags_a_little_is_used() {
    let first = first().await;
    let (manifest, answer) = genuine(&first).await;
    for number in 0..5 {
        first.upstream.store().update(configmap("ns1", "cm-b", 100 + number)).unwrap();
    }
    let body = Rest::Bytes(answer.body.to_vec());
    let impostor = Impostor::start(header(&manifest), body).await;
    first.upstream.requests().reset();
    let second = beside(&first, &[impostor.address]).await;
    let answer = second.get(ANY).await;
    assert_eq!(answer.cache(), "hit");
    second.has_adopted(1).await;
    assert!(answer.text().contains(r#""n":"104""#), "all reads wait for what was written before");
    assert_eq!(lists_of(&first.upstream, "configmaps"), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_answers_nothing_is_left() {
    let first = first().await;
    // A socket that does not listen refuses connections, and keeps its port from others.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let closed = socket.local_addr().unwrap();
    let second = beside(&first, &[closed]).await;
    assert_eq!(second.get(ANY).await.cache(), "hit");
    assert_eq!(second.seeds("unreachable").await, 1.0);
    // Another sibling is asked then.
    let third = beside(&first, &[closed, first.plain()]).await;
    assert_eq!(third.get(ANY).await.cache(), "hit");
    third.has_adopted(1).await;
}
