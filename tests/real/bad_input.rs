//! Malformed requests get the upstream's own responses, and Weir keeps serving.

use tokio::runtime::Runtime;

use crate::control_plane::{ADMIN, ControlPlane};
use crate::h2c::H2c;
use crate::support::Weir;

pub(crate) fn answers() {
    let plane = ControlPlane::start();
    let mut weir = Weir::start(&plane.kubeconfig(ADMIN), "");
    Runtime::new().unwrap().block_on(async {
        let clear = H2c::connect(weir.plain_port()).await;
        for query in QUERIES {
            let path = format!("/api/v1/configmaps?{query}");
            let (head, body) = clear.get_all(&path).await;
            let direct = plane.get(&path).unwrap();
            assert_eq!(String::from_utf8_lossy(&body), direct, "{path}");
            let status: serde_json::Value = serde_json::from_str(&direct).unwrap();
            assert_eq!(status["code"], head.status().as_u16(), "{path}");
        }
        for path in [
            "/api/v1/nonsense",
            "/apis/no.such/v1/things",
            "/api/v1/namespaces/x/configmaps/a%25b",
            "/nowhere",
        ] {
            let (_, body) = clear.get_all(path).await;
            assert_eq!(String::from_utf8_lossy(&body), plane.get(path).unwrap(), "{path}");
        }
    });
    assert_eq!(weir.stop(), Some(0));
}

/// Releases differ in the codes: an unreadable resourceVersion of a list is 500 in 1.31 and 400 in
/// 1.36.
const QUERIES: [&str; 9] = [
    "labelSelector=a%3Db%3Dc&resourceVersion=0",
    "fieldSelector=spec.x%3D1&resourceVersion=0",
    "resourceVersion=abc",
    "limit=abc&resourceVersion=0",
    "resourceVersionMatch=Exact&resourceVersion=0",
    "sendInitialEvents=true&resourceVersion=0",
    "watch=1&resourceVersion=abc",
    "watch=1&sendInitialEvents=true&resourceVersion=0",
    "continue=!!!&resourceVersion=0",
];
