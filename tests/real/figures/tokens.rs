//! Users of the figures: service accounts, and a gateway that has the default times.

use std::time::Duration;

use serde_json::json;

use crate::matrix_suite::world::{ForwardedIdentity, Setting, mint};
use crate::suite::objects::create;
use crate::suite::wire::Endpoint;

/// Creates a service account that may do everything in its namespace; returns its token.
pub(super) async fn account(admin: &Endpoint, name: &str) -> String {
    create(&mut admin.connection(), ACCOUNTS_PATH, &json!({"metadata": {"name": name}})).await;
    let binding = json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
            "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "a"}],
    });
    let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/a/rolebindings";
    create(&mut admin.connection(), bindings, &binding).await;
    mint(admin, "a", name).await
}

/// A gateway that has the default times.
pub(crate) const SETTING: Setting = Setting {
    forwarded_identity: ForwardedIdentity::FrontProxy,
    // The default of `tokens.ttl`.
    cache_ttl: Duration::from_secs(5),
    watch_recheck: Duration::from_secs(10),
    log: "info",
    authorization: "",
};

const ACCOUNTS_PATH: &str = "/api/v1/namespaces/a/serviceaccounts";
