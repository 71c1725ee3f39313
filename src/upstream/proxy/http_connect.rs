//! A tunnel through an HTTP proxy, by CONNECT.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{HOST, PROXY_AUTHORIZATION, USER_AGENT};
use http::{HeaderValue, Request, StatusCode};
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;

use crate::config::seams::Connection;
use crate::upstream::error::chain;

/// Requests the tunnel to `target` (`host:port`). `credentials` is the user name and password with
/// a colon between. The error is a message that continues "the proxy ...".
pub(super) async fn handshake(
    connection: Box<dyn Connection>,
    target: &str,
    credentials: Option<&str>,
) -> Result<Box<dyn Connection>, String> {
    let request = request(target, credentials)?;
    let mut builder = http1::Builder::new();
    builder.max_buf_size(HEAD_MAX_BYTES);
    let broken = |error: hyper::Error| format!("does not answer CONNECT: {}", chain(&error));
    let (mut sender, driver) = builder.handshake(TokioIo::new(connection)).await.map_err(broken)?;
    // It ends with the response to CONNECT, or when `sender` is dropped.
    tokio::spawn(driver.with_upgrades());
    let response = sender.send_request(request).await.map_err(broken)?;
    match response.status() {
        StatusCode::OK => {
            let tunnel = hyper::upgrade::on(response).await.map_err(broken)?;
            Ok(Box::new(TokioIo::new(tunnel)))
        }
        StatusCode::PROXY_AUTHENTICATION_REQUIRED => {
            Err("requires other credentials (407); its URL may have a user name and a password"
                .to_owned())
        }
        status => Err(format!("refuses to connect to {target}: {status}")),
    }
}

fn request(target: &str, credentials: Option<&str>) -> Result<Request<Empty<Bytes>>, String> {
    let mut request = Request::connect(target)
        .header(HOST, target)
        .header(USER_AGENT, concat!("weir/", env!("CARGO_PKG_VERSION")));
    if let Some(credentials) = credentials {
        let value = format!("Basic {}", STANDARD.encode(credentials));
        let mut value = HeaderValue::try_from(value).map_err(|error| chain(&error))?;
        value.set_sensitive(true);
        request = request.header(PROXY_AUTHORIZATION, value);
    }
    request.body(Empty::new()).map_err(|_| format!("cannot be asked for {target:?}"))
}

/// The largest head of the response. hyper's least is 8 KiB.
const HEAD_MAX_BYTES: usize = 64 * 1024;
