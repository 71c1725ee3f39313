//! The four resources of `rbac.authorization.k8s.io/v1`.

use crate::api::labels::Label;
use crate::api::resource::GroupVersionResource;

crate::api::labels! {
    /// One of these resources.
    pub enum RbacResource {
        /// `clusterroles`.
        ClusterRoles = "clusterroles",
        /// `roles`.
        Roles = "roles",
        /// `clusterrolebindings`.
        ClusterRoleBindings = "clusterrolebindings",
        /// `rolebindings`.
        RoleBindings = "rolebindings",
    }
}

impl RbacResource {
    /// Returns the group, version and resource.
    pub fn gvr(self) -> GroupVersionResource {
        GroupVersionResource::new(GROUP, "v1", self.as_str())
    }
}

/// A value for each resource.
#[derive(Clone, Debug, Default)]
pub(super) struct PerResource<T>([T; RbacResource::ALL.len()]);

#[expect(clippy::indexing_slicing, reason = "there is one for each resource")]
impl<T> PerResource<T> {
    /// Returns the value of a resource.
    pub(super) fn get(&self, resource: RbacResource) -> &T {
        &self.0[resource.index()]
    }

    /// Returns the mutable value of a resource.
    pub(super) fn get_mut(&mut self, resource: RbacResource) -> &mut T {
        &mut self.0[resource.index()]
    }

    /// Returns whether `holds` is true for the values of all resources.
    pub(super) fn all_satisfy(&self, holds: impl Fn(&T) -> bool) -> bool {
        self.0.iter().all(holds)
    }
}

/// The API group.
const GROUP: &str = "rbac.authorization.k8s.io";
