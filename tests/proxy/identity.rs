//! The identity of a request: Weir's own, or a user whom the upstream lets Weir impersonate; never
//! the user that the client claims.

use serde_json::json;
use weir::simulator::{Rule, User};

use crate::client::Call;
use crate::harness::{Proxy, upstream_of};

const TOKEN: &str = "weirs-own";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clients_identity_headers_never_reach_the_upstream() {
    let proxy = with_users().await;
    let path = "/api/v1/namespaces/ns1/configmaps/cm-a";
    let call = Call::get(path)
        .header("authorization", "Bearer somebody-elses")
        .header("x-remote-user", "admin")
        .header("x-remote-group", "system:masters")
        .header("x-remote-extra-scopes", "all")
        .header("proxy-authorization", "Basic eDp5")
        .header("x-mine", "kept");
    assert_eq!(proxy.call(&call).await.status, 200);
    // Weir sends requests of its own meanwhile, but never for this path.
    let recent = proxy.upstream.requests().recent();
    let seen = recent.iter().find(|seen| seen.path == path).unwrap();
    assert_eq!(seen.user, "weir");
    let names: Vec<_> = seen.headers.keys().map(http::HeaderName::as_str).collect();
    assert!(
        !names.iter().any(|name| name.starts_with("x-remote") || name.starts_with("proxy-")),
        "{names:?}"
    );
    assert_eq!(seen.headers["x-mine"], "kept");
    assert_eq!(seen.headers["x-forwarded-for"], "127.0.0.1");

    for name in ["Impersonate-User", "X-Remote-User", "Authorization"] {
        let path = "/api/v1/nodes/refused";
        let call = Call::get(path)
            .header("connection", &format!("close, {name}"))
            .header("impersonate-user", "jane");
        let refused = proxy.call(&call).await;
        assert_eq!(
            (refused.status.as_u16(), refused.json()["reason"].clone()),
            (400, json!("BadRequest"))
        );
        let recent = proxy.upstream.requests().recent();
        assert!(recent.iter().all(|seen| seen.path != path), "nothing was sent");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn impersonation_is_authorized_upstream_and_never_cached() {
    let proxy = with_users().await;
    proxy.warm("/api/v1/configmaps").await;
    for query in ["?resourceVersion=0", "?watch=1&resourceVersion=0"] {
        let path = format!("/api/v1/configmaps{query}");
        let call = Call::get(&path).header("impersonate-user", "jane");
        let refused = proxy.call(&call).await;
        assert_eq!(
            (refused.status.as_u16(), refused.cache()),
            (403, "forward; reason=impersonation")
        );
        assert!(refused.text().contains("jane"), "{}", refused.text());
        let only_extra =
            Call::get("/api/v1/configmaps?resourceVersion=0").header("impersonate-extra-x", "y");
        assert_eq!(proxy.call(&only_extra).await.cache(), "forward; reason=impersonation");
    }
    let bypass = Call::get("/api/v1/configmaps?resourceVersion=0").header("x-weir-cache", "bypass");
    assert_eq!(proxy.call(&bypass).await.cache(), "forward; reason=bypass");
}

/// Weir's user may read and write everything but impersonate nobody; the other user is an
/// administrator.
async fn with_users() -> Proxy {
    let any_verb = Rule::new(&["*"], &["*"], &["*", ""]);
    let users = vec![
        User::with_rules(TOKEN, "weir", vec![any_verb]),
        User::admin("somebody-elses", "root"),
    ];
    let upstream = upstream_of(users).await;
    Proxy::before(upstream, TOKEN, |_| {}).await
}
