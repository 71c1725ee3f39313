//! The collections to read. The objects are in `objects`.

use super::selectors::{Fields, bad, good, one};

/// A collection, by its path.
#[derive(Debug)]
pub(crate) struct Collection {
    pub(crate) path: &'static str,
    /// Its resource in `marks`; versions of one resource share it.
    pub(crate) resource: &'static str,
    /// Whether a CustomResourceDefinition declares it: its JSON differs, and it has no protobuf.
    pub(crate) custom: bool,
    /// Whether an upstream may lack it in protobuf: the simulator has no field table of
    /// definitions.
    pub(crate) json_only: bool,
    /// Whether all of its objects are in one namespace or in none, so that a name identifies one
    /// object.
    pub(crate) one_scope: bool,
    /// Whether the upstream has a watch cache of it (docs/semantics.md §3.9), and so has Weir.
    pub(crate) cached: bool,
    /// Whether it is written to after the caches have begun, so that they have a history.
    pub(crate) touched: bool,
    pub(crate) names: &'static [&'static str],
    /// Field selectors of its kind, besides those of every kind.
    pub(crate) fields: &'static [Fields],
}

impl Collection {
    /// The first part of the path.
    pub(crate) fn group_version(&self) -> &'static str {
        let parts = if self.path.starts_with("/apis/") { 4 } else { 3 };
        let end = self
            .path
            .match_indices('/')
            .nth(parts - 1)
            .map_or(self.path.len(), |separator| separator.0);
        self.path.get(..end).unwrap_or_default()
    }
}

const fn built_in(path: &'static str, resource: &'static str) -> Collection {
    Collection {
        path,
        resource,
        custom: false,
        json_only: false,
        one_scope: false,
        cached: true,
        touched: true,
        names: &[],
        fields: &[],
    }
}

const fn custom(path: &'static str, resource: &'static str) -> Collection {
    Collection { custom: true, ..built_in(path, resource) }
}

impl Collection {
    /// In one namespace, or without any; with some names, existing and not.
    const fn scoped(self, names: &'static [&'static str]) -> Self {
        Self { one_scope: true, names, ..self }
    }

    const fn fields(self, fields: &'static [Fields]) -> Self {
        Self { fields, ..self }
    }

    const fn untouched(self) -> Self {
        Self { touched: false, ..self }
    }
}

/// All collections. `a-b` sorts before `a` (docs/semantics.md §3.1); `none` has no object, and its
/// namespace does not exist.
pub(crate) static COLLECTIONS: [Collection; 35] = [
    built_in("/api/v1/configmaps", "configmaps").fields(&[good("metadata.namespace%3Da")]),
    built_in("/api/v1/namespaces/a/configmaps", "configmaps")
        .scoped(&["x", "x.y", "nope", "x%2Ey", "UPPER", "a%25b"])
        .fields(&[good("metadata.namespace%3Db"), bad("data%3Dx")]),
    built_in("/api/v1/namespaces/a-b/configmaps", "configmaps").scoped(&["x"]),
    built_in("/api/v1/namespaces/long/configmaps", "configmaps").scoped(&["long"]),
    built_in("/api/v1/namespaces/short/configmaps", "configmaps").scoped(&["long"]),
    built_in("/api/v1/namespaces/none/configmaps", "configmaps").scoped(&["x"]),
    built_in("/api/v1/pods", "pods").fields(PODS),
    built_in("/api/v1/namespaces/a/pods", "pods").scoped(&["x", "z", "nope"]).fields(PODS),
    built_in("/api/v1/nodes", "nodes").scoped(&["n1", "nope"]).fields(&[
        good("spec.unschedulable%3Dfalse"),
        good("spec.unschedulable%3Dtrue"),
        bad("metadata.namespace%3D"),
    ]),
    built_in("/api/v1/namespaces", "namespaces")
        .scoped(&["a", "a-b", "nope", "kube-system"])
        .fields(&[
            good("status.phase%3DActive"),
            good("status.phase!%3DActive"),
            bad("metadata.namespace%3Da"),
        ]),
    built_in("/api/v1/services", "services")
        .fields(&[good("spec.type%3DClusterIP"), good("spec.clusterIP!%3DNone")]),
    built_in("/api/v1/namespaces/a/services", "services").scoped(&["s"]),
    built_in("/api/v1/secrets", "secrets").fields(&[good("type%3DOpaque")]),
    built_in("/api/v1/namespaces/a/secrets", "secrets")
        .scoped(&["s", "nope"])
        .fields(&[good("type!%3DOpaque"), one("type%3DOpaque,metadata.name%3Ds")]),
    built_in("/api/v1/endpoints", "endpoints"),
    built_in("/api/v1/namespaces/a/endpoints", "endpoints").scoped(&["e", "nope"]),
    built_in("/apis/coordination.k8s.io/v1/namespaces/a/leases", "leases").scoped(&["l"]),
    built_in("/apis/apps/v1/deployments", "deployments"),
    built_in("/apis/apps/v1/namespaces/a/deployments", "deployments").scoped(&["d", "nope"]),
    built_in("/api/v1/limitranges", "limitranges").untouched(),
    built_in("/api/v1/namespaces/a/limitranges", "limitranges").scoped(&["x"]).untouched(),
    built_in("/api/v1/persistentvolumes", "persistentvolumes")
        .scoped(&["nope"])
        .untouched()
        .fields(&[good("metadata.namespace%3Da"), good("metadata.namespace%3D")]),
    Collection {
        json_only: true,
        ..built_in(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            "customresourcedefinitions",
        )
        .scoped(&["widgets.example.com", "nope"])
        .untouched()
    },
    built_in("/apis/rbac.authorization.k8s.io/v1/clusterroles", "clusterroles")
        .scoped(&["system:node", "admin", "nope"])
        .untouched(),
    Collection {
        cached: false,
        ..built_in("/api/v1/namespaces/a/events", "events").scoped(&["nope"]).untouched()
    },
    Collection { cached: false, ..built_in("/apis/events.k8s.io/v1/events", "events").untouched() },
    custom("/apis/example.com/v1/widgets", "widgets").fields(&[
        good("spec.color%3Dgrey"),
        good("spec.n%3D9007199254740993"),
        bad("spec.x%3Dy"),
    ]),
    custom("/apis/example.com/v1/namespaces/a/widgets", "widgets")
        .scoped(&["x", "x-y", "nope"])
        .fields(&[good("spec.color!%3Dgrey"), one("spec.color%3Dgrey,metadata.name%3Dx")]),
    custom("/apis/example.com/v1/namespaces/none/widgets", "widgets").scoped(&["x"]),
    custom("/apis/example.com/v1beta1/widgets", "widgets"),
    custom("/apis/example.com/v1beta1/namespaces/a/widgets", "widgets")
        .scoped(&["x", "nope"])
        .fields(&[bad("spec.color%3Dgrey")]),
    custom("/apis/example.com/v1/gadgets", "gadgets").scoped(&["g", "nope"]).fields(&[
        good("spec.color%3Dred"),
        bad("metadata.namespace%3D"),
        one("metadata.name%3Dg"),
    ]),
    custom("/apis/example.com/v1/namespaces/a-b/widgets", "widgets").scoped(&["x"]),
    custom("/apis/example.com/v1/trinkets", "trinkets").untouched(),
    custom("/apis/example.com/v1/namespaces/a/trinkets", "trinkets").scoped(&["x"]).untouched(),
];

/// Returns the collection of a path.
pub(crate) fn at(path: &str) -> &'static Collection {
    COLLECTIONS.iter().find(|collection| collection.path == path).expect("it is in the table")
}

const PODS: &[Fields] = &[
    good("spec.nodeName%3Dn1"),
    good("spec.nodeName%3D"),
    good("status.phase%3DPending"),
    good("status.phase!%3DRunning,spec.nodeName%3Dn1"),
    good("spec.host!%3Dn1"),
    good("spec.hostNetwork%3Dfalse"),
    good("spec.restartPolicy%3DAlways"),
    good("spec.schedulerName%3Ddefault-scheduler"),
    good("spec.serviceAccountName%3D"),
    good("status.podIP%3D"),
    good("status.podIPs%3D"),
    good("status.nominatedNodeName%3D"),
    bad("spec.containers%3Dx"),
];
