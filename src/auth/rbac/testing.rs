//! RBAC that a test tells of roles and bindings, in place of the upstream's watches.

use std::sync::Arc;
use std::time::Duration;

use prometheus::Registry;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::auth::rbac::Rbac;
use crate::auth::rbac::check::Checks;
use crate::auth::rbac::known::Known;
use crate::auth::rbac::policy::Policy;
use crate::auth::rbac::resource::RbacResource;
use crate::telemetry::auth_metrics::rbac::RbacMetrics;

/// Nothing is known before [`list`](Told::list). Everything that is allowed is checked.
pub(crate) struct Told {
    pub(crate) rbac: Arc<Rbac>,
}

impl Told {
    pub(crate) fn new() -> Self {
        let metrics = RbacMetrics::register(&Registry::new()).unwrap();
        let known = Arc::new(Known::new(metrics.clone()));
        let tasks = CancellationToken::new().drop_guard();
        Self { rbac: Arc::new(Rbac { known, checks: Checks::new(1), metrics, _tasks: tasks }) }
    }

    /// The whole state is known: nobody may do anything.
    pub(crate) fn list(&self) {
        for resource in RbacResource::ALL {
            self.rbac.known.change(resource, |writer| writer.replace(resource, [].into()));
            let long = Instant::now() + Duration::from_secs(24 * 3600);
            self.rbac.known.rely_until(resource, Some(long));
        }
    }

    /// What is known may not be relied on any more.
    pub(crate) fn lose(&self) {
        self.rbac.known.rely_until(RbacResource::Roles, None);
    }

    /// Who of this name may read pods everywhere, from now on.
    pub(crate) fn grant(&self, user: &str) {
        let role = r#"{"rules":[{"verbs":["*"],"apiGroups":[""],"resources":["pods"]}]}"#;
        self.put(RbacResource::ClusterRoles, "pods", role);
        let binding = format!(
            r#"{{"subjects":[{{"kind":"User","name":"{user}"}}],"roleRef":{{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"pods"}}}}"#
        );
        self.put(RbacResource::ClusterRoleBindings, user, &binding);
    }

    /// No longer.
    pub(crate) fn revoke(&self, user: &str) {
        let bindings = RbacResource::ClusterRoleBindings;
        self.rbac.known.change(bindings, |writer| writer.remove(bindings, "", user));
    }

    fn put(&self, resource: RbacResource, name: &str, json: &str) {
        let policy = Policy::read(resource, "", json.as_bytes());
        assert_ne!(policy, Policy::Unreadable);
        let key = ("".into(), name.into());
        self.rbac.known.change(resource, |writer| writer.put_policy(resource, key, policy));
    }
}
