//! Discovery and OpenAPI: negotiation and revalidation.

use http::Method;
use serde_json::Value;

use super::client::{Reply, get, request, start};
use crate::Simulator;

async fn with(simulator: &Simulator, path: &str, name: &str, value: &str) -> Reply {
    request(simulator, Method::GET, path, &[(name, value)], Value::Null).await.unwrap()
}

#[tokio::test]
async fn aggregated_discovery_has_one_version() {
    let simulator = start().await;
    const OLD: &str = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
    assert_eq!(with(&simulator, "/apis", "accept", OLD).await.code, 406);
    let both = format!("{OLD},application/json");
    let legacy = with(&simulator, "/apis", "accept", &both).await;
    assert_eq!(legacy.json()["kind"], "APIGroupList");
    assert_eq!(legacy.headers["cache-control"], "no-cache, private");
    let new = OLD.replace("v2beta1", "v2");
    let aggregated = with(&simulator, "/apis", "accept", &format!("{new},application/json")).await;
    assert_eq!(aggregated.headers["content-type"], new.as_str());
    assert_eq!(aggregated.headers["cache-control"], "public");
    let below = with(&simulator, "/apis/apps/v1", "accept", &new).await;
    assert_eq!(below.code, 406);
}

#[tokio::test]
async fn openapi_documents_are_revalidated_and_found_by_their_hash() {
    let simulator = start().await;
    let v2 = get(&simulator, "/openapi/v2").await;
    let tag = v2.headers["etag"].to_str().unwrap();
    let same = with(&simulator, "/openapi/v2", "if-none-match", tag).await;
    assert_eq!(
        (same.code.as_u16(), same.body.len(), &same.headers["etag"]),
        (304, 0, &v2.headers["etag"])
    );
    let vary: Vec<_> = same.headers.get_all("vary").iter().collect();
    assert_eq!(vary, ["Accept-Encoding", "Accept"]);
    let index = get(&simulator, "/openapi/v3").await.json();
    let url = index["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().unwrap().to_owned();
    let document = get(&simulator, &url).await;
    assert_eq!(document.headers["cache-control"], "public, immutable");
    assert!(document.headers["expires"].to_str().unwrap().ends_with(" UTC"));
    let plain = get(&simulator, "/openapi/v3/apis/apps/v1").await;
    assert_eq!((&plain.body, plain.headers.get("expires")), (&document.body, None));
    let wrong = get(&simulator, "/openapi/v3/apis/apps/v1?hash=0").await;
    assert_eq!(
        (wrong.code.as_u16(), wrong.headers["location"].to_str().unwrap()),
        (301, url.as_str())
    );
}
