//! An authorizer whose upstream answers access reviews as a test sets, and counts them.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use prometheus::Registry;
use tokio::sync::watch;

use crate::auth::attributes::Attributes;
use crate::auth::authorizer::Authorizer;
use crate::auth::authorizer::metrics::AuthorizationMetrics;
use crate::auth::rbac::Rbac;
use crate::auth::rbac::testing::TestRbac;
use crate::auth::user::User;
use crate::config::FilteredLists;
use crate::config::{AuthorizationConfig, RbacConfig};
use crate::upstream::testing::{ServerOptions, TestServer, answer};

/// How the upstream answers.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    Allow,
    Deny,
    /// Allows only this user.
    AllowOnly(&'static str),
    /// Allows this number of reviews and denies all later ones.
    AllowFirst(usize),
    Status(&'static str),
    Code(u16),
    /// Does not answer until the reply is changed.
    Pending,
}

/// The authorizer and its upstream.
pub(crate) struct ReviewServer {
    pub(crate) authorizer: Arc<Authorizer>,
    reply: watch::Sender<Reply>,
    /// The bodies of all reviews.
    reviews: Arc<Mutex<Vec<String>>>,
    _server: TestServer,
}

impl ReviewServer {
    pub(crate) async fn start(config: &AuthorizationConfig, reply: Reply) -> Self {
        Self::start_with(config, reply, None).await
    }

    pub(crate) async fn with_rbac(
        config: &AuthorizationConfig,
        reply: Reply,
        rbac: &TestRbac,
    ) -> Self {
        Self::start_with(config, reply, Some(Arc::clone(&rbac.rbac))).await
    }

    async fn start_with(
        config: &AuthorizationConfig,
        reply: Reply,
        rbac: Option<Arc<Rbac>>,
    ) -> Self {
        let (sender, receiver) = watch::channel(reply);
        let reviews = Arc::new(Mutex::new(Vec::new()));
        let received = Arc::clone(&reviews);
        let server = TestServer::start(ServerOptions::http1(), move |request| {
            let (mut reply, received) = (receiver.clone(), Arc::clone(&received));
            async move {
                assert_eq!(request.uri(), "/apis/authorization.k8s.io/v1/subjectaccessreviews");
                let body = request.into_body().collect().await.unwrap().to_bytes();
                let body = String::from_utf8(body.to_vec()).unwrap();
                let count = {
                    let mut received = received.lock();
                    received.push(body.clone());
                    received.len()
                };
                let reply = reply.wait_for(|reply| !matches!(reply, Reply::Pending)).await;
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
                    Reply::Pending => unreachable!(),
                };
                answer(201, format!(r#"{{"kind":"SubjectAccessReview","status":{status}}}"#))
            }
        })
        .await;
        let metrics = AuthorizationMetrics::register(&Registry::new()).unwrap();
        let authorizer = Authorizer::new(config, server.upstream(false).await, rbac, metrics);
        Self { authorizer, reply: sender, reviews, _server: server }
    }

    /// Sets how the upstream answers from now on.
    pub(crate) fn reply(&self, reply: Reply) {
        self.reply.send_replace(reply);
    }

    /// Returns the number of reviews received.
    pub(crate) fn review_count(&self) -> usize {
        self.reviews.lock().len()
    }

    /// Returns the bodies of the reviews received.
    pub(crate) fn bodies(&self) -> Vec<String> {
        self.reviews.lock().clone()
    }
}

pub(crate) fn config(grace: u64) -> AuthorizationConfig {
    AuthorizationConfig {
        filtered_lists: FilteredLists::Off,
        allow_ttl: Duration::from_secs(10),
        deny_ttl: Duration::from_secs(5),
        watch_recheck: None,
        watch_reviews_per_second: 50,
        stale_decision_grace: Duration::from_secs(grace),
        rbac: RbacConfig::default(),
    }
}

pub(crate) fn user(name: &str, groups: &[&str]) -> Arc<User> {
    let groups = groups.iter().map(|&group| group.to_owned()).collect();
    Arc::new(User::new(name.to_owned(), String::new(), groups, std::collections::BTreeMap::new()))
}

pub(crate) fn attributes(uri: &str) -> Attributes {
    let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
    Attributes::from_request(&crate::api::request_info::RequestInfo::parse(
        &http::Method::GET,
        path,
        query,
    ))
}

/// Advances tokio's clock. It is not paused throughout the test, because it would then run ahead of
/// the sockets, which use real time.
pub(crate) async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}
