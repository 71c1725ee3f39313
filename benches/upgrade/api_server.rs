//! The API server, a simulator or a real one: its objects and users, and the requests that it got.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use weir::simulator::{Simulator, SimulatorOptions, User};

use crate::args::Args;
use crate::client::{Call, Client, Endpoint};
use crate::objects::{NAMESPACE, RESOURCES, TICKER};

pub(crate) struct ApiServer {
    /// `None` if it is a real one.
    simulator: Option<Simulator>,
    endpoint: Endpoint,
    token: String,
    ca: String,
}

/// Lists and watches that an API server ever got, by resource.
#[derive(Default)]
pub(crate) struct Counts(BTreeMap<&'static str, [u64; 2]>);

impl Counts {
    /// Returns the lists and the watches of a resource since an earlier count.
    pub(crate) fn since(&self, earlier: &Self, resource: &str) -> [u64; 2] {
        let counts_of = |counts: &Self| counts.0.get(resource).copied().unwrap_or_default();
        let ([lists, watches], [lists_before, watches_before]) =
            (counts_of(self), counts_of(earlier));
        [lists.saturating_sub(lists_before), watches.saturating_sub(watches_before)]
    }
}

impl ApiServer {
    pub(crate) async fn start(args: &Args) -> Self {
        let token = args.token.clone();
        let Some(url) = &args.upstream else {
            let users = vec![User::admin(&token, "admin")];
            let options = SimulatorOptions { tls: true, users, ..SimulatorOptions::default() };
            let simulator = Simulator::start(options).await.expect("a simulator");
            let ca = simulator.ca_pem().expect("TLS").to_owned();
            let endpoint = Endpoint::new(simulator.address(), &ca);
            return Self { simulator: Some(simulator), endpoint, token, ca };
        };
        let address =
            url.strip_prefix("https://").and_then(|address| address.parse::<SocketAddr>().ok());
        let ca = args.upstream_ca.as_ref().map(std::fs::read_to_string);
        let ca = ca.expect("--upstream-ca").expect("a readable file");
        let endpoint = Endpoint::new(address.expect("https://ADDRESS:PORT"), &ca);
        Self { simulator: None, endpoint, token, ca }
    }

    /// Returns the kubeconfig of its administrator.
    pub(crate) fn kubeconfig(&self) -> String {
        use base64::Engine as _;
        let ca = base64::engine::general_purpose::STANDARD.encode(&self.ca);
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "upgrade",
            "clusters": [{"name": "upgrade", "cluster": {
                "server": format!("https://{}", self.endpoint.address),
                "certificate-authority-data": ca}}],
            "users": [{"name": "upgrade", "user": {"token": self.token}}],
            "contexts": [{"name": "upgrade", "context": {"cluster": "upgrade", "user": "upgrade"}}],
        })
        .to_string()
    }

    /// Creates the objects, and service accounts that may read and patch them. Returns a token of
    /// each account.
    pub(crate) async fn fill(&self, users: usize, objects: usize) -> Vec<String> {
        let mut client = self.client();
        let namespace = json!({"metadata": {"name": NAMESPACE}});
        create(&mut client, "/api/v1/namespaces", &namespace).await;
        for resource in &RESOURCES {
            let names = (0..objects).map(|number| format!("quiet-{number}"));
            for name in names.chain([TICKER.to_owned()]) {
                create(&mut client, &resource.namespaced(), &resource.object(&name)).await;
            }
        }
        let rbac = "/apis/rbac.authorization.k8s.io/v1";
        let role = json!({"metadata": {"name": "upgrade"}, "rules": [{
            "apiGroups": ["*"], "verbs": ["get", "list", "watch", "patch"],
            "resources": RESOURCES.each_ref().map(|resource| resource.plural)}]});
        create(&mut client, &format!("{rbac}/clusterroles"), &role).await;
        let group = format!("system:serviceaccounts:{NAMESPACE}");
        let binding = json!({"metadata": {"name": "upgrade"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "upgrade"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}]});
        create(&mut client, &format!("{rbac}/clusterrolebindings"), &binding).await;
        let accounts = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts");
        let mut tokens = Vec::new();
        for number in 0..users {
            let name = format!("user-{number}");
            create(&mut client, &accounts, &json!({"metadata": {"name": name}})).await;
            let request = json!({"spec": {"expirationSeconds": 7200}});
            let path = format!("{accounts}/{name}/token");
            let token = create(&mut client, &path, &request).await;
            let token = token.pointer("/status/token").and_then(Value::as_str);
            tokens.push(token.expect("a token").to_owned());
        }
        tokens
    }

    /// Returns the lists and watches of all namespaces that it ever got.
    pub(crate) async fn counts(&self) -> Counts {
        if let Some(simulator) = &self.simulator {
            let requests = |verb: &str, resource: &str| simulator.requests().count(verb, resource);
            let both =
                |resource: &'static str| [requests("list", resource), requests("watch", resource)];
            return Counts(
                RESOURCES.iter().map(|resource| (resource.plural, both(resource.plural))).collect(),
            );
        }
        let call = Call::get("/metrics".to_owned());
        let (code, body) = self.client().fetch(&call).await.expect("metrics");
        assert!(code.is_success(), "{code}");
        let text = String::from_utf8_lossy(&body);
        let both = |resource: &'static str| {
            let sum = |name: &str, verb: &str| {
                let labels = [
                    format!("verb=\"{verb}\""),
                    format!("resource=\"{resource}\""),
                    r#"scope="cluster""#.to_owned(),
                ];
                sum(&text, name, &labels)
            };
            let ended = sum("apiserver_request_total{", "WATCH");
            let open = sum("apiserver_longrunning_requests{", "WATCH");
            [sum("apiserver_request_total{", "LIST"), ended + open]
        };
        Counts(RESOURCES.iter().map(|resource| (resource.plural, both(resource.plural))).collect())
    }

    /// Prints the lists and watches of all namespaces among the last requests of a simulator.
    pub(crate) fn print_requests(&self) {
        let Some(simulator) = &self.simulator else { return };
        for request in simulator.requests().recent() {
            if matches!(request.verb.as_str(), "list" | "watch")
                && RESOURCES.iter().any(|resource| resource.path() == request.path)
            {
                println!("  {} {}?{}", request.verb, request.path, request.query);
            }
        }
    }

    fn client(&self) -> Client {
        Client::new(self.endpoint.clone(), &self.token)
    }
}

async fn create(client: &mut Client, path: &str, object: &Value) -> Value {
    let call = Call {
        method: Method::POST,
        path: path.to_owned(),
        content_type: "application/json",
        body: Bytes::from(object.to_string()),
    };
    let (code, body) = client.fetch(&call).await.expect("an answer");
    assert!(code.is_success(), "POST {path}: {code} {}", String::from_utf8_lossy(&body));
    serde_json::from_slice(&body).expect("JSON")
}

/// Sums the series of a metric that have all the labels.
fn sum(text: &str, name: &str, labels: &[String]) -> u64 {
    let lines = text.lines().filter(|line| line.starts_with(name));
    let lines = lines.filter(|line| labels.iter().all(|label| line.contains(label.as_str())));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}
