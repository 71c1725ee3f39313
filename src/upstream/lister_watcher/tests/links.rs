//! Tests of lists from an API server on another machine, which may be compressed.

use super::*;
use crate::codec::gzip;
use crate::config::seams::{Connection, Dial};

/// Lists from a server that seems to be on another machine.
async fn distant_lister(server: &TestServer, max_list_bytes: usize) -> HttpListWatch {
    let address = server.address;
    let dial = Dial::new(move |_, _| {
        Box::pin(async move {
            let tcp = tokio::net::TcpStream::connect(address).await?;
            Ok(Box::new(tcp) as Box<dyn Connection>)
        })
    });
    let config = config(Some("http://192.0.2.1:80".to_owned()), None, false);
    let upstream = Upstream::with_dial(&config, Some(dial), metrics()).await.unwrap();
    lister_of(upstream, max_list_bytes)
}

/// An API server on another machine may compress lists. Their limit is that of the plain bytes.
#[tokio::test]
async fn a_list_over_a_link_may_be_compressed() {
    let data = "a".repeat(40_000);
    let body = format!(
        r#"{{"kind":"ConfigMapList","apiVersion":"v1","metadata":{{"resourceVersion":"7"}},"items":[{{"metadata":{{"name":"a","namespace":"team","resourceVersion":"5"}},"data":{{"a":"{data}"}}}}]}}"#
    );
    let length = body.len();
    let cut = Arc::new(AtomicUsize::new(0));
    let bytes_cut = cut.clone();
    let server = TestServer::start(ServerOptions::http1(), move |request| {
        assert_eq!(request.headers()["accept-encoding"], "gzip");
        let member = gzip::to_member(body.as_bytes());
        let mut answer = answer(200, member.slice(..member.len() - cut.load(Ordering::Relaxed)));
        answer.headers_mut().insert("content-encoding", "gzip".parse().unwrap());
        async move { answer }
    })
    .await;
    let lister = distant_lister(&server, length).await;
    assert_eq!(lister.list(ListRequest::default()).await.unwrap().objects.len(), 1);
    let streamed = lister.stream_list(ListRequest::default()).await.unwrap();
    assert_eq!(read_to_end(streamed).await.unwrap(), 2, "the object and the end");
    let short = distant_lister(&server, length - 1).await;
    let error = short.list(ListRequest::default()).await.unwrap_err();
    assert!(matches!(error, UpstreamError::TooLong(_)), "{error}");

    bytes_cut.store(1, Ordering::Relaxed);
    let error = lister.list(ListRequest::default()).await.unwrap_err();
    assert!(matches!(error, UpstreamError::Lost(_)), "{error}");
    let streamed = lister.stream_list(ListRequest::default()).await.unwrap();
    let error = read_to_end(streamed).await.unwrap_err();
    assert!(matches!(error, UpstreamError::Lost(_)), "{error}");
}

#[tokio::test]
async fn an_error_over_a_link_may_be_compressed() {
    let server = TestServer::start(ServerOptions::http1(), |_| async {
        let status = r#"{"kind":"Status","message":"Too large resource version","reason":"Timeout","code":504}"#;
        let mut answer = answer(504, gzip::to_member(status.as_bytes()));
        answer.headers_mut().insert("content-encoding", "GZIP".parse().unwrap());
        answer
    })
    .await;
    let lister = distant_lister(&server, 1 << 20).await;
    let error = lister.list(ListRequest::default()).await.unwrap_err();
    let UpstreamError::Status { reason, message, .. } = error else { panic!("{error}") };
    assert_eq!((&*reason, &*message), ("Timeout", "Too large resource version"));
}

/// Returns the number of events.
async fn read_to_end(mut stream: Box<dyn WatchStream>) -> Result<usize, UpstreamError> {
    let mut count = 0;
    while let Some(events) = stream.next().await? {
        count += events.len();
    }
    Ok(count)
}
