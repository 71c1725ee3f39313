//! Tests that a body which breaks off never looks complete.

use super::*;

/// How an HTTP/2 server ends its response body.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ending {
    Whole,
    Reset(h2::Reason),
    /// GOAWAY without an error, then the end of the connection, as of a stopping API server.
    GoAway,
}

async fn server(ending: Ending) -> std::net::SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(tcp).await.unwrap();
                let (_, mut respond) = connection.accept().await.unwrap().unwrap();
                let mut body = respond.send_response(Response::new(()), false).unwrap();
                body.send_data(Bytes::from_static(b"{\"items\":["), false).unwrap();
                match ending {
                    Ending::Whole => body.send_data(Bytes::from_static(b"]}"), true).unwrap(),
                    Ending::Reset(reason) => {
                        // Without the flush, the reset would overtake the data.
                        flush(&mut connection).await;
                        body.send_reset(reason);
                    }
                    Ending::GoAway => {
                        connection.graceful_shutdown();
                        flush(&mut connection).await;
                        return;
                    }
                }
                while connection.accept().await.is_some() {}
            });
        }
    });
    address
}

/// Lets a connection write its queued frames.
async fn flush(connection: &mut h2::server::Connection<tokio::net::TcpStream, Bytes>) {
    let wait = std::time::Duration::from_millis(50);
    drop(tokio::time::timeout(wait, connection.accept()).await);
}

#[tokio::test]
async fn only_end_stream_ends_a_body() {
    for (ending, ends) in [
        (Ending::Whole, true),
        (Ending::Reset(h2::Reason::NO_ERROR), false),
        (Ending::Reset(h2::Reason::CANCEL), false),
        (Ending::Reset(h2::Reason::INTERNAL_ERROR), false),
        (Ending::GoAway, false),
    ] {
        let address = server(ending).await;
        let config = config(Some(format!("http://{address}")), None, true);
        let upstream = Upstream::new(&config, metrics()).await.unwrap();
        let response = upstream.send(TrafficClass::Request, get("/x")).await.unwrap();
        let body = response.into_body().collect().await;
        assert_eq!(body.is_ok(), ends, "{ending:?}");
    }
}
