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

    /// Makes the copy invalid.
    pub(crate) fn invalidate(&self) {
        self.rbac.state.set_valid_until(RbacResource::Roles, None);
    }

    /// Allows a user to read pods everywhere.
    pub(crate) fn grant(&self, user: &str) {
        let role = r#"{"rules":[{"verbs":["*"],"apiGroups":[""],"resources":["pods"]}]}"#;
        self.put(RbacResource::ClusterRoles, "pods", role);
        let binding = format!(
            r#"{{"subjects":[{{"kind":"User","name":"{user}"}}],"roleRef":{{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"pods"}}}}"#
        );
        self.put(RbacResource::ClusterRoleBindings, user, &binding);
    }

    /// Removes what [`grant`](Self::grant) gave to a user.
    pub(crate) fn revoke(&self, user: &str) {
        let bindings = RbacResource::ClusterRoleBindings;
        self.rbac.state.change(bindings, |writer| writer.remove(bindings, "", user));
    }

    fn put(&self, resource: RbacResource, name: &str, json: &str) {
        let policy = Policy::parse(resource, "", json.as_bytes());
        assert_ne!(policy, Policy::Unreadable);
        let key = ("".into(), name.into());
        self.rbac.state.change(resource, |writer| writer.put_policy(resource, key, policy));
    }
}
