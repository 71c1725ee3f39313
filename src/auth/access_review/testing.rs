//! An upstream that answers access reviews as a test says, and counts them.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use prometheus::Registry;
use tokio::sync::watch;

use crate::auth::attributes::Attributes;
use crate::auth::authorizer::Authorizer;
use crate::auth::rbac::Rbac;
use crate::auth::rbac::testing::Told;
use crate::auth::user::User;
use crate::config::AuthorizationConfig;
use crate::telemetry::auth_metrics::authorization::AuthorizationMetrics;
use crate::upstream::testing::{Speaks, TestServer, answer};

/// What it answers from now on.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    Allow,
    Deny,
    /// Allowed for this user alone, as the body says who asks.
    AllowOnly(&'static str),
    /// Allowed for so many that came first, as they came.
    AllowFirst(usize),
    Status(&'static str),
    Code(u16),
    /// Nothing, until it is told something else.
    Hold,
}

pub(crate) struct Script {
    pub(crate) authorizer: Arc<Authorizer>,
    reply: watch::Sender<Reply>,
    asked: Arc<Mutex<Vec<String>>>,
    _server: TestServer,
}

impl Script {
    pub(crate) async fn start(config: &AuthorizationConfig, reply: Reply) -> Self {
        Self::with(config, reply, None).await
    }

    pub(crate) async fn with_rbac(config: &AuthorizationConfig, reply: Reply, told: &Told) -> Self {
        Self::with(config, reply, Some(Arc::clone(&told.rbac))).await
    }

    async fn with(config: &AuthorizationConfig, reply: Reply, rbac: Option<Arc<Rbac>>) -> Self {
        let (sender, receiver) = watch::channel(reply);
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&asked);
        let server = TestServer::start(Speaks::http1(), move |request| {
            let (mut reply, seen) = (receiver.clone(), Arc::clone(&seen));
            async move {
                assert_eq!(request.uri(), "/apis/authorization.k8s.io/v1/subjectaccessreviews");
                let body = request.into_body().collect().await.unwrap().to_bytes();
                let body = String::from_utf8(body.to_vec()).unwrap();
                let count = {
                    let mut seen = seen.lock();
                    seen.push(body.clone());
                    seen.len()
                };
                let reply = reply.wait_for(|reply| !matches!(reply, Reply::Hold)).await;
                let status = match reply.unwrap().clone() {
                    Reply::Allow => r#"{"allowed":true,"reason":"RBAC: a role"}"#.to_owned(),
                    Reply::Deny => r#"{"allowed":false,"reason":"no role"}"#.to_owned(),
                    Reply::AllowOnly(user) => {
                        format!(
                            r#"{{"allowed":{}}}"#,
                            body.contains(&format!(r#""user":"{user}""#))
                        )
                    }
                    Reply::AllowFirst(first) => format!(r#"{{"allowed":{}}}"#, count <= first),
                    Reply::Status(status) => status.to_owned(),
                    Reply::Code(code) => return answer(code, "no"),
                    Reply::Hold => unreachable!(),
                };
                answer(201, format!(r#"{{"kind":"SubjectAccessReview","status":{status}}}"#))
            }
        })
        .await;
        let metrics = AuthorizationMetrics::register(&Registry::new()).unwrap();
        let authorizer = Authorizer::new(config, server.upstream(false).await, rbac, metrics);
        Self { authorizer, reply: sender, asked, _server: server }
    }

    pub(crate) fn reply(&self, reply: Reply) {
        self.reply.send_replace(reply);
    }

    /// How many reviews arrived so far.
    pub(crate) fn asked(&self) -> usize {
        self.asked.lock().len()
    }

    /// Their bodies.
    pub(crate) fn bodies(&self) -> Vec<String> {
        self.asked.lock().clone()
    }
}

pub(crate) fn config(grace: u64) -> AuthorizationConfig {
    AuthorizationConfig {
        allow_ttl: Duration::from_secs(10),
        deny_ttl: Duration::from_secs(5),
        watch_recheck: None,
        stale_decision_grace: Duration::from_secs(grace),
        rbac: None,
    }
}

pub(crate) fn user(name: &str, groups: &[&str]) -> Arc<User> {
    let groups = groups.iter().map(|&group| group.to_owned()).collect();
    Arc::new(User::new(name.to_owned(), String::new(), groups, std::collections::BTreeMap::new()))
}

pub(crate) fn attributes(uri: &str) -> Attributes {
    let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
    Attributes::of(&crate::api::request_info::RequestInfo::parse(&http::Method::GET, path, query))
}

/// Lets time pass for Weir, while sockets go on in real time: a clock that is paused throughout would run ahead of them.
pub(crate) async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

/// Waits for a condition.
pub(crate) async fn until(mut condition: impl FnMut() -> bool) {
    while !condition() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
