//! Flow control by the FlowSchemas of a real API server.

use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;

use crate::figures::tokens::SETTING;
use crate::matrix::with;
use crate::matrix_suite::world::{Setting, mint};
use crate::suite::objects::create;
use crate::suite::wire::{Answer, Call, Endpoint};
use crate::wait::eventually;

const GROUP: &str = "/apis/flowcontrol.apiserver.k8s.io/v1";
const LIST: &str = "/api/v1/namespaces/a/configmaps";
const UIDS: [&str; 2] = ["x-kubernetes-pf-flowschema-uid", "x-kubernetes-pf-prioritylevel-uid"];

/// A FlowSchema that is created while Weir runs puts a user into a level without queues. Weir
/// refuses what finds no seats there, with the uids that the API server answers with.
pub(crate) fn refusals() {
    let authorization = "}\nflowControl: {mode: enforce, seatsPerServer: 40";
    with(Setting { authorization, ..SETTING }, async |world| {
        let admin = world.admin();
        let mut connection = admin.connection();
        permit(&admin).await;
        let level = json!({"metadata": {"name": "jail"}, "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": 0, "borrowingLimitPercent": 0,
            "limitResponse": {"type": "Reject"}}}});
        create(&mut connection, &format!("{GROUP}/prioritylevelconfigurations"), &level).await;
        let rules = json!([{
            "subjects": [{"kind": "ServiceAccount",
                "serviceAccount": {"namespace": "a", "name": "jailed"}}],
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"],
                "namespaces": ["*"]}],
        }]);
        let schema = json!({"metadata": {"name": "jail"}, "spec": {"matchingPrecedence": 50,
            "priorityLevelConfiguration": {"name": "jail"}, "rules": rules}});
        create(&mut connection, &format!("{GROUP}/flowschemas"), &schema).await;
        let account = json!({"metadata": {"name": "jailed"}});
        create(&mut connection, "/api/v1/namespaces/a/serviceaccounts", &account).await;
        let token = mint(&admin, "a", "jailed").await;

        // Any status has them, but 401.
        let direct = world.direct.as_token(&token).send(&Call::get(LIST)).await;
        let uids = UIDS.map(|name| direct.header(name).to_owned());
        assert!(uids.iter().all(|uid| !uid.is_empty()), "{}", direct.status);
        let through = world.through.as_token(&token);
        eventually("Weir refuses by the new schema", async || {
            let refused = crowd(&through).await.into_iter().find(is_shed);
            refused.is_some_and(|refused| {
                assert_eq!(refused.status, 429);
                UIDS.map(|name| refused.header(name).to_owned()) == uids
                    && refused.header("x-weir-shed") == "concurrency-limit"
            })
        })
        .await;
    });
}

/// Lets Weir read the objects, as `deploy/` does.
pub(crate) async fn permit(admin: &Endpoint) {
    let group = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({"metadata": {"name": "flow-control"}, "rules": [{
        "apiGroups": ["flowcontrol.apiserver.k8s.io"], "verbs": ["list", "watch"],
        "resources": ["flowschemas", "prioritylevelconfigurations"]}]});
    create(&mut admin.connection(), &format!("{group}/clusterroles"), &role).await;
    let binding = json!({
        "metadata": {"name": "flow-control"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
            "name": "flow-control"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "weir"}],
    });
    create(&mut admin.connection(), &format!("{group}/clusterrolebindings"), &binding).await;
}

fn is_shed(answer: &Answer) -> bool {
    !answer.header("x-weir-shed").is_empty()
}

/// Sends many lists at once.
async fn crowd(endpoint: &Endpoint) -> Vec<Answer> {
    let mut crowd = JoinSet::new();
    for _ in 0..40 {
        let endpoint = endpoint.clone();
        crowd.spawn(async move { endpoint.send(&Call::get(LIST)).await });
    }
    let answers = crowd.join_all().await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    answers
}
