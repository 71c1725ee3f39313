//! Tests of requests that HTTP marks as not processed.

use super::*;

/// Starts a server with h2. Its first connection refuses a stream or sends a GOAWAY, the second
/// responds with the request's body.
pub(super) async fn refusing_server(go_away: bool) -> (std::net::SocketAddr, Arc<AtomicUsize>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let refused = Arc::new(AtomicUsize::new(0));
    let count = refused.clone();
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let count = count.clone();
            tokio::spawn(async move {
                if go_away && count.load(Ordering::SeqCst) == 0 {
                    go_away_from(tcp, &count).await;
                    return;
                }
                let mut connection = h2::server::handshake(tcp).await.unwrap();
                while let Some(Ok((request, mut respond))) = connection.accept().await {
                    if count.fetch_add(1, Ordering::SeqCst) > 0 {
                        let mut body = request.into_body();
                        tokio::spawn(async move {
                            let mut whole = Vec::new();
                            while let Some(data) = body.data().await {
                                let data = data.unwrap();
                                body.flow_control().release_capacity(data.len()).unwrap();
                                whole.extend_from_slice(&data);
                            }
                            let mut answer =
                                respond.send_response(Response::new(()), false).unwrap();
                            answer.send_data(whole.into(), true).unwrap();
                        });
                    } else {
                        respond.send_reset(h2::Reason::REFUSED_STREAM);
                    }
                }
            });
        }
    });
    (address, refused)
}

/// Answers the first HEADERS with a GOAWAY that marks no stream as processed, as an API server does
/// when a request crosses the GOAWAY that it sends with another response. Written without h2, whose
/// server counts a stream as processed as soon as it is read.
async fn go_away_from(mut tcp: tokio::net::TcpStream, count: &AtomicUsize) {
    const PREFACE_BYTES: usize = 24;
    const FRAME_HEAD_BYTES: usize = 9;
    const HEADERS: u8 = 1;
    tcp.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.unwrap();
    let mut read = vec![0; PREFACE_BYTES];
    tcp.read_exact(&mut read).await.unwrap();
    loop {
        let mut head = [0; FRAME_HEAD_BYTES];
        tcp.read_exact(&mut head).await.unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        tcp.read_exact(&mut vec![0; length as usize]).await.unwrap();
        if head[3] == HEADERS {
            break;
        }
    }
    count.fetch_add(1, Ordering::SeqCst);
    tcp.write_all(&[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).await.unwrap();
    // A socket that is closed with unread data discards the data that it has not sent.
    drop(tokio::io::copy(&mut tcp, &mut tokio::io::sink()).await);
}

#[tokio::test]
async fn an_unprocessed_request_is_sent_again() {
    for go_away in [false, true] {
        for body in ["", "once", &"x".repeat(60_000)] {
            let (address, refused) = refusing_server(go_away).await;
            let config = config(Some(format!("http://{address}")), None, true);
            let upstream = Upstream::new(&config, metrics()).await.unwrap();
            let request = Request::post("/x").body(full_body(body.to_owned())).unwrap();
            let response = upstream.send(TrafficClass::Request, request).await.unwrap();
            assert!(text(response).await == body, "the body is complete");
            assert_eq!(refused.load(Ordering::SeqCst), 2);
        }
    }
    // A longer body is not buffered.
    let (address, refused) = refusing_server(false).await;
    let config = config(Some(format!("http://{address}")), None, true);
    let upstream = Upstream::new(&config, metrics()).await.unwrap();
    let request = Request::post("/x").body(full_body(vec![0; 65_537])).unwrap();
    let error = upstream.send(TrafficClass::Request, request).await.unwrap_err();
    assert!(matches!(error, UpstreamError::Lost(_)), "{error}");
    assert_eq!(refused.load(Ordering::SeqCst), 1);
}

/// Refuses every second stream.
async fn half_refusing_server() -> (std::net::SocketAddr, Arc<AtomicUsize>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let received = Arc::new(AtomicUsize::new(0));
    let count = received.clone();
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let count = count.clone();
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(tcp).await.unwrap();
                while let Some(Ok((_, mut respond))) = connection.accept().await {
                    if count.fetch_add(1, Ordering::SeqCst).is_multiple_of(2) {
                        respond.send_reset(h2::Reason::REFUSED_STREAM);
                    } else {
                        respond.send_response(Response::new(()), true).unwrap();
                    }
                }
            });
        }
    });
    (address, received)
}

/// Row 11 of the targets: an API server that fails half of the requests gets a tenth more of them.
#[tokio::test]
async fn an_upstream_that_refuses_half_of_the_requests_gets_a_tenth_more() {
    const REQUESTS: usize = 1000;
    let (address, received) = half_refusing_server().await;
    let config = config(Some(format!("http://{address}")), None, true);
    let upstream = Upstream::new(&config, metrics()).await.unwrap();
    let started = Instant::now();
    let mut failed = 0;
    for _ in 0..REQUESTS / 50 {
        let sent = (0..50).map(|_| upstream.send(TrafficClass::Request, get("/x")));
        let sent = futures_util::future::join_all(sent).await;
        failed += sent.iter().filter(|sent| sent.is_err()).count();
    }
    let received = received.load(Ordering::SeqCst);
    // The least budget of each ten seconds, on a machine that is slow.
    let windows = started.elapsed().as_secs() as usize / 10;
    println!("{REQUESTS} requests: {received} were received, {failed} failed");
    assert!(received <= REQUESTS * 11 / 10 + 30 * windows, "{received} were received");
    assert!(received > REQUESTS && failed > 0, "{received} were received, {failed} failed");
}
