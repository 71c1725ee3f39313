//! The classes of requests, by generated FlowSchemas and priority levels: those that a real API
//! server answers with in its headers are those that Weir finds.

use fastrand::Rng;
use http::Method;
use serde_json::{Value, json};
use weir::api::request_info::RequestInfo;
use weir::flow::level::PriorityLevel;
use weir::flow::plan::Plan;
use weir::flow::schema::FlowSchema;

use crate::control_plane::{ADMIN, ControlPlane};
use crate::suite::objects::create;
use crate::suite::wire::{Answer, Call, Connection, Endpoint};

const GROUP: &str = "/apis/flowcontrol.apiserver.k8s.io/v1";
const PLANS: usize = 20;
/// Requests for each plan.
const REQUESTS: usize = 120;
const UIDS: [&str; 2] = ["x-kubernetes-pf-flowschema-uid", "x-kubernetes-pf-prioritylevel-uid"];

/// Compares all of them.
pub(crate) fn equals_the_upstreams() {
    let plane = ControlPlane::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(compare(&plane.endpoint(ADMIN)));
}

async fn compare(admin: &Endpoint) {
    let mut random = Rng::with_seed(14);
    let mut connection = admin.connection();
    let (mut compared, mut schemas_found) = (0, std::collections::BTreeSet::new());
    for number in 0..PLANS {
        let names = install(&mut connection, number, &mut random).await;
        let plan = current_plan(&mut connection).await;
        for _ in 0..REQUESTS {
            let (user, groups) = pick(&mut random, &USERS);
            let (method, path) = pick(&mut random, &PATHS);
            let answer = connection.send(&by(user, groups, method, path)).await;
            let (path, query) = path.split_once('?').unwrap_or((path, ""));
            let info = RequestInfo::parse(&method.parse::<Method>().unwrap(), path, query);
            let candidates = plan.candidates(user, &all_groups(user, groups));
            let schema = &plan.schemas()[plan.classify(&candidates, &info)];
            let level = plan.level(schema).unwrap();
            let uids = UIDS.map(|name| answer.header(name).to_owned());
            assert_eq!(
                uids,
                [&schema.uid, &level.uid].map(|uid| uid.to_string()),
                "plan {number}: {user} {groups:?} {method} {path} {query}: Weir finds {} ({})",
                schema.name,
                answer.status,
            );
            compared += 1;
            schemas_found.insert((number, schema.name.to_string()));
        }
        for name in names {
            let deleted = connection.send(&Call::new(Method::DELETE, name)).await;
            assert_eq!(deleted.status, 200);
        }
    }
    assert_eq!(compared, PLANS * REQUESTS);
    // The generated schemas matter.
    let of_its_own = schemas_found.iter().filter(|(_, name)| name.starts_with("generated")).count();
    assert!(of_its_own >= 3 * PLANS, "{schemas_found:?}");
    eprintln!("{compared} requests, {} classes of {PLANS} plans", schemas_found.len());
}

/// Creates a plan, and waits until the API server uses it. Returns the paths of its objects.
async fn install(connection: &mut Connection, number: usize, random: &mut Rng) -> Vec<String> {
    let mut paths = Vec::new();
    let mut add = async |resource: &str, object: Value| -> Answer {
        let path = format!("{GROUP}/{resource}");
        let made = create(connection, &path, &object).await;
        paths.push(format!("{path}/{}", object["metadata"]["name"].as_str().unwrap()));
        made
    };
    let levels: Vec<String> = (0..3).map(|level| format!("generated-{number}-{level}")).collect();
    for level in &levels {
        add("prioritylevelconfigurations", level_object(level, random)).await;
    }
    for schema in 0..random.usize(6..12) {
        let name = format!("generated-{number}-{schema}");
        // One of four names a level that does not exist, and matches nothing.
        let missing = "generated-none".to_owned();
        let level = levels.get(random.usize(0..4)).unwrap_or(&missing);
        add("flowschemas", schema_object(&name, level, random)).await;
    }
    let user = format!("sentinel-{number}");
    let sentinel = json!({"metadata": {"name": user}, "spec": {"matchingPrecedence": 3,
        "priorityLevelConfiguration": {"name": levels[0]}, "rules": [{
            "subjects": [{"kind": "User", "user": {"name": user}}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}]}]}});
    let made = add("flowschemas", sentinel).await.json();
    let uid = made["metadata"]["uid"].as_str().unwrap().to_owned();
    let mut tries = 0;
    while connection.send(&by(&user, &[], "GET", "/version")).await.header(UIDS[0]) != uid {
        tries += 1;
        assert!(tries < 600, "the API server does not use its plan");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    paths
}

async fn current_plan(connection: &mut Connection) -> Plan {
    let mut items = async |resource: &str| -> Vec<Vec<u8>> {
        let list = connection.send(&Call::get(format!("{GROUP}/{resource}"))).await.json();
        let items = list["items"].as_array().unwrap();
        items.iter().map(|item| serde_json::to_vec(item).unwrap()).collect()
    };
    let schemas = items("flowschemas").await;
    let levels = items("prioritylevelconfigurations").await;
    Plan::new(
        schemas.iter().map(|json| FlowSchema::parse(json).unwrap()).collect(),
        levels.iter().map(|json| PriorityLevel::parse(json).unwrap()).collect(),
    )
}

fn level_object(name: &str, random: &mut Rng) -> Value {
    let response = if random.bool() {
        json!({"type": "Reject"})
    } else {
        json!({"type": "Queue", "queuing": {"queues": 8, "handSize": 2, "queueLengthLimit": 10}})
    };
    json!({"metadata": {"name": name}, "spec": {"type": "Limited", "limited": {
        "nominalConcurrencyShares": random.u32(1..50), "limitResponse": response}}})
}

fn schema_object(name: &str, level: &str, random: &mut Rng) -> Value {
    let rules: Vec<Value> = (0..random.usize(1..3)).map(|_| rule(random)).collect();
    let mut spec = json!({
        // Few values, so that names decide.
        "matchingPrecedence": pick(random, &[50, 300, 850, 2000]),
        "priorityLevelConfiguration": {"name": level}, "rules": rules});
    let method = pick(random, &["ByUser", "ByNamespace", ""]);
    if !method.is_empty() {
        spec["distinguisherMethod"] = json!({"type": method});
    }
    json!({"metadata": {"name": name}, "spec": spec})
}

fn rule(random: &mut Rng) -> Value {
    let subjects: Vec<Value> = (0..random.usize(1..3)).map(|_| subject(random)).collect();
    let mut rule = json!({"subjects": subjects});
    let has_resources = random.u8(0..4) > 0;
    if has_resources {
        let mut resources = json!({"verbs": some_of(random, &VERBS),
            "apiGroups": some_of(random, &["", "apps", "rbac.authorization.k8s.io"]),
            "resources": some_of(random, &RESOURCES)});
        let is_cluster = random.bool();
        resources["clusterScope"] = is_cluster.into();
        if !is_cluster || random.bool() {
            resources["namespaces"] = some_of(random, &["ns1", "ns2", "default"]);
        }
        rule["resourceRules"] = json!([resources]);
    }
    if !has_resources || random.bool() {
        rule["nonResourceRules"] = json!([{"verbs": some_of(random, &["get", "delete", "patch"]),
            "nonResourceURLs": some_of(random, &URLS)}]);
    }
    rule
}

fn subject(random: &mut Rng) -> Value {
    match random.u8(0..3) {
        0 => json!({"kind": "User",
            "user": {"name": pick(random, &["alice", "bob", "*", ROBOT, "system:anonymous"])}}),
        1 => json!({"kind": "Group", "group": {"name": pick(random,
            &["dev", "ops", "*", "system:serviceaccounts", "system:serviceaccounts:ns1",
                "system:authenticated"])}}),
        _ => json!({"kind": "ServiceAccount", "serviceAccount": {
            "namespace": pick(random, &["ns1", "ns2"]),
            "name": pick(random, &["robot", "other", "*"])}}),
    }
}

/// A list of some of these, or of `*` alone.
fn some_of(random: &mut Rng, choices: &[&str]) -> Value {
    if random.u8(0..4) == 0 {
        return json!(["*"]);
    }
    let mut some: Vec<&str> = choices.iter().copied().filter(|_| random.u8(0..3) == 0).collect();
    if some.is_empty() {
        some.push(pick(random, choices));
    }
    json!(some)
}

fn pick<T: Copy>(random: &mut Rng, choices: &[T]) -> T {
    choices[random.usize(0..choices.len())]
}

fn by(user: &str, groups: &[&str], method: &str, path: &str) -> Call {
    let call = Call::new(method.parse().unwrap(), path).header("impersonate-user", user);
    groups.iter().fold(call, |call, group| call.header("impersonate-group", group))
}

/// The groups that the API server adds to those of an impersonated user.
fn all_groups(user: &str, given: &[&str]) -> Vec<String> {
    let mut groups: Vec<String> = given.iter().map(|group| (*group).to_owned()).collect();
    if let Some(account) = user.strip_prefix("system:serviceaccount:").filter(|_| given.is_empty())
    {
        let namespace = account.split(':').next().unwrap();
        groups.push("system:serviceaccounts".to_owned());
        groups.push(format!("system:serviceaccounts:{namespace}"));
    }
    groups.push("system:authenticated".to_owned());
    groups
}

const ROBOT: &str = "system:serviceaccount:ns1:robot";
const USERS: [(&str, &[&str]); 9] = [
    ("alice", &[]),
    ("alice", &["dev"]),
    ("bob", &["dev", "ops"]),
    ("bob", &["system:nodes"]),
    ("carol", &[]),
    (ROBOT, &[]),
    ("system:serviceaccount:ns1:other", &[]),
    ("system:serviceaccount:ns2:robot", &[]),
    ("system:serviceaccount:ns1:robot-2", &[]),
];
const VERBS: [&str; 8] =
    ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];
const RESOURCES: [&str; 12] = [
    "pods",
    "pods/status",
    "pods/*",
    "*/status",
    "deployments",
    "deployments/scale",
    "nodes",
    "nodes/status",
    "namespaces",
    "clusterroles",
    "configmaps",
    "serviceaccounts/token",
];
const URLS: [&str; 9] = [
    "/healthz",
    "/version",
    "/api",
    "/apis",
    "/apis/*",
    "/api/*",
    "/openapi/*",
    "/readyz/*",
    "/metrics",
];
const PATHS: [(&str, &str); 46] = [
    ("GET", "/api/v1/pods"),
    ("GET", "/api/v1/pods?watch=1"),
    ("GET", "/api/v1/watch/pods"),
    ("GET", "/api/v1/namespaces/ns1/pods"),
    ("GET", "/api/v1/namespaces/ns2/pods?watch=true"),
    ("GET", "/api/v1/namespaces/ns1/pods/x"),
    ("GET", "/api/v1/namespaces/ns1/pods/x/status"),
    ("PUT", "/api/v1/namespaces/ns1/pods/x/status"),
    ("PATCH", "/api/v1/namespaces/ns2/pods/x/status"),
    ("POST", "/api/v1/namespaces/ns1/pods"),
    ("POST", "/api/v1/namespaces/ns1/pods/x/eviction"),
    ("POST", "/api/v1/namespaces/ns1/pods/x/binding"),
    ("PUT", "/api/v1/namespaces/default/pods/x"),
    ("PATCH", "/api/v1/namespaces/default/pods/x"),
    ("DELETE", "/api/v1/namespaces/ns1/pods/x"),
    ("DELETE", "/api/v1/namespaces/ns1/pods"),
    ("DELETE", "/api/v1/namespaces/ns2/configmaps"),
    ("GET", "/api/v1/configmaps"),
    ("GET", "/api/v1/namespaces/ns2/configmaps/x"),
    ("POST", "/api/v1/namespaces/ns1/serviceaccounts/x/token"),
    ("GET", "/api/v1/nodes"),
    ("GET", "/api/v1/nodes/x"),
    ("PATCH", "/api/v1/nodes/x/status"),
    ("GET", "/api/v1/namespaces"),
    ("GET", "/api/v1/namespaces/ns1"),
    ("PUT", "/api/v1/namespaces/ns1/status"),
    ("PUT", "/api/v1/namespaces/ns1/finalize"),
    ("GET", "/apis/apps/v1/deployments"),
    ("GET", "/apis/apps/v1/namespaces/ns1/deployments/x"),
    ("GET", "/apis/apps/v1/namespaces/ns1/deployments/x/scale"),
    ("PATCH", "/apis/apps/v1/namespaces/ns2/deployments/x/scale"),
    ("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles"),
    ("POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles"),
    ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/readyz/ping"),
    ("GET", "/version"),
    ("GET", "/api"),
    ("GET", "/api/v1"),
    ("GET", "/apis"),
    ("GET", "/apis/apps/v1"),
    ("GET", "/openapi/v2"),
    ("GET", "/metrics"),
    ("DELETE", "/version"),
    ("PATCH", "/apis/none"),
];
