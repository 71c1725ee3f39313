//! The index of roles and bindings, by namespace and subject (kube-apiserver,
//! `pkg/registry/rbac/validation/rule.go`).
//!
//! A request takes three look-ups for the user and for each group: the roles bound in the cluster,
//! those bound in the namespace, and the rules of each of these roles. Bindings of other subjects
//! cost nothing. Bindings that give a subject the same role are counted, so that such a role is
//! evaluated once.
//!
//! The maps are persistent: a reader keeps its index, and the next index shares everything that did
//! not change. [`IndexWriter`] remembers what each object granted before, so that a change removes
//! exactly that.
//!
//! Invariants: an index depends only on the present objects, not on their history. A missing role
//! allows nothing, and allows from the moment when it appears, whichever of it and its bindings
//! came first.

use std::collections::HashMap;
use std::sync::Arc;

use crate::auth::rbac::policy::{Binding, Policy, RoleRef, Subject};
use crate::auth::rbac::resource::{PerResource, RbacResource};
use crate::auth::rbac::rule::{Action, Rule};
use crate::auth::user::User;

/// The grants of all users and groups. A clone is cheap.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Index {
    cluster: ScopeIndex,
    namespaces: imbl::HashMap<Arc<str>, ScopeIndex>,
}

/// The roles and bindings of the cluster, or of one namespace.
#[derive(Clone, Debug, Default, PartialEq)]
struct ScopeIndex {
    roles: imbl::HashMap<Arc<str>, Arc<[Rule]>>,
    users: imbl::HashMap<Arc<str>, Arc<Grants>>,
    groups: imbl::HashMap<Arc<str>, Arc<Grants>>,
}

/// The roles that a subject has, sorted, each with the number of bindings that give it.
type Grants = Vec<(RoleRef, usize)>;

impl Index {
    /// Returns whether RBAC allows the action (`Authorize`). Another authorizer may
    /// allow an action that RBAC does not allow.
    ///
    /// Members of `system:masters` may do everything: kube-apiserver has an authorizer for them
    /// before all those that can be configured.
    pub fn allows(&self, user: &User, action: &Action<'_>) -> bool {
        if user.groups.iter().any(|group| group == MASTERS) {
            return true;
        }
        if self.is_granted(&self.cluster, user, action) {
            return true;
        }
        let namespace = action.namespace();
        !namespace.is_empty()
            && self
                .namespaces
                .get(namespace)
                .is_some_and(|scope| self.is_granted(scope, user, action))
    }

    /// Returns whether the bindings of a scope give a role that allows the action.
    fn is_granted(&self, scope: &ScopeIndex, user: &User, action: &Action<'_>) -> bool {
        let of_user = scope.users.get(user.name.as_str());
        let of_groups = user.groups.iter().filter_map(|group| scope.groups.get(group.as_str()));
        of_user.into_iter().chain(of_groups).any(|grants| {
            grants.iter().any(|(role, _)| {
                let rules = match role {
                    RoleRef::Role(name) => scope.roles.get(name),
                    RoleRef::ClusterRole(name) => self.cluster.roles.get(name),
                };
                rules.is_some_and(|rules| rules.iter().any(|rule| rule.allows(action)))
            })
        })
    }

    /// Changes the index of a scope. One of a namespace is created when needed and removed when
    /// empty.
    fn change(&mut self, namespace: &Arc<str>, change: impl FnOnce(&mut ScopeIndex)) {
        if namespace.is_empty() {
            return change(&mut self.cluster);
        }
        let scope = self.namespaces.entry(Arc::clone(namespace)).or_default();
        change(scope);
        if scope.is_empty() {
            self.namespaces.remove(namespace);
        }
    }
}

impl ScopeIndex {
    fn is_empty(&self) -> bool {
        self.roles.is_empty() && self.users.is_empty() && self.groups.is_empty()
    }

    fn grant(&mut self, binding: &Binding) {
        let Some(role) = &binding.role else { return };
        for subject in &binding.subjects {
            let (map, name) = self.grants_mut(subject);
            let grants = Arc::make_mut(map.entry(Arc::clone(name)).or_default());
            match grants.binary_search_by(|(role_grant, _)| role_grant.cmp(role)) {
                Ok(at) => {
                    if let Some((_, bindings)) = grants.get_mut(at) {
                        *bindings += 1;
                    }
                }
                Err(at) => grants.insert(at, (role.clone(), 1)),
            }
        }
    }

    fn revoke(&mut self, binding: &Binding) {
        let Some(role) = &binding.role else { return };
        for subject in &binding.subjects {
            let (map, name) = self.grants_mut(subject);
            let Some(grants) = map.get_mut(name) else { continue };
            let grants = Arc::make_mut(grants);
            if let Ok(at) = grants.binary_search_by(|(role_grant, _)| role_grant.cmp(role))
                && let Some((_, bindings)) = grants.get_mut(at)
            {
                *bindings -= 1;
                if *bindings == 0 {
                    grants.remove(at);
                }
            }
            if grants.is_empty() {
                map.remove(name);
            }
        }
    }

    /// Returns the map in which the grants of a subject are, and its key.
    fn grants_mut<'a>(
        &mut self,
        subject: &'a Subject,
    ) -> (&mut imbl::HashMap<Arc<str>, Arc<Grants>>, &'a Arc<str>) {
        match subject {
            Subject::User(name) => (&mut self.users, name),
            Subject::Group(name) => (&mut self.groups, name),
        }
    }
}

/// Builds indexes from objects. Has a single user at a time.
#[derive(Debug, Default)]
pub struct IndexWriter {
    index: Index,
    objects: PerResource<HashMap<ObjectKey, Policy>>,
    /// The number of objects that cannot be read.
    unreadable: PerResource<usize>,
    /// Whether a permission may have been revoked.
    revoked: bool,
}

/// The namespace (empty for the cluster) and name of an object.
pub(super) type ObjectKey = (Arc<str>, Arc<str>);

impl IndexWriter {
    /// Adds or replaces an object, given as JSON.
    pub fn put(&mut self, resource: RbacResource, namespace: &str, name: &str, json: &[u8]) {
        let policy = Policy::parse(resource, namespace, json);
        self.put_policy(resource, (namespace.into(), name.into()), policy);
    }

    /// Adds or replaces an object that was parsed before.
    pub(super) fn put_policy(&mut self, resource: RbacResource, key: ObjectKey, policy: Policy) {
        if self.objects.get(resource).get(&key) == Some(&policy) {
            return;
        }
        let old = self.withdraw(resource, &key);
        self.revoked |= old.is_some_and(|old| !old.is_within(&policy));
        let (namespace, name) = &key;
        self.index.change(namespace, |scope| match &policy {
            Policy::Role(rules) => {
                scope.roles.insert(Arc::clone(name), Arc::clone(rules));
            }
            Policy::Binding(binding) => scope.grant(binding),
            Policy::Unreadable => {}
        });
        if policy == Policy::Unreadable {
            *self.unreadable.get_mut(resource) += 1;
        }
        self.objects.get_mut(resource).insert(key, policy);
    }

    /// Removes an object.
    pub fn remove(&mut self, resource: RbacResource, namespace: &str, name: &str) {
        let removed = self.withdraw(resource, &(namespace.into(), name.into()));
        self.revoked |= removed.is_some();
    }

    /// Replaces all objects of a resource. Counts as a revocation: permissions may have been
    /// revoked before this list.
    pub(super) fn replace(&mut self, resource: RbacResource, objects: HashMap<ObjectKey, Policy>) {
        self.revoked = true;
        let before = self.objects.get(resource).keys();
        let removed: Vec<_> = before.filter(|key| !objects.contains_key(*key)).cloned().collect();
        for key in removed {
            self.withdraw(resource, &key);
        }
        for (key, policy) in objects {
            self.put_policy(resource, key, policy);
        }
    }

    /// Returns whether a permission may have been revoked since the last call. Additions revoke
    /// none.
    pub(super) fn take_revoked(&mut self) -> bool {
        std::mem::take(&mut self.revoked)
    }

    /// Returns the index of the present objects.
    pub fn index(&self) -> Index {
        self.index.clone()
    }

    /// Returns the number of objects of a resource.
    pub fn len(&self, resource: RbacResource) -> usize {
        self.objects.get(resource).len()
    }

    /// Returns the number of objects of a resource that cannot be read, and therefore grant
    /// nothing.
    pub fn unreadable(&self, resource: RbacResource) -> usize {
        *self.unreadable.get(resource)
    }

    /// Removes an object and what it granted.
    fn withdraw(&mut self, resource: RbacResource, key: &ObjectKey) -> Option<Policy> {
        let policy = self.objects.get_mut(resource).remove(key)?;
        if policy == Policy::Unreadable {
            *self.unreadable.get_mut(resource) -= 1;
        }
        let (namespace, name) = key;
        self.index.change(namespace, |scope| match &policy {
            Policy::Role(_) => {
                scope.roles.remove(name);
            }
            Policy::Binding(binding) => scope.revoke(binding),
            Policy::Unreadable => {}
        });
        Some(policy)
    }
}

/// `user.SystemPrivilegedGroup`.
const MASTERS: &str = "system:masters";
