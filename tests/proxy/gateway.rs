//! Gateway mode with token users: a browser's WebSocket with a token, and documents that Weir keeps
//! once for all users.

use base64::Engine;
use futures::StreamExt;
use http::{HeaderValue, Request, Response};
use serde_json::json;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};
use weir::simulator::Rule;

use crate::client::{Answer, Call, within};
use crate::harness::{POD, Proxy, alice_and_bob, as_gateway, upstream_of};
use crate::wait::eventually;

const LIST: &str = "/api/v1/namespaces/ns1/configmaps?resourceVersion=0";
const WATCH: &str = "/api/v1/namespaces/ns1/configmaps?watch=1&resourceVersion=0";
const DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Alice may read config maps and exec in pods, bob has no permissions.
async fn gateway() -> Proxy {
    let read = Rule::new(&["get", "list", "watch"], &["configmaps", "pods"], &["ns1"]);
    let execute = Rule::new(&["*"], &["pods/exec", "pods/attach"], &["ns1"]);
    let upstream = upstream_of(alice_and_bob(vec![read, execute])).await;
    Proxy::before(upstream, "weirs-own", as_gateway).await
}

fn as_user(call: Call, token: &str) -> Call {
    call.header("authorization", &format!("Bearer {token}"))
}

/// The sub-protocol that carries a token.
fn protocol(token: &str) -> String {
    let token = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(token);
    format!("base64url.bearer.authorization.k8s.io.{token}")
}

type Opened = (WebSocketStream<TcpStream>, Response<Option<Vec<u8>>>);

/// Requests a WebSocket; the error is the response that rejects it.
async fn open(
    address: std::net::SocketAddr,
    path: &str,
    protocols: &str,
) -> Result<Opened, Box<Response<Option<Vec<u8>>>>> {
    let mut request: Request<()> = format!("ws://localhost{path}").into_client_request().unwrap();
    let headers = request.headers_mut();
    headers.insert("origin", HeaderValue::from_static("http://localhost"));
    headers.insert("sec-websocket-protocol", HeaderValue::from_str(protocols).unwrap());
    let stream = TcpStream::connect(address).await.unwrap();
    let opened = within("the WebSocket opens", client_async(request, stream)).await;
    match opened {
        Ok(opened) => Ok(opened),
        Err(Error::Http(refused)) => Err(refused),
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_browsers_token_opens_a_watch_from_the_cache() {
    let proxy = gateway().await;
    let warm = as_user(Call::get(LIST), "alices");
    eventually("the cache is warm", async || proxy.call(&warm).await.cache() == "hit").await;
    let alice = protocol("alices");
    for offered in [format!("{alice}, v1.example"), format!("v1.example,{alice}")] {
        let mut messages = Vec::new();
        for address in [proxy.plain(), proxy.upstream.address()] {
            let path = format!("{WATCH}&timeoutSeconds=1");
            let Ok((mut socket, answer)) = open(address, &path, &offered).await else {
                panic!("refused: {offered}")
            };
            let headers = answer.headers();
            assert_eq!(headers["sec-websocket-protocol"], "v1.example");
            assert!(!format!("{headers:?}").contains("bearer"), "{headers:?}");
            if address == proxy.plain() {
                assert_eq!(headers["x-weir-cache"], "hit");
            }
            let mut texts = Vec::new();
            while let Some(Ok(Message::Text(text))) = socket.next().await {
                // The bookmark at the end shows the resourceVersion of each cache.
                if !text.contains(r#""type":"BOOKMARK""#) {
                    texts.push(text.to_string());
                }
            }
            messages.push(texts);
        }
        assert_eq!(messages[0].len(), 4);
        assert_eq!(messages[0], messages[1]);
    }
    // Other users are rejected, with the upstream's own responses.
    let too_many = format!("{alice}, v1.example, v2.example");
    for (offered, code) in [
        (format!("{}, v1.example", protocol("bobs")), 403),
        (format!("{}, v1.example", protocol("nobodys")), 401),
        (format!("{alice}, {alice}, v1.example"), 401),
        (alice.clone(), 401),
        (too_many, 400),
    ] {
        let [through, direct] = [proxy.plain(), proxy.upstream.address()];
        let (through, direct) = (open(through, WATCH, &offered), open(direct, WATCH, &offered));
        let (through, direct) = (through.await.err().unwrap(), direct.await.err().unwrap());
        assert_eq!(
            (through.status().as_u16(), direct.status().as_u16()),
            (code, code),
            "{offered}"
        );
        assert_eq!(through.body(), direct.body(), "{offered}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_browsers_token_is_forwarded_unchanged_with_an_upgrade() {
    let proxy = gateway().await;
    let path = format!("{POD}/exec");
    let offered = format!("{}, v5.channel.k8s.io", protocol("alices"));
    let Ok((_socket, answer)) = open(proxy.plain(), &format!("{path}?command=ls"), &offered).await
    else {
        panic!("refused")
    };
    assert_eq!(answer.headers()["sec-websocket-protocol"], "v5.channel.k8s.io");
    let recent = proxy.upstream.requests().recent();
    let seen = recent.iter().find(|seen| seen.path == path).unwrap();
    assert_eq!(seen.user, "alice");
    assert_eq!(seen.headers["sec-websocket-protocol"], offered);
    let offered = format!("{}, v5.channel.k8s.io", protocol("bobs"));
    let refused = open(proxy.plain(), &format!("{path}?command=ls"), &offered).await;
    assert_eq!(refused.err().unwrap().status(), 403);
}

/// The response without the headers that differ in every request.
fn content(answer: &Answer) -> (u16, Option<&HeaderValue>, String) {
    (answer.status.as_u16(), answer.headers.get("etag"), answer.text())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cached_documents_are_only_for_permitted_users() {
    let proxy = gateway().await;
    let api = proxy.upstream.store();
    let rbac = "rbac.authorization.k8s.io/v1";
    api.delete(rbac, "clusterrolebindings", "", "system:discovery").unwrap();
    api.create(json!({"apiVersion": rbac, "kind": "ClusterRoleBinding", "metadata": {"name": "alice"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "alice"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:discovery"}}))
        .unwrap();
    let index = proxy.direct(&as_user(Call::get("/openapi/v3"), "alices")).await.json();
    let schema = index["paths"]["api/v1"]["serverRelativeURL"].as_str().unwrap().to_owned();
    for path in ["/apis", "/api", &schema] {
        let call = Call::get(path).header("accept", if path == schema { "*/*" } else { DISCOVERY });
        let ask = async |token: &str| {
            let call = match token {
                "" => call.clone(),
                token => as_user(call.clone(), token),
            };
            let (through, direct) = (proxy.call(&call).await, proxy.direct(&call).await);
            assert_eq!(content(&through), content(&direct), "{token} {path}");
            (through.status.as_u16(), through.cache().to_owned(), through.headers)
        };
        // A user without the permission is rejected before a document is kept, and an error is not
        // kept.
        assert_eq!(ask("bobs").await.0, 403, "{path}");
        let first = ask("alices").await;
        assert_eq!((first.0, first.1.as_str()), (200, "forward; reason=non-resource"), "{path}");
        for (token, code) in [("bobs", 403), ("", 403), ("nobodys", 401)] {
            let refused = ask(token).await;
            assert_eq!(refused.0, code, "{token} {path}");
            assert_ne!(refused.1, "hit", "{token} {path}");
            // Knowing the ETag does not help.
            let conditional = as_user(call.clone(), token)
                .header("if-none-match", first.2["etag"].to_str().unwrap());
            assert!(proxy.call(&conditional).await.status.as_u16() >= 401, "{token} {path}");
        }
        // One copy serves all users: another allowed user gets the document that was fetched for
        // the first.
        assert_eq!((ask("alices").await.1, ask("weirs-own").await.1), ("hit".into(), "hit".into()));
    }
}
