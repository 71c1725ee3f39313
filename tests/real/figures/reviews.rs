//! The costs of access reviews that roles answer: the 50 of a dashboard's page, and thousands of
//! several users, directly and through Weir.

use std::time::Instant;

use http::Method;
use serde_json::json;
use tokio::task::JoinSet;

use crate::matrix::{BY_ROLES, with};
use crate::matrix_suite::world::{Setting, World};
use crate::reviews::confirm;
use crate::suite::run::HIT;
use crate::suite::wire::{Call, Connection};
use crate::support::sum_metric;

pub(super) fn dashboards() {
    let authorization = ", rbac: {enabled: true}";
    let setting = Setting { authorization, log: "info", ..BY_ROLES };
    with(setting, async |world| {
        confirm(&world).await;
        let token = world.tokens.token_of("tom");
        for (name, side) in [("directly", &world.direct), ("through Weir", &world.through)] {
            let endpoint = side.as_token(&token);
            let mut connection = endpoint.connection();
            send(&mut connection, PAGE).await;
            let (began, hits) = (Instant::now(), send(&mut connection, PAGE).await);
            eprintln!("{PAGE} reviews {name}: {:?}, {hits} from memory", began.elapsed());
            let before = costs(&world).await;
            let mut clients = JoinSet::new();
            for _ in 0..CLIENTS {
                let endpoint = endpoint.clone();
                clients.spawn(
                    async move { send(&mut endpoint.connection(), REVIEWS / CLIENTS).await },
                );
            }
            let hits: usize = clients.join_all().await.into_iter().sum();
            let after = costs(&world).await;
            let [api_server, weir] = [after[0] - before[0], after[1] - before[1]];
            let each = |seconds: f64| seconds * 1e6 / REVIEWS as f64;
            let (api_server, weir) = (each(api_server), each(weir));
            eprintln!(
                "{REVIEWS} reviews {name}: {api_server:.0} us of the API server's CPU each, \
                 {weir:.0} us of Weir's, {hits} from memory"
            );
        }
    });
}

/// Sends reviews one after the other on one connection. Returns how many came from memory.
async fn send(connection: &mut Connection, count: usize) -> usize {
    let mut hits = 0;
    for number in 0..count {
        let verb = ["get", "list", "watch"][number % 3];
        let spec = json!({"resourceAttributes":
            {"verb": verb, "resource": "pods", "namespace": format!("ns-{number}")}});
        let body = json!({"kind": "SelfSubjectAccessReview",
            "apiVersion": "authorization.k8s.io/v1", "spec": spec});
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let answer = connection.send(&Call::json(Method::POST, path, &body)).await;
        assert_eq!(answer.json()["status"]["allowed"], true);
        hits += usize::from(answer.cache() == HIT);
    }
    hits
}

/// Returns the CPU seconds of the API server and of Weir until now.
async fn costs(world: &World) -> [f64; 2] {
    let metrics = world.admin().send(&Call::get("/metrics")).await;
    let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
    let name = "process_cpu_seconds_total";
    [sum_metric(&metrics, name, &[]), world.weir.metric(name, &[])]
}

/// The reviews of a dashboard's page.
const PAGE: usize = 50;
const REVIEWS: usize = 10_000;
const CLIENTS: usize = 10;
