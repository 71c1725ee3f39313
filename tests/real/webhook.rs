//! A webhook that authorizes before roles: what it decides counts, and Weir no longer decides by
//! roles what it decides otherwise.

use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;

use crate::matrix::{BY_ROLES, with_arguments};
use crate::matrix_suite::users::HOLDERS;
use crate::matrix_suite::world::{Setting, World};
use crate::reviews::confirm;
use crate::suite::run::HIT;
use crate::suite::wire::{Answer, Call, Connection};
use crate::wait::eventually;

/// Every decision of roles is checked, and lists may be filtered.
const FILTERED: Setting = Setting {
    authorization: ", rbac: {enabled: true, checkOneIn: 1}, filteredLists: namespaces",
    ..BY_ROLES
};
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const PATHS: [&str; 4] = [
    "/api/v1/pods?resourceVersion=0",
    "/api/v1/namespaces/a/pods?resourceVersion=0",
    "/api/v1/namespaces/b/pods?resourceVersion=0",
    "/api/v1/namespaces/b/configmaps?resourceVersion=0",
];

/// A webhook denies what roles allow.
pub(crate) fn denies() {
    let is_closed = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&is_closed);
    let webhook = Webhook::start(async move |spec: Value| {
        let attributes = &spec["resourceAttributes"];
        let is_denied = asked.load(Ordering::Relaxed)
            && attributes["namespace"] == "b"
            && attributes["resource"] == "pods";
        json!({"allowed": false, "denied": is_denied, "reason": if is_denied { "closed" } else { "" }})
    });
    webhook.before_roles(FILTERED, async |world| {
        confirm(&world).await;
        is_closed.store(true, Ordering::Relaxed);
        let [mut direct, mut through] = connections(&world, "tom");
        let denied = Call::get(PATHS[2]);
        eventually("Weir learns of the denial", async || {
            let expected = direct.send(&denied).await;
            assert_eq!(expected.status, 403);
            through.send(&denied).await.body == expected.body
        })
        .await;
        eventually("Weir does not decide by roles", async || {
            world.weir.metric("weir_rbac_disabled", &[]) == 1.0
        })
        .await;
        let hits = compare(&world).await;
        assert_eq!(hits, 0, "reviews are forwarded");
    });
}

/// A webhook allows what roles allow, too, and more.
pub(crate) fn allows() {
    let webhook = Webhook::start(async |spec: Value| {
        let is_about_pods = spec["resourceAttributes"]["resource"] == "pods";
        let is_allowed = is_about_pods && (spec["user"] == "tom" || spec["user"] == "nina");
        json!({"allowed": is_allowed, "reason": if is_allowed { "the webhook knows" } else { "" }})
    });
    webhook.before_roles(BY_ROLES, async |world| {
        let [mut direct, mut through] = connections(&world, "tom");
        let review = review("pods", "a");
        for _ in 0..20 {
            let (expected, actual) = (direct.send(&review).await, through.send(&review).await);
            assert_eq!(actual.json()["status"], expected.json()["status"]);
            assert_eq!(expected.json()["status"]["reason"], "the webhook knows");
            assert_ne!(actual.cache(), HIT, "this reason is not one of roles");
        }
        compare(&world).await;
        assert!(world.weir.metric("weir_rbac_disabled", &[]) == 0.0, "no decision was wrong");
        let call = Call::get(PATHS[1]);
        assert_eq!(
            (through.send(&call).await.cache(), direct.send(&call).await.status),
            (HIT, 200)
        );
    });
}

/// Compares what every user is answered with and without Weir. Returns the number of reviews that
/// roles have answered.
async fn compare(world: &World) -> usize {
    let mut hits = 0;
    for (name, _) in HOLDERS {
        let [mut direct, mut through] = connections(world, name);
        for path in PATHS {
            let call = Call::get(path);
            let (expected, actual) = (direct.send(&call).await, through.send(&call).await);
            let comparable = |answer: &Answer| (answer.status, answer.body.clone());
            assert_eq!(comparable(&actual), comparable(&expected), "{name}: {path}");
        }
        for (resource, namespace) in [("pods", "a"), ("pods", "b"), ("configmaps", "b")] {
            let call = review(resource, namespace);
            let (expected, actual) = (direct.send(&call).await, through.send(&call).await);
            let status = |answer: &Answer| answer.json()["status"].clone();
            assert_eq!(status(&actual), status(&expected), "{name}: {resource} in {namespace}");
            hits += usize::from(actual.cache() == HIT);
        }
    }
    hits
}

fn review(resource: &str, namespace: &str) -> Call {
    let attributes = json!({"verb": "list", "resource": resource, "namespace": namespace});
    let body = json!({"kind": "SelfSubjectAccessReview",
        "apiVersion": "authorization.k8s.io/v1", "spec": {"resourceAttributes": attributes}});
    Call::json(Method::POST, REVIEWS, &body)
}

fn connections(world: &World, name: &str) -> [Connection; 2] {
    let token = world.tokens.token_of(name);
    [&world.direct, &world.through].map(|side| side.as_token(&token).connection())
}

/// A webhook that answers SubjectAccessReviews.
pub(crate) struct Webhook {
    /// Has its kubeconfig.
    dir: TempDir,
}

impl Webhook {
    /// Starts it in a thread. `decide` returns the status of the review with a spec.
    pub(crate) fn start(decide: impl AsyncFn(Value) -> Value + Send + 'static) -> Self {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        listener.set_nonblocking(true).unwrap();
        std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            tokio::task::LocalSet::new().block_on(&runtime, serve(listener, decide));
        });
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("kubeconfig"), kubeconfig(address)).unwrap();
        Self { dir }
    }

    /// Returns the arguments of an API server that asks it each time.
    pub(crate) fn arguments(&self) -> [String; 4] {
        let file = self.dir.path().join("kubeconfig");
        [
            format!("--authorization-webhook-config-file={}", file.display()),
            "--authorization-webhook-version=v1".to_owned(),
            "--authorization-webhook-cache-authorized-ttl=0s".to_owned(),
            "--authorization-webhook-cache-unauthorized-ttl=0s".to_owned(),
        ]
    }

    fn before_roles(&self, setting: Setting, test: impl AsyncFnOnce(World)) {
        let mut arguments = vec!["--authorization-mode=Webhook,RBAC".to_owned()];
        arguments.extend(self.arguments());
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        with_arguments(&arguments, setting, test);
    }
}

async fn serve(
    listener: std::net::TcpListener,
    decide: impl AsyncFn(Value) -> Value + Send + 'static,
) {
    let listener = TcpListener::from_std(listener).unwrap();
    let decide = Rc::new(decide);
    loop {
        let (tcp, _) = listener.accept().await.unwrap();
        let decide = Rc::clone(&decide);
        let answer = move |request: Request<Incoming>| answer(request, Rc::clone(&decide));
        let connection = hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(tcp), service_fn(answer));
        tokio::task::spawn_local(async move { drop(connection.await) });
    }
}

async fn answer(
    request: Request<Incoming>,
    decide: Rc<impl AsyncFn(Value) -> Value>,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let body = request.into_body().collect().await?.to_bytes();
    let review: Value = serde_json::from_slice(&body).unwrap();
    let answer = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "status": decide(review["spec"].clone()).await});
    let response = Response::builder().header("content-type", "application/json");
    Ok(response.body(Full::new(answer.to_string().into())).unwrap())
}

fn kubeconfig(webhook: SocketAddr) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: w\n\
         clusters: [{{name: w, cluster: {{server: \"http://{webhook}/authorize\"}}}}]\n\
         users: [{{name: w, user: {{}}}}]\n\
         contexts: [{{name: w, context: {{cluster: w, user: w}}}}]\n"
    )
}
