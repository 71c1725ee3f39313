//! Who may do what, by namespace and subject (kube-apiserver, `pkg/registry/rbac/validation/rule.go`).
//!
//! A question is answered by three look-ups for the user and each of the groups: the roles given in the cluster, those given in the
//! namespace, and the rules of each such role. What others are given costs nothing. Bindings that give one subject the same role are counted, so
//! that such a role is looked at once.
//!
//! The maps are persistent: a reader keeps the index that it has, and the next one shares with it all that did not change. [`Writer`] knows what
//! each object said before, so that a change takes back exactly that.
//!
//! Invariants: an index depends only on the objects that are there, not on how they came to be; a role that is missing allows nothing,
//! and does from the moment on when it comes, whichever of it and its bindings was first.

use std::collections::HashMap;
use std::sync::Arc;

use crate::auth::rbac::policy::{Binding, Policy, RoleRef, Subject};
use crate::auth::rbac::resource::{PerResource, RbacResource};
use crate::auth::rbac::rule::{Question, Rule};
use crate::auth::user::User;

/// See the module. A clone costs nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Index {
    cluster: Scope,
    namespaces: imbl::HashMap<Arc<str>, Scope>,
}

/// What was said in the cluster's roles and bindings, or in those of one namespace.
#[derive(Clone, Debug, Default, PartialEq)]
struct Scope {
    roles: imbl::HashMap<Arc<str>, Arc<[Rule]>>,
    users: imbl::HashMap<Arc<str>, Arc<Grants>>,
    groups: imbl::HashMap<Arc<str>, Arc<Grants>>,
}

/// The roles that one subject is given, sorted, and by how many bindings.
type Grants = Vec<(RoleRef, usize)>;

impl Index {
    /// Whether RBAC allows it (`Authorize`); what it does not allow, another authorizer may.
    ///
    /// Members of `system:masters` may do everything: kube-apiserver's first authorizer, ahead of all that can be configured, says so.
    pub fn allows(&self, user: &User, question: &Question<'_>) -> bool {
        if user.groups.iter().any(|group| group == MASTERS) {
            return true;
        }
        if self.is_granted(&self.cluster, user, question) {
            return true;
        }
        let namespace = question.namespace();
        !namespace.is_empty()
            && self
                .namespaces
                .get(namespace)
                .is_some_and(|scope| self.is_granted(scope, user, question))
    }

    /// Whether the bindings of a scope give a role that allows it.
    fn is_granted(&self, scope: &Scope, user: &User, question: &Question<'_>) -> bool {
        let of_user = scope.users.get(user.name.as_str());
        let of_groups = user.groups.iter().filter_map(|group| scope.groups.get(group.as_str()));
        of_user.into_iter().chain(of_groups).any(|grants| {
            grants.iter().any(|(role, _)| {
                let rules = match role {
                    RoleRef::Role(name) => scope.roles.get(name),
                    RoleRef::ClusterRole(name) => self.cluster.roles.get(name),
                };
                rules.is_some_and(|rules| rules.iter().any(|rule| rule.allows(question)))
            })
        })
    }

    /// Changes a scope, which comes and goes with what is in it.
    fn change(&mut self, namespace: &Arc<str>, change: impl FnOnce(&mut Scope)) {
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

impl Scope {
    fn is_empty(&self) -> bool {
        self.roles.is_empty() && self.users.is_empty() && self.groups.is_empty()
    }

    fn grant(&mut self, binding: &Binding) {
        let Some(role) = &binding.role else { return };
        for subject in &binding.subjects {
            let (map, name) = self.of(subject);
            let grants = Arc::make_mut(map.entry(Arc::clone(name)).or_default());
            match grants.binary_search_by(|(own, _)| own.cmp(role)) {
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
            let (map, name) = self.of(subject);
            let Some(grants) = map.get_mut(name) else { continue };
            let grants = Arc::make_mut(grants);
            if let Ok(at) = grants.binary_search_by(|(own, _)| own.cmp(role))
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

    fn of<'a>(
        &mut self,
        subject: &'a Subject,
    ) -> (&mut imbl::HashMap<Arc<str>, Arc<Grants>>, &'a Arc<str>) {
        match subject {
            Subject::User(name) => (&mut self.users, name),
            Subject::Group(name) => (&mut self.groups, name),
        }
    }
}

/// Keeps an index equal to the objects. One at a time writes.
#[derive(Debug, Default)]
pub struct Writer {
    index: Index,
    held: PerResource<HashMap<Key, Policy>>,
    narrowed: bool,
}

/// An object: namespace (empty for the cluster) and name.
pub(super) type Key = (Arc<str>, Arc<str>);

impl Writer {
    /// Takes an object's new JSON; that of another key stays as it is.
    pub fn put(&mut self, resource: RbacResource, namespace: &str, name: &str, json: &[u8]) {
        let policy = Policy::read(resource, namespace, json);
        self.put_policy(resource, (namespace.into(), name.into()), policy);
    }

    /// The same of what was read before.
    pub(super) fn put_policy(&mut self, resource: RbacResource, key: Key, policy: Policy) {
        if self.held.get(resource).get(&key) == Some(&policy) {
            return;
        }
        let old = self.take_back(resource, &key);
        self.narrowed |= old.is_some_and(|old| !old.is_within(&policy));
        let (namespace, name) = &key;
        self.index.change(namespace, |scope| match &policy {
            Policy::Role(rules) => {
                scope.roles.insert(Arc::clone(name), Arc::clone(rules));
            }
            Policy::Binding(binding) => scope.grant(binding),
            Policy::Unreadable => {}
        });
        self.held.get_mut(resource).insert(key, policy);
    }

    /// Takes note that an object is gone.
    pub fn remove(&mut self, resource: RbacResource, namespace: &str, name: &str) {
        let gone = self.take_back(resource, &(namespace.into(), name.into()));
        self.narrowed |= gone.is_some();
    }

    /// Has exactly these objects of a resource. What was taken away before they were known is not told by them.
    pub(super) fn replace(&mut self, resource: RbacResource, objects: HashMap<Key, Policy>) {
        self.narrowed = true;
        let held = self.held.get(resource).keys();
        let gone: Vec<_> = held.filter(|key| !objects.contains_key(*key)).cloned().collect();
        for key in gone {
            self.take_back(resource, &key);
        }
        for (key, policy) in objects {
            self.put_policy(resource, key, policy);
        }
    }

    /// Whether something may have been taken from somebody since this was asked last: what is only added takes nothing.
    pub(super) fn has_narrowed(&mut self) -> bool {
        std::mem::take(&mut self.narrowed)
    }

    /// The index as it is now.
    pub fn index(&self) -> Index {
        self.index.clone()
    }

    /// How many objects of a resource there are.
    pub fn len(&self, resource: RbacResource) -> usize {
        self.held.get(resource).len()
    }

    /// How many of them cannot be read, and grant nothing.
    pub fn unreadable(&self, resource: RbacResource) -> usize {
        let held = self.held.get(resource).values();
        held.filter(|policy| **policy == Policy::Unreadable).count()
    }

    fn take_back(&mut self, resource: RbacResource, key: &Key) -> Option<Policy> {
        let policy = self.held.get_mut(resource).remove(key)?;
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
