//! The index of roles and bindings, by namespace and subject (kube-apiserver,
//! `pkg/registry/rbac/validation/rule.go`).
//!
//! A request takes three look-ups for the user and for each group: the roles bound in the cluster,
//! those bound in the namespace, and the rules of each of these roles. Bindings of other subjects
//! cost nothing. Bindings that give a subject the same role are kept together, so that such a role
//! is evaluated once.
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

use crate::api::keyed_hash::BuildKeyedHash;
use crate::auth::rbac::policy::{Binding, Policy, RoleRef, Subject};
use crate::auth::rbac::reason::{Source, allowed_by};
use crate::auth::rbac::resource::{PerResource, RbacResource};
use crate::auth::rbac::rule::{Action, Rule};
use crate::auth::user::User;

/// The grants of all users and groups. A clone is cheap.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Index {
    cluster: ScopeIndex,
    namespaces: ByName<ScopeIndex>,
    /// The namespaces in which users have roles by their names.
    of_users: ByName<imbl::OrdSet<Arc<str>>>,
    /// The namespaces in which the members of groups have roles.
    of_groups: ByName<imbl::OrdSet<Arc<str>>>,
}

/// The roles and bindings of the cluster, or of one namespace.
#[derive(Clone, Debug, Default, PartialEq)]
struct ScopeIndex {
    roles: ByName<Arc<[Rule]>>,
    users: ByName<Arc<Grants>>,
    groups: ByName<Arc<Grants>>,
}

/// Clients choose the names that are looked up, and each request looks up several.
type ByName<T> =
    imbl::GenericHashMap<Arc<str>, T, BuildKeyedHash, imbl::shared_ptr::DefaultSharedPtr>;

/// The roles that a subject has, sorted.
type Grants = Vec<Grant>;

/// A role that a subject has.
#[derive(Clone, Debug, PartialEq)]
struct Grant {
    role: RoleRef,
    /// The bindings that give it, by name.
    sources: Vec<Source>,
}

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
        let scopes = self.scopes(action);
        scopes.into_iter().any(|scope| self.allowing(scope, user, action).next().is_some())
    }

    /// Returns a reason for which RBAC allows the action, in the API server's words, that `fits`.
    /// The API server visits the bindings of the cluster first, and those of a scope in any order.
    /// `None` if RBAC does not allow it, or if the reason has characters that Weir does not quote.
    pub fn find_reason(
        &self,
        user: &User,
        action: &Action<'_>,
        fits: impl Fn(&str) -> bool,
    ) -> Option<String> {
        if user.groups.iter().any(|group| group == MASTERS) {
            return fits("").then(String::new);
        }
        let mut scopes = self.scopes(action).into_iter().enumerate();
        let (at, scope) =
            scopes.find(|(_, scope)| self.allowing(scope, user, action).next().is_some())?;
        let namespace = if at == 0 { "" } else { action.namespace() };
        self.allowing(scope, user, action).find_map(|Grant { role, sources }| {
            let sources = sources.iter();
            let mut reasons =
                sources.filter_map(|source| allowed_by(source, namespace, role, user));
            reasons.find(|reason| fits(reason))
        })
    }

    /// Returns the scopes whose bindings are for the action: the cluster, and its namespace.
    fn scopes(&self, action: &Action<'_>) -> impl IntoIterator<Item = &ScopeIndex> {
        let namespace = Some(action.namespace()).filter(|namespace| !namespace.is_empty());
        [Some(&self.cluster), namespace.and_then(|name| self.namespaces.get(name))]
            .into_iter()
            .flatten()
    }

    /// Returns the user's roles of a scope that allow the action.
    fn allowing<'a>(
        &'a self,
        scope: &'a ScopeIndex,
        user: &'a User,
        action: &'a Action<'_>,
    ) -> impl Iterator<Item = &'a Grant> {
        let roles = self.rules_of(scope, user);
        let allowing = roles.filter(|(_, rules)| rules.iter().any(|rule| rule.allows(action)));
        allowing.map(|(grant, _)| grant)
    }

    /// Returns the user's roles of a scope that exist, and their rules.
    fn rules_of<'a>(
        &'a self,
        scope: &'a ScopeIndex,
        user: &'a User,
    ) -> impl Iterator<Item = (&'a Grant, &'a [Rule])> {
        let of_user = scope.users.get(user.name.as_str());
        let of_groups = user.groups.iter().filter_map(|group| scope.groups.get(group.as_str()));
        let grants = of_user.into_iter().chain(of_groups).flat_map(|grants| grants.iter());
        grants.filter_map(move |grant| {
            let rules = match &grant.role {
                RoleRef::Role(name) => scope.roles.get(name),
                RoleRef::ClusterRole(name) => self.cluster.roles.get(name),
            };
            rules.map(|rules| (grant, &**rules))
        })
    }

    /// Returns the namespaces in which a role of the namespace allows the user an action.
    pub(crate) fn namespaces_allowing<'a>(
        &'a self,
        user: &'a User,
        action_in: impl Fn(&'a str) -> Action<'a>,
    ) -> impl Iterator<Item = &'a str> {
        let of_user = self.of_users.get(user.name.as_str());
        let of_groups = user.groups.iter().filter_map(|group| self.of_groups.get(group.as_str()));
        let bound = of_user.into_iter().chain(of_groups).flatten();
        bound.map(|namespace| &**namespace).filter(move |namespace| {
            let Some(scope) = self.namespaces.get(*namespace) else { return false };
            self.allowing(scope, user, &action_in(namespace)).next().is_some()
        })
    }

    /// Returns the names for which a role of the cluster allows the user an action, where it names
    /// them; `None` if one allows it for any name.
    pub(crate) fn names_allowing<'a>(
        &'a self,
        user: &'a User,
        action: &Action<'_>,
    ) -> Option<Vec<&'a str>> {
        let mut names = Vec::new();
        for rules in self.rules_of(&self.cluster, user).map(|(_, rules)| rules) {
            for rule in rules.iter().filter(|rule| rule.allows_for_a_name(action)) {
                if rule.names.is_empty() {
                    return None;
                }
                names.extend(rule.names.iter().map(|name| &**name));
            }
        }
        Some(names)
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

    /// Notes in which namespaces the subjects of a binding of `namespace` have roles, after it was
    /// added or removed.
    fn note_subjects(&mut self, namespace: &Arc<str>, binding: &Binding) {
        if namespace.is_empty() {
            return;
        }
        for subject in &*binding.subjects {
            let scope = self.namespaces.get(namespace);
            let has_roles = scope.is_some_and(|scope| scope.has(subject));
            let (of_subjects, name) = match subject {
                Subject::User(name) | Subject::ServiceAccount(name) => (&mut self.of_users, name),
                Subject::Group(name) => (&mut self.of_groups, name),
            };
            if has_roles {
                of_subjects.entry(Arc::clone(name)).or_default().insert(Arc::clone(namespace));
            } else if let Some(namespaces) = of_subjects.get_mut(name) {
                namespaces.remove(namespace);
                if namespaces.is_empty() {
                    of_subjects.remove(name);
                }
            }
        }
    }
}

impl ScopeIndex {
    fn is_empty(&self) -> bool {
        self.roles.is_empty() && self.users.is_empty() && self.groups.is_empty()
    }

    fn has(&self, subject: &Subject) -> bool {
        match subject {
            Subject::User(name) | Subject::ServiceAccount(name) => self.users.contains_key(name),
            Subject::Group(name) => self.groups.contains_key(name),
        }
    }

    fn grant(&mut self, name: &Arc<str>, binding: &Binding) {
        let Some(role) = &binding.role else { return };
        for subject in &*binding.subjects {
            let (map, subject) = self.grants_mut(subject);
            let grants = Arc::make_mut(map.entry(Arc::clone(subject)).or_default());
            let found = grants.binary_search_by(|grant| grant.role.cmp(role));
            let at = found.unwrap_or_else(|at| {
                grants.insert(at, Grant { role: role.clone(), sources: Vec::new() });
                at
            });
            let Some(Grant { sources, .. }) = grants.get_mut(at) else { continue };
            // A binding may name a subject twice.
            if let Err(at) = sources.binary_search_by(|source| source.name.cmp(name)) {
                let (name, subjects) = (Arc::clone(name), Arc::clone(&binding.subjects));
                sources.insert(at, Source { name, subjects });
            }
        }
    }

    fn revoke(&mut self, name: &Arc<str>, binding: &Binding) {
        let Some(role) = &binding.role else { return };
        for subject in &*binding.subjects {
            let (map, subject) = self.grants_mut(subject);
            let Some(grants) = map.get_mut(subject) else { continue };
            let grants = Arc::make_mut(grants);
            if let Ok(at) = grants.binary_search_by(|grant| grant.role.cmp(role))
                && let Some(Grant { sources, .. }) = grants.get_mut(at)
            {
                sources.retain(|source| source.name != *name);
                if sources.is_empty() {
                    grants.remove(at);
                }
            }
            if grants.is_empty() {
                map.remove(subject);
            }
        }
    }

    /// Returns the map in which the grants of a subject are, and its key.
    fn grants_mut<'a>(&mut self, subject: &'a Subject) -> (&mut ByName<Arc<Grants>>, &'a Arc<str>) {
        match subject {
            Subject::User(name) | Subject::ServiceAccount(name) => (&mut self.users, name),
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
    /// Whether anything has changed.
    changed: bool,
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
        self.changed = true;
        let old = self.withdraw(resource, &key);
        self.revoked |= old.is_some_and(|old| !old.is_within(&policy));
        let (namespace, name) = &key;
        self.index.change(namespace, |scope| match &policy {
            Policy::Role(rules) => {
                scope.roles.insert(Arc::clone(name), Arc::clone(rules));
            }
            Policy::Binding(binding) => scope.grant(name, binding),
            Policy::Unreadable => {}
        });
        if let Policy::Binding(binding) = &policy {
            self.index.note_subjects(namespace, binding);
        }
        if policy == Policy::Unreadable {
            *self.unreadable.get_mut(resource) += 1;
        }
        self.objects.get_mut(resource).insert(key, policy);
    }

    /// Removes an object.
    pub fn remove(&mut self, resource: RbacResource, namespace: &str, name: &str) {
        let removed = self.withdraw(resource, &(namespace.into(), name.into()));
        self.revoked |= removed.is_some();
        self.changed |= removed.is_some();
    }

    /// Replaces all objects of a resource. Counts as a revocation: permissions may have been
    /// revoked before this list.
    pub(super) fn replace(&mut self, resource: RbacResource, objects: HashMap<ObjectKey, Policy>) {
        (self.revoked, self.changed) = (true, true);
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

    /// Returns whether anything has changed since the last call.
    pub(super) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
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
            Policy::Binding(binding) => scope.revoke(name, binding),
            Policy::Unreadable => {}
        });
        if let Policy::Binding(binding) = &policy {
            self.index.note_subjects(namespace, binding);
        }
        Some(policy)
    }
}

/// `user.SystemPrivilegedGroup`.
const MASTERS: &str = "system:masters";
