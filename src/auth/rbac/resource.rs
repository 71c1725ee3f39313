//! The four resources of `rbac.authorization.k8s.io/v1`.

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
pub(super) struct PerResource<T> {
    roles: T,
    cluster_roles: T,
    role_bindings: T,
    cluster_role_bindings: T,
}

impl<T> PerResource<T> {
    /// Returns the value of a resource.
    pub(super) fn get(&self, resource: RbacResource) -> &T {
        match resource {
            RbacResource::Roles => &self.roles,
            RbacResource::ClusterRoles => &self.cluster_roles,
            RbacResource::RoleBindings => &self.role_bindings,
            RbacResource::ClusterRoleBindings => &self.cluster_role_bindings,
        }
    }

    /// Returns the mutable value of a resource.
    pub(super) fn get_mut(&mut self, resource: RbacResource) -> &mut T {
        match resource {
            RbacResource::Roles => &mut self.roles,
            RbacResource::ClusterRoles => &mut self.cluster_roles,
            RbacResource::RoleBindings => &mut self.role_bindings,
            RbacResource::ClusterRoleBindings => &mut self.cluster_role_bindings,
        }
    }

    /// Returns whether `holds` is true for the values of all resources.
    pub(super) fn all_satisfy(&self, holds: impl Fn(&T) -> bool) -> bool {
        RbacResource::ALL.into_iter().all(|resource| holds(self.get(resource)))
    }
}

/// The API group.
const GROUP: &str = "rbac.authorization.k8s.io";
