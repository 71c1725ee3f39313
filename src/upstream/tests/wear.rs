//! Tests that cancelled and held requests leave the pool its capacity.

use super::*;

/// Starts a server that never answers `/hang`, and answers everything else with a body that stays
/// open. Returns it with the number of requests for `/hang` that arrived.
async fn hanging() -> (TestServer, Arc<AtomicUsize>) {
    let hung = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&hung);
    let senders = parking_lot::Mutex::new(Vec::new());
    let server = TestServer::start(ServerOptions::http2(), move |request| {
        let hangs = request.uri().path() == "/hang";
        if hangs {
            count.fetch_add(1, Ordering::SeqCst);
        }
        let (sender, body) = channel_body();
        senders.lock().push(sender);
        async move {
            if hangs {
                std::future::pending::<()>().await;
            }
            Response::new(body)
        }
    })
    .await;
    (server, hung)
}

/// Sends requests that get no answer, and cancels them when they have arrived.
async fn cancel(upstream: &Upstream, hung: &AtomicUsize, requests: usize) {
    const BATCH: usize = 50;
    for _ in 0..requests / BATCH {
        let before = hung.load(Ordering::SeqCst);
        let batch: Vec<_> = (0..BATCH)
            .map(|_| {
                let upstream = upstream.clone();
                tokio::spawn(async move {
                    upstream.send(TrafficClass::Request, get("/hang")).await.map(drop)
                })
            })
            .collect();
        eventually("the requests arrive", || hung.load(Ordering::SeqCst) == before + BATCH).await;
        for request in batch {
            request.abort();
            drop(request.await);
        }
    }
}

/// Before, each connection with 200 cancelled requests was retired and kept its place for as long
/// as one response on it was not read. After 32 of them no client got a connection any more.
#[tokio::test]
async fn held_and_cancelled_requests_leave_others_their_connections() {
    let (server, hung) = hanging().await;
    let upstream = server.upstream(true).await;
    let mut held = Vec::new();
    for _ in 0..33 {
        held.push(upstream.send(TrafficClass::Request, get("/held")).await.unwrap());
        cancel(&upstream, &hung, 200).await;
    }
    let other = upstream.send(TrafficClass::Request, get("/x")).await;
    assert!(other.is_ok(), "another client's request: {:?}", other.err());
    assert!(server.accepted() <= 16, "{} connections", server.accepted());
    for response in held {
        let is_over = http_body::Body::is_end_stream(response.body());
        assert!(!is_over, "no held response was lost");
    }
}

#[tokio::test]
async fn a_cancelled_request_is_reported_to_its_observer() {
    struct Observer(AtomicUsize);
    impl ResetObserver for Observer {
        fn stream_was_reset(&self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let (server, _hung) = hanging().await;
    let upstream = server.upstream(true).await;
    let observer = Arc::new(Observer(AtomicUsize::new(0)));
    let options = SendOptions { reset_observer: Some(observer.clone()), ..SendOptions::default() };
    let watch = upstream.send_with(TrafficClass::Stream, get("/watch"), &options).await.unwrap();
    assert_eq!(observer.0.load(Ordering::SeqCst), 0);
    drop(watch);
    assert_eq!(observer.0.load(Ordering::SeqCst), 1);
}

/// Starts an HTTP/2 server that ends each connection with a GOAWAY after its first request, and
/// holds the response of that request open. Returns it with the number of open connections.
async fn draining() -> (std::net::SocketAddr, Arc<AtomicUsize>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let open = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&open);
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let count = Arc::clone(&count);
            tokio::spawn(async move {
                count.fetch_add(1, Ordering::SeqCst);
                let mut held = Vec::new();
                let mut connection = h2::server::handshake(tcp).await.unwrap();
                while let Some(Ok((_, mut respond))) = connection.accept().await {
                    let mut body = respond.send_response(Response::new(()), false).unwrap();
                    body.send_data(Bytes::from_static(b"held"), false).unwrap();
                    held.push(body);
                    connection.graceful_shutdown();
                }
                count.fetch_sub(1, Ordering::SeqCst);
            });
        }
    });
    (address, open)
}

/// Before, a connection that got a GOAWAY was not counted any more.
#[tokio::test]
async fn draining_connections_are_counted_and_the_oldest_is_closed_at_the_limit() {
    const OPEN_MAX: usize = 64;
    let (address, open) = draining().await;
    let config = config(Some(format!("http://{address}")), None, true);
    let upstream = Upstream::new(&config, metrics()).await.unwrap();
    let mut held = Vec::new();
    for number in 0..OPEN_MAX + 6 {
        let sent = upstream.send(TrafficClass::Request, get("/held")).await;
        let mut body = sent.unwrap().into_body();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "held", "{number}");
        held.push(body);
        eventually("the GOAWAY arrives", || route(&upstream).pool.resets_and_in_use().1 == 0).await;
    }
    eventually("few connections are open", || open.load(Ordering::SeqCst) <= OPEN_MAX).await;
    let oldest = held[0].frame().await;
    assert!(oldest.is_some_and(|frame| frame.is_err()), "it never looks complete");
    let newest = futures::FutureExt::now_or_never(held.last_mut().unwrap().frame());
    assert!(newest.is_none(), "it is still open");
}
