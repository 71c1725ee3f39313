//! An identity with permissions in one namespace is enough for that namespace.

use tokio::runtime::Runtime;

use crate::control_plane::{ADMIN, ALICE, ControlPlane};
use crate::h2c::H2c;
use crate::support::Weir;

pub(crate) fn one_namespace() {
    let plane = ControlPlane::start();
    Runtime::new().unwrap().block_on(async {
        let client = crate::churn::client(&plane.kubeconfig(ADMIN)).await;
        for (path, body) in GRANT {
            let request = http::Request::post(path).header("content-type", "application/json");
            client.request_text(request.body(body.into()).unwrap()).await.unwrap();
        }
        let weir = Weir::start(&plane.kubeconfig(ALICE), "");
        let clear = H2c::connect(weir.plain_port()).await;

        let (head, body) =
            clear.get_all("/api/v1/namespaces/team/configmaps?resourceVersion=0").await;
        assert_eq!(head.status(), 200);
        assert_eq!(head.headers()["x-weir-cache"], "hit", "served from a cache of that namespace");
        assert!(String::from_utf8_lossy(&body).contains(r#""name":"theirs""#));
        let (head, body) =
            clear.get_all("/api/v1/namespaces/team/configmaps/theirs?resourceVersion=0").await;
        assert_eq!(
            (head.status().as_u16(), &head.headers()["x-weir-cache"]),
            (200, &"hit".parse().unwrap())
        );
        assert!(body.ends_with(b"\n"));
        let watch = clear.get("/api/v1/namespaces/team/configmaps?watch=1&resourceVersion=0").await;
        assert_eq!(watch.headers()["x-weir-cache"], "hit");

        // The upstream answers requests outside of it.
        for path in [
            "/api/v1/configmaps?resourceVersion=0",
            "/api/v1/namespaces/kube-system/configmaps?resourceVersion=0",
        ] {
            let (head, body) = clear.get_all(path).await;
            assert_eq!(head.status(), 403);
            let text = String::from_utf8_lossy(&body).into_owned();
            assert!(
                text.contains(r#"User \"alice\" cannot list resource \"configmaps\""#),
                "{text}"
            );
        }
    });
}

const GRANT: [(&str, &str); 4] = [
    ("/api/v1/namespaces", r#"{"metadata":{"name":"team"}}"#),
    ("/api/v1/namespaces/team/configmaps", r#"{"metadata":{"name":"theirs"}}"#),
    (
        "/apis/rbac.authorization.k8s.io/v1/namespaces/team/roles",
        r#"{"metadata":{"name":"read"},"rules":[{"apiGroups":[""],"resources":["configmaps"],"verbs":["get","list","watch"]}]}"#,
    ),
    (
        "/apis/rbac.authorization.k8s.io/v1/namespaces/team/rolebindings",
        r#"{"metadata":{"name":"read"},"subjects":[{"kind":"User","name":"alice","apiGroup":"rbac.authorization.k8s.io"}],"roleRef":{"kind":"Role","name":"read","apiGroup":"rbac.authorization.k8s.io"}}"#,
    ),
];
