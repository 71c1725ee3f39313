//! RBAC whose roles and bindings a test sets, without an upstream.

use std::sync::Arc;
use std::time::Duration;

use prometheus::Registry;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::auth::rbac::check::Checks;
use crate::auth::rbac::metrics::RbacMetrics;
use crate::auth::rbac::policy::Policy;
use crate::auth::rbac::resource::RbacResource;
use crate::auth::rbac::state::RbacState;
use crate::auth::rbac::{Rbac, ReasonChecks};

/// Checks every allowed request. Not valid before [`list`](TestRbac::list).
pub(crate) struct TestRbac {
    pub(crate) rbac: Arc<Rbac>,
}

impl TestRbac {
    pub(crate) fn new() -> Self {
        let metrics = RbacMetrics::register(&Registry::new()).unwrap();
        let state = Arc::new(RbacState::new(metrics.clone()));
        let tasks = CancellationToken::new().drop_guard();
        let reasons = ReasonChecks { checks: Checks::new(1), are_confirmed: false.into() };
        let checks = Checks::new(1);
        Self { rbac: Arc::new(Rbac { state, checks, reasons, metrics, _tasks: tasks }) }
    }

    /// Makes the copy valid and empty: no user may do anything.
    pub(crate) fn list(&self) {
        for resource in RbacResource::ALL {
            self.rbac.state.change(resource, |writer| writer.replace(resource, [].into()));
            let long = Instant::now() + Duration::from_secs(24 * 3600);
            self.rbac.state.set_valid_until(resource, Some(long));
        }
    }

    /// Makes the copy valid again.
    pub(crate) fn validate(&self) {
        let long = Instant::now() + Duration::from_secs(24 * 3600);
        self.rbac.state.set_valid_until(RbacResource::Roles, Some(long));
    }

    /// Makes the copy invalid.
    pub(crate) fn invalidate(&self) {
        self.rbac.state.set_valid_until(RbacResource::Roles, None);
    }

    /// Allows a user to read pods everywhere.
    pub(crate) fn grant(&self, user: &str) {
        let role = r#"{"rules":[{"verbs":["*"],"apiGroups":[""],"resources":["pods"]}]}"#;
        self.put(RbacResource::ClusterRoles, "", "pods", role);
        self.put(RbacResource::ClusterRoleBindings, "", user, &binding(user));
    }

    /// Allows a user to read pods in a namespace.
    pub(crate) fn grant_in(&self, namespace: &str, user: &str) {
        let role = r#"{"rules":[{"verbs":["*"],"apiGroups":[""],"resources":["pods"]}]}"#;
        self.put(RbacResource::ClusterRoles, "", "pods", role);
        self.put(RbacResource::RoleBindings, namespace, user, &binding(user));
    }

    /// Removes what [`grant_in`](Self::grant_in) gave to a user.
    pub(crate) fn revoke_in(&self, namespace: &str, user: &str) {
        let bindings = RbacResource::RoleBindings;
        self.rbac.state.change(bindings, |writer| writer.remove(bindings, namespace, user));
    }

    /// Removes what [`grant`](Self::grant) gave to a user.
    pub(crate) fn revoke(&self, user: &str) {
        let bindings = RbacResource::ClusterRoleBindings;
        self.rbac.state.change(bindings, |writer| writer.remove(bindings, "", user));
    }

    fn put(&self, resource: RbacResource, namespace: &str, name: &str, json: &str) {
        let policy = Policy::parse(resource, namespace, json.as_bytes());
        assert_ne!(policy, Policy::Unreadable);
        let key = (namespace.into(), name.into());
        self.rbac.state.change(resource, |writer| writer.put_policy(resource, key, policy));
    }
}

fn binding(user: &str) -> String {
    format!(
        r#"{{"subjects":[{{"kind":"User","name":"{user}"}}],"roleRef":{{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"pods"}}}}"#
    )
}
