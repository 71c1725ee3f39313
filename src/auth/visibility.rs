//! The part of a collection that a user may see, where the API server refuses the whole
//! (`docs/decisions/filtered-lists.md`). Of a namespaced resource, these are the objects of the
//! namespaces in which roles allow the user the same. Of a cluster-scoped resource, these are the
//! objects that roles name.
//!
//! A client lists at a resourceVersion and watches from there. If permissions changed in between,
//! the watch would lack the objects of a namespace that became visible, and keep those of one that
//! is not visible any more. So Weir remembers the last view of each user, and the oldest
//! resourceVersion from which a watch or a page may go on with it. A watch or page from before is
//! refused with a 410. A view that is not remembered (after a restart, or of a user who was away)
//! counts as changed. Users who may see the whole collection are not remembered.
//!
//! Roles only allow. Another authorizer may allow more than they do, and this is not shown. One
//! before RBAC that denies is found by the same checks as for other decisions of roles.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use tokio::time::{Instant, sleep, sleep_until};

use crate::api::resource::GroupVersionResource;
use crate::api::resource_version::ResourceVersion;
use crate::auth::attributes::{Attributes, ResourceAttributes};
use crate::auth::rbac::Rbac;
use crate::auth::rbac::index::Index;
use crate::auth::rbac::rule::Action;
use crate::auth::user::{User, UserKey};
use crate::cache::core::visible::VisibleObjects;

/// The memory of the last view of each user of each collection.
#[derive(Debug)]
pub(crate) struct Visibility {
    rbac: Arc<Rbac>,
    last: Cache<UserCollection, Arc<Visible>>,
}

/// A collection, and the name and groups of a user who asks for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct UserCollection {
    user: UserKey,
    gvr: GroupVersionResource,
    /// The name that a field selector requires; mostly empty.
    name: Arc<str>,
}

/// The newest resourceVersions in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Newest {
    /// That of the collection: no list has shown a newer one.
    pub(crate) collection: ResourceVersion,
    /// That of roles and bindings.
    pub(crate) roles: ResourceVersion,
}

/// The part of a collection that a user may see.
#[derive(Clone, Debug)]
pub(crate) struct Visible {
    /// The objects in a list; `None` for all.
    list: Option<Arc<VisibleObjects>>,
    /// The objects in a watch; `None` for all.
    watch: Option<Arc<VisibleObjects>>,
    /// It includes at least this number of changes of roles and bindings.
    changes: u64,
    /// The oldest state after which the user was shown these objects and no others.
    oldest: ResourceVersion,
}

/// A collection as one user may see it.
#[derive(Clone, Debug)]
pub(crate) struct UserView {
    visibility: Arc<Visibility>,
    user: Arc<User>,
    attributes: Arc<ResourceAttributes>,
    is_namespaced: bool,
}

impl Visibility {
    pub(crate) fn new(rbac: Arc<Rbac>) -> Arc<Self> {
        let weight = |key: &UserCollection, visible: &Arc<Visible>| {
            u32::try_from(ENTRY_BYTES + key.name.len() + visible.weight_bytes()).unwrap_or(u32::MAX)
        };
        Arc::new(Self {
            rbac,
            // The newest view must stay until its client watches from its list.
            last: Cache::builder()
                .max_capacity(BYTES_MAX)
                .weigher(weight)
                .eviction_policy(EvictionPolicy::lru())
                .build(),
        })
    }
}

impl UserView {
    /// Returns how `user` may see the collection of these attributes; `None` if they are of no
    /// collection.
    pub(crate) fn new(
        visibility: &Arc<Visibility>,
        user: &Arc<User>,
        attributes: &Attributes,
        is_namespaced: bool,
    ) -> Option<Self> {
        let Attributes::Resource(attributes) = attributes else { return None };
        let (visibility, user) = (Arc::clone(visibility), Arc::clone(user));
        Some(Self { visibility, user, attributes: Arc::clone(attributes), is_namespaced })
    }

    /// Returns what the user may see now, and whether that is what the user saw before; `None` if
    /// Weir does not know the roles now. Without `newest` nothing is remembered.
    pub(crate) fn visible(
        &self,
        newest: impl FnOnce() -> Option<Newest>,
    ) -> Option<(Arc<Visible>, bool)> {
        let Visibility { rbac, last } = &*self.visibility;
        let collection = self.collection();
        // Before the index is read, which may be a newer one then.
        let changes = *rbac.changes().borrow();
        let index = rbac.index()?;
        // After it: a list that an older view has shown is not newer than this.
        let newest = newest();
        // After a restore of etcd resourceVersions begin again.
        let is_possible = |before: &Arc<Visible>| {
            newest.is_none_or(|newest| before.oldest.0 <= newest.any().0.saturating_add(1))
        };
        let before = last.get(&collection).filter(is_possible);
        if let Some(before) = before.as_ref().filter(|before| before.changes == changes) {
            return Some((Arc::clone(before), true));
        }
        let [list, watch] = ["list", "watch"].map(|verb| self.objects(&index, verb));
        let is_same = |before: &Arc<Visible>| before.list == list && before.watch == watch;
        let is_remembered = before.as_ref().is_some_and(is_same);
        let oldest = match (before, newest) {
            (Some(before), _) if is_remembered => before.oldest,
            (Some(_), Some(newest)) => ResourceVersion(newest.collection.0.saturating_add(1)),
            (None, Some(newest)) => newest.any(),
            (_, None) => ResourceVersion(u64::MAX),
        };
        let visible = Arc::new(Visible { list, watch, changes, oldest });
        if newest.is_some() {
            last.insert(collection, Arc::clone(&visible));
        }
        Some((visible, is_remembered))
    }

    /// Notes that the user is allowed to read the whole collection. Returns whether a part was
    /// remembered.
    pub(crate) fn forget(&self) -> bool {
        self.visibility.last.remove(&self.collection()).is_some()
    }

    /// Returns when the user may see more or less than `seen`, or when nobody knows: because
    /// another authorizer comes before RBAC, or because roles are not known for
    /// [`UNKNOWN_MAX`] although an API server is usable.
    pub(crate) async fn until_changed(
        self,
        seen: Arc<Visible>,
        newest: impl Fn() -> Option<Newest>,
        is_usable: impl Fn() -> bool,
    ) {
        let rbac = &self.visibility.rbac;
        let mut changes = rbac.changes();
        let mut unknown_since = None;
        loop {
            changes.mark_unchanged();
            let looked = Instant::now();
            if rbac.is_disabled() {
                return;
            }
            unknown_since = match self.visible(&newest) {
                Some((now, _)) if now.list != seen.list || now.watch != seen.watch => return,
                Some(_) => None,
                None if !is_usable() => None,
                None => unknown_since.or_else(|| Some(Instant::now())),
            };
            if unknown_since.is_some_and(|since| since.elapsed() >= UNKNOWN_MAX) {
                return;
            }
            tokio::select! {
                changed = changes.changed() => if changed.is_err() {
                    return pending().await;
                },
                () = sleep(UNKNOWN_MAX / 2) => {}
            }
            // Each change of any role wakes all watches.
            sleep_until(looked + LOOK_INTERVAL).await;
        }
    }

    /// Returns the attributes of a request for one of the namespaces or objects that the user may
    /// see, to be compared with the API server's decision.
    pub(crate) fn sample(&self, visible: &Visible) -> Option<Attributes> {
        let mut parts = self.seen(visible).as_ref()?.parts();
        let number = fastrand::usize(..parts.len().max(1));
        let part = parts.nth(number)?;
        let mut attributes = (*self.attributes).clone();
        match part.strip_suffix('/') {
            Some(namespace) => attributes.namespace = namespace.into(),
            None => {
                attributes.name = part.into();
                let is_namespaces = is_namespaces(&attributes.gvr);
                if is_namespaces {
                    attributes.namespace = part.into();
                }
                // Roles may allow either. A denial counts only if they do.
                if is_namespaces || fastrand::bool() {
                    attributes.verb = "get".into();
                }
            }
        }
        Some(Attributes::Resource(Arc::new(attributes)))
    }

    /// Whether both are the same for the request.
    pub(crate) fn shows(&self, visible: &Visible, now: &Visible) -> bool {
        self.seen(visible) == self.seen(now)
    }

    /// Returns the objects that the request may show; `None` for all.
    pub(crate) fn seen<'a>(&self, visible: &'a Visible) -> &'a Option<Arc<VisibleObjects>> {
        if self.attributes.verb == "watch" { &visible.watch } else { &visible.list }
    }

    /// Returns the user.
    pub(crate) fn user(&self) -> &Arc<User> {
        &self.user
    }

    fn collection(&self) -> UserCollection {
        let ResourceAttributes { gvr, name, .. } = &*self.attributes;
        // What is visible of a cluster-scoped resource does not depend on the name that is asked.
        let name = if self.is_namespaced { Arc::clone(name) } else { Arc::default() };
        UserCollection { user: self.user.roles_key(), gvr: gvr.clone(), name }
    }

    fn objects(&self, index: &Index, verb: &'static str) -> Option<Arc<VisibleObjects>> {
        let ResourceAttributes { gvr, name, .. } = &*self.attributes;
        let action = |verb, namespace, name| Action::Resource {
            verb,
            group: &gvr.group,
            resource: &gvr.resource,
            subresource: "",
            namespace,
            name,
        };
        if index.allows(&self.user, &action(verb, "", "")) {
            return None;
        }
        if self.is_namespaced {
            let namespaces =
                index.namespaces_allowing(&self.user, |namespace| action(verb, namespace, name));
            return Some(Arc::new(VisibleObjects::in_namespaces(namespaces)));
        }
        let mut names = index.names_allowing(&self.user, &action(verb, "", ""))?;
        match index.names_allowing(&self.user, &action("get", "", "")) {
            Some(readable) => names.extend(readable),
            None if is_namespaces(gvr) => return None,
            // Who may read any object, but not list them, must know their names.
            None => {}
        }
        if is_namespaces(gvr) {
            let get = |namespace| action("get", namespace, namespace);
            names.extend(index.namespaces_allowing(&self.user, get));
        }
        Some(Arc::new(VisibleObjects::with_names(names)))
    }
}

impl Visible {
    /// Whether a list at `at` showed the user these objects, and no others.
    pub(crate) fn was_seen_at(&self, at: ResourceVersion) -> bool {
        at >= self.oldest
    }

    fn weight_bytes(&self) -> usize {
        let objects = [&self.list, &self.watch].into_iter().flatten();
        size_of::<Self>() + objects.map(|objects| objects.weight_bytes()).sum::<usize>()
    }
}

impl Newest {
    fn any(self) -> ResourceVersion {
        self.collection.max(self.roles)
    }
}

fn is_namespaces(gvr: &GroupVersionResource) -> bool {
    gvr.group.is_empty() && *gvr.resource == *"namespaces"
}

/// The least time between two looks of a watch at what its user may see.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// How long a watch goes on while roles are not known. They are known again within seconds after an
/// API server has restarted.
const UNKNOWN_MAX: Duration = Duration::from_secs(60);
/// The memory of an entry besides its text: an estimate for moka and the keys.
const ENTRY_BYTES: usize = 256;
/// The memory of what is remembered. A user of a hundred namespaces takes some 6 KB for a
/// collection.
const BYTES_MAX: u64 = 32 << 20;

#[cfg(test)]
mod tests;
