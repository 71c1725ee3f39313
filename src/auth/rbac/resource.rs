//! The four resources of `rbac.authorization.k8s.io/v1`.

use crate::api::resource::GroupVersionResource;

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RbacResource {
    /// `roles`.
    Roles,
    /// `clusterroles`.
    ClusterRoles,
    /// `rolebindings`.
    RoleBindings,
    /// `clusterrolebindings`.
    ClusterRoleBindings,
}

impl RbacResource {
    /// All of them: what bindings refer to first, so that a start decides sooner.
    pub const ALL: [Self; 4] =
        [Self::ClusterRoles, Self::Roles, Self::ClusterRoleBindings, Self::RoleBindings];

    /// The plural word in paths, and in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Roles => "roles",
            Self::ClusterRoles => "clusterroles",
            Self::RoleBindings => "rolebindings",
            Self::ClusterRoleBindings => "clusterrolebindings",
        }
    }

    /// Where it is served.
    pub fn gvr(self) -> GroupVersionResource {
        GroupVersionResource::new(GROUP, "v1", self.as_str())
    }
}

/// Something for each of them.
#[derive(Clone, Debug, Default)]
pub(super) struct PerResource<T> {
    roles: T,
    cluster_roles: T,
    role_bindings: T,
    cluster_role_bindings: T,
}

impl<T> PerResource<T> {
    /// That of one.
    pub(super) fn get(&self, resource: RbacResource) -> &T {
        match resource {
            RbacResource::Roles => &self.roles,
            RbacResource::ClusterRoles => &self.cluster_roles,
            RbacResource::RoleBindings => &self.role_bindings,
            RbacResource::ClusterRoleBindings => &self.cluster_role_bindings,
        }
    }

    /// The same, to be changed.
    pub(super) fn get_mut(&mut self, resource: RbacResource) -> &mut T {
        match resource {
            RbacResource::Roles => &mut self.roles,
            RbacResource::ClusterRoles => &mut self.cluster_roles,
            RbacResource::RoleBindings => &mut self.role_bindings,
            RbacResource::ClusterRoleBindings => &mut self.cluster_role_bindings,
        }
    }

    /// Whether it holds of all.
    pub(super) fn all(&self, holds: impl Fn(&T) -> bool) -> bool {
        RbacResource::ALL.into_iter().all(|resource| holds(self.get(resource)))
    }
}

/// Their group.
const GROUP: &str = "rbac.authorization.k8s.io";
