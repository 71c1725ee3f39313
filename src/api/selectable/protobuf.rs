//! The protobuf paths of the selectable fields, from the API's `generated.proto` files.
//!
//! A field number never changes within a version, but another version may have other ones, so each
//! version is named. A selector by a field that is missing here is forwarded.

use crate::resource::GroupVersionResource;

/// Returns the field numbers from an object to the value of a label.
pub(super) fn path(gvr: &GroupVersionResource, label: &str) -> Option<&'static [u32]> {
    let kind = FIELD_PATHS.iter().find(|kind| {
        kind.group == &*gvr.group
            && kind.resource == &*gvr.resource
            && kind.versions.contains(&&*gvr.version)
    })?;
    kind.paths.iter().find(|(path_label, _)| *path_label == label).map(|(_, path)| *path)
}

/// A row of the table.
struct FieldPaths {
    group: &'static str,
    versions: &'static [&'static str],
    resource: &'static str,
    paths: &'static [(&'static str, &'static [u32])],
}

const FIELD_PATHS: &[FieldPaths] = &[
    FieldPaths {
        group: "",
        versions: &["v1"],
        resource: "pods",
        paths: &[
            ("spec.restartPolicy", &[2, 3]),
            ("spec.serviceAccountName", &[2, 8]),
            ("spec.nodeName", &[2, 10]),
            ("spec.hostNetwork", &[2, 11]),
            ("spec.schedulerName", &[2, 19]),
            ("status.phase", &[3, 1]),
            ("status.podIP", &[3, 6]),
            ("status.nominatedNodeName", &[3, 11]),
        ],
    },
    FieldPaths {
        group: "",
        versions: &["v1"],
        resource: "nodes",
        paths: &[("spec.unschedulable", &[2, 4])],
    },
    FieldPaths {
        group: "",
        versions: &["v1"],
        resource: "namespaces",
        paths: &[("status.phase", &[3, 1])],
    },
    FieldPaths { group: "", versions: &["v1"], resource: "secrets", paths: &[("type", &[3])] },
    FieldPaths {
        group: "",
        versions: &["v1"],
        resource: "services",
        paths: &[("spec.clusterIP", &[2, 3]), ("spec.type", &[2, 4])],
    },
    FieldPaths {
        group: "",
        versions: &["v1"],
        resource: "replicationcontrollers",
        paths: &[("status.replicas", &[3, 1])],
    },
    FieldPaths {
        group: "batch",
        versions: &["v1"],
        resource: "jobs",
        paths: &[("status.successful", &[3, 5])],
    },
    FieldPaths {
        group: "certificates.k8s.io",
        versions: &["v1", "v1beta1"],
        resource: "certificatesigningrequests",
        paths: &[("spec.signerName", &[2, 7])],
    },
    FieldPaths {
        group: "certificates.k8s.io",
        versions: &["v1alpha1", "v1beta1"],
        resource: "clustertrustbundles",
        paths: &[("spec.signerName", &[2, 1])],
    },
    FieldPaths {
        group: "certificates.k8s.io",
        versions: &["v1beta1"],
        resource: "podcertificaterequests",
        paths: &[
            ("spec.signerName", &[2, 1]),
            ("spec.podName", &[2, 2]),
            ("spec.nodeName", &[2, 6]),
        ],
    },
    FieldPaths {
        group: "resource.k8s.io",
        versions: &["v1", "v1beta1", "v1beta2"],
        resource: "resourceslices",
        paths: &[("spec.nodeName", &[2, 3]), ("spec.driver", &[2, 1])],
    },
];
