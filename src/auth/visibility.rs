//! What a user may see of a collection that the API server does not let the user read as a whole
//! (`docs/decisions/filtered-lists.md`): the objects of the namespaces in which roles allow the
//! user the same; of a cluster-scoped resource, the objects for which roles name them.
//!
//! A client lists at a resourceVersion and watches from there. If permissions changed in between,
//! the watch would lack the objects of a namespace that became visible, and keep those of one that
//! is not visible any more. So what each user was last found to see is remembered, with the oldest
//! resourceVersion from which a watch may begin: one from before has to list again. What is not
//! remembered (after a restart, or of users who were away) counts as changed.
//!
//! Roles only allow. Another authorizer may allow more than they do, and this is not shown. One
//! before RBAC that denies is found by the same checks as for other decisions of roles.

use std::future::pending;
use std::sync::Arc;

use moka::sync::Cache;

use crate::api::resource::GroupVersionResource;
use crate::api::resource_version::ResourceVersion;
use crate::auth::attributes::{Attributes, ResourceAttributes};
use crate::auth::rbac::Rbac;
use crate::auth::rbac::index::Index;
use crate::auth::rbac::rule::Action;
use crate::auth::user::{User, UserKey};
use crate::cache::core::visible::VisibleObjects;

/// What users may see of collections, as far as it was asked for.
#[derive(Debug)]
pub(crate) struct Visibility {
    rbac: Arc<Rbac>,
    last: Cache<UserCollection, Arc<Visible>>,
}

/// A collection, and a user who asks for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct UserCollection {
    user: UserKey,
    gvr: GroupVersionResource,
    /// The name that a field selector requires; mostly empty.
    name: Arc<str>,
}

/// What a user may see of a collection.
#[derive(Clone, Debug)]
pub(crate) struct Visible {
    /// The objects in a list; `None` for all.
    list: Option<Arc<VisibleObjects>>,
    /// The objects in a watch; `None` for all.
    watch: Option<Arc<VisibleObjects>>,
    /// The number of changes of roles and bindings that it includes, or more.
    changes: u64,
    /// The oldest state after which the user was never shown other objects than these.
    pub(crate) oldest: ResourceVersion,
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
            u32::try_from(key.name.len() + visible.weight_bytes()).unwrap_or(u32::MAX)
        };
        Arc::new(Self {
            rbac,
            last: Cache::builder().max_capacity(BYTES_MAX).weigher(weight).build(),
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

    /// Returns what the user may see now; `None` if Weir does not know the roles now. `newest` is
    /// at least the resourceVersion of each list that the user has got; while it is not known,
    /// nothing is remembered, and a watch may begin with the state alone.
    pub(crate) fn visible(&self, newest: Option<ResourceVersion>) -> Option<Arc<Visible>> {
        let Visibility { rbac, last } = &*self.visibility;
        let ResourceAttributes { gvr, name, .. } = &*self.attributes;
        let collection =
            UserCollection { user: self.user.key(), gvr: gvr.clone(), name: Arc::clone(name) };
        // Before the index is read, which may be a newer one then.
        let changes = *rbac.changes().borrow();
        let index = rbac.index()?;
        // After a restore of etcd resourceVersions begin again.
        let is_possible = |before: &Arc<Visible>| {
            newest.is_none_or(|newest| before.oldest.0 <= newest.0.saturating_add(1))
        };
        let before = last.get(&collection).filter(is_possible);
        if let Some(before) = before.as_ref().filter(|before| before.changes == changes) {
            return Some(Arc::clone(before));
        }
        let [list, watch] = ["list", "watch"].map(|verb| self.objects(&index, verb));
        let visible = match (before, newest) {
            (Some(before), _) if before.list == list && before.watch == watch => {
                Visible { changes, ..(*before).clone() }
            }
            (Some(_), Some(newest)) => {
                Visible { list, watch, changes, oldest: ResourceVersion(newest.0 + 1) }
            }
            (None, Some(oldest)) => Visible { list, watch, changes, oldest },
            (_, None) => {
                let oldest = ResourceVersion(u64::MAX);
                return Some(Arc::new(Visible { list, watch, changes, oldest }));
            }
        };
        let visible = Arc::new(visible);
        last.insert(collection, Arc::clone(&visible));
        Some(visible)
    }

    /// Returns when the user may see more or less than `seen`, or when nobody knows any more
    /// because another authorizer comes before RBAC. `newest` is as in [`visible`](Self::visible).
    pub(crate) async fn until_changed(
        self,
        seen: Arc<Visible>,
        newest: impl Fn() -> ResourceVersion,
    ) {
        let rbac = &self.visibility.rbac;
        let mut changes = rbac.changes();
        loop {
            changes.mark_unchanged();
            let is_same = |now: Arc<Visible>| now.list == seen.list && now.watch == seen.watch;
            if rbac.is_disabled() || !self.visible(Some(newest())).is_none_or(is_same) {
                return;
            }
            if changes.changed().await.is_err() {
                return pending().await;
            }
        }
    }

    /// Returns the attributes of a request for one of the namespaces that the user may see, to be
    /// compared with the API server's decision.
    pub(crate) fn sample(&self, visible: &Visible) -> Option<Attributes> {
        let objects = self.seen(visible).as_ref()?;
        let part = objects.parts().nth(fastrand::usize(..objects.parts().len().max(1)))?;
        let namespace = part.strip_suffix('/')?;
        let attributes =
            ResourceAttributes { namespace: namespace.into(), ..(*self.attributes).clone() };
        Some(Attributes::Resource(Arc::new(attributes)))
    }

    /// Returns the objects that the request may show; `None` for all.
    pub(crate) fn seen<'a>(&self, visible: &'a Visible) -> &'a Option<Arc<VisibleObjects>> {
        if self.attributes.verb == "watch" { &visible.watch } else { &visible.list }
    }

    /// Returns the user, and what the user asks for.
    pub(crate) fn user(&self) -> &Arc<User> {
        &self.user
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
        if self.is_namespaced {
            let namespaces =
                index.namespaces_allowing(&self.user, |namespace| action(verb, namespace, name));
            return Some(Arc::new(VisibleObjects::in_namespaces(namespaces)));
        }
        let is_of_namespaces = gvr.group.is_empty() && *gvr.resource == *"namespaces";
        let mut names = index.names_allowing(&self.user, &action(verb, "", ""))?;
        match index.names_allowing(&self.user, &action("get", "", "")) {
            Some(readable) => names.extend(readable),
            None if is_of_namespaces => return None,
            // Who may read any object, but not list them, must know their names.
            None => {}
        }
        if is_of_namespaces {
            let get = |namespace| action("get", namespace, namespace);
            names.extend(index.namespaces_allowing(&self.user, get));
        }
        Some(Arc::new(VisibleObjects::with_names(names)))
    }
}

impl Visible {
    fn weight_bytes(&self) -> usize {
        let objects = [&self.list, &self.watch].into_iter().flatten();
        size_of::<Self>() + objects.map(|objects| objects.weight_bytes()).sum::<usize>()
    }
}

/// The memory of what is remembered. A user of a hundred namespaces takes some 6 KB for a
/// collection.
const BYTES_MAX: u64 = 32 << 20;
