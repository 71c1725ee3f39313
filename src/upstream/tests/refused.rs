//! Tests of requests that Weir refuses to send with its credential.

use super::*;

#[tokio::test]
async fn a_client_cannot_impersonate_if_weirs_kubeconfig_does() {
    let ca = Ca::new();
    let tls = Some(ca.server(&["127.0.0.1"], &["http/1.1"]));
    let server = TestServer::start(ServerOptions { tls, ..ServerOptions::http1() }, echo).await;
    let directory = tempfile::tempdir().unwrap();
    let path = kubeconfig(directory.path(), &server, &ca, "token: secret, as: jane");
    let upstream = Upstream::new(&config(None, Some(path), true), metrics()).await.unwrap();
    let request = Request::get("/x").header("impersonate-user", "root").body(empty_body()).unwrap();
    let error = upstream.send(TrafficClass::Request, request).await.unwrap_err();
    // The request itself is the cause, so that a retry would not help.
    assert!(matches!(error, UpstreamError::Request(_)), "{error:?}");
    assert!(upstream.send(TrafficClass::Request, get("/x")).await.is_ok());
}

#[tokio::test]
async fn a_path_cannot_leave_the_prefix_of_the_address() {
    let server = TestServer::start(ServerOptions::http1(), echo).await;
    let address = format!("http://{}/k8s/clusters/c-1", server.address);
    let upstream = Upstream::new(&config(Some(address), None, false), metrics()).await.unwrap();
    let response = upstream.send(TrafficClass::Request, get("/api/v1/pods")).await.unwrap();
    assert!(text(response).await.contains(" /k8s/clusters/c-1/api/v1/pods "));
    let error =
        upstream.send(TrafficClass::Request, get("/%2e%2e/c-2/api/v1/pods")).await.unwrap_err();
    assert!(matches!(error, UpstreamError::Request(_)), "{error:?}");
    assert_eq!(server.accepted(), 1);
}
