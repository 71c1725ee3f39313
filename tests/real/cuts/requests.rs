//! Requests of the reference test.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::Value;

/// Sends a GET; `None` if its connection broke.
pub(crate) async fn send(
    client: &Client,
    path: &str,
    headers: &[(&str, &str)],
) -> Option<Response<Body>> {
    let mut request = Request::get(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    client.send(request.body(Body::empty()).unwrap()).await.ok()
}

pub(crate) async fn body(response: Response<Body>) -> Option<Bytes> {
    response.into_body().collect().await.ok().map(|body| body.to_bytes())
}

pub(crate) fn json_request(method: &str, path: &str, body: &Value) -> Request<Body> {
    let content_type =
        if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let request = Request::builder().method(method).uri(path).header("content-type", content_type);
    request.body(Body::from(serde_json::to_vec(body).unwrap())).unwrap()
}
