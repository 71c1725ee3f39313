//! Kubelets before Weir before a kube-apiserver with the authorizers Node and RBAC and the
//! admission plug-in NodeRestriction.
//!
//! Weir has the configuration and the roles of `deploy/static-pod`, and Secrets in its role. Access
//! reviews decide, since roles and bindings say nothing of what the authorizer Node allows: it
//! follows which pods are bound to a node, and which objects these reference.

mod compare;
mod figures;
mod grants;
mod kubelet;
mod report;
mod testbed;

use std::time::Duration;

use tokio::runtime::Runtime;

use self::grants::Bounds;
use self::testbed::{Testbed, fill_node, node_name};

pub(crate) use self::figures::rehearsal;

/// Two kubelets get what kube-apiserver gives them, and no more.
pub(crate) fn kubelets() {
    let testbed = Testbed::start(SHORT_TIMES);
    Runtime::new().unwrap().block_on(async {
        let [one, other] = [0, 1].map(node_name);
        for node in [&one, &other] {
            fill_node(&testbed.admin(), node).await;
        }
        let equal =
            compare::allowed(&testbed, &one).await + compare::refused(&testbed, &one, &other).await;
        assert!(equal > 80, "{equal} comparisons");
        let bounds = Bounds { denied: SHORT_PERIOD, allowed: SHORT_PERIOD };
        let times = grants::come_and_go(&testbed, &one, bounds).await;
        eprintln!("a new secret, after kube-apiserver: {times}");
    });
}

/// Short enough that a test can wait for it.
const SHORT_PERIOD: Duration = Duration::from_secs(2);
const SHORT_TIMES: &str = "authorization: {allowTTL: 2s, watchRecheck: 2s}\n";
