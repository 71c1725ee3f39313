//! A cheap upstream that authenticates every token and allows every access. It answers all other
//! requests with 404.

use std::convert::Infallible;
use std::net::SocketAddr;

use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use weir::config::UpstreamConfig;
use weir::config::endpoints::EndpointsConfig;

/// The review of a service account's token.
const TOKEN_REVIEW: &str = r#"{"kind":"TokenReview","status":{"authenticated":true,"user":{
    "username":"system:serviceaccount:apps:controller","uid":"0da57b8d-9045-4653-aa5e-7ee52be0dccd",
    "groups":["system:serviceaccounts","system:serviceaccounts:apps","system:authenticated"],
    "extra":{"authentication.kubernetes.io/credential-id":["JTI=7ee52be0-9045-4653-aa5e-0da57b8dccdc"],
             "authentication.kubernetes.io/pod-name":["controller-5d4f8c7b9-x2x7q"]}}}}"#;
const ACCESS_REVIEW: &str = r#"{"kind":"SubjectAccessReview","status":{"allowed":true,"reason":"RBAC: allowed by ClusterRoleBinding \"controller\" of ClusterRole \"controller\" to ServiceAccount \"controller/apps\""}}"#;

/// Starts the upstream on the calling runtime.
pub(crate) async fn start() -> UpstreamConfig {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("its address");
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            tcp.set_nodelay(true).expect("a socket");
            let serve = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(tcp), service_fn(answer));
            tokio::spawn(serve);
        }
    });
    config(address)
}

fn config(address: SocketAddr) -> UpstreamConfig {
    UpstreamConfig {
        endpoints: EndpointsConfig {
            static_urls: vec![format!("http://{address}")],
            ..EndpointsConfig::default()
        },
        http2: false,
        ..UpstreamConfig::default()
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<&'static [u8]>>, Infallible> {
    let (code, body) = match request.uri().path().rsplit('/').next() {
        Some("tokenreviews") => (StatusCode::CREATED, TOKEN_REVIEW),
        Some("subjectaccessreviews") => (StatusCode::CREATED, ACCESS_REVIEW),
        _ => (StatusCode::NOT_FOUND, ""),
    };
    // An unread body would precede the next request on the connection.
    request.into_body().collect().await.expect("a body");
    let mut response = Response::new(Full::new(body.as_bytes()));
    *response.status_mut() = code;
    Ok(response)
}
