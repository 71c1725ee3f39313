//! The selectable fields of the built-in resources.
//!
//! The protobuf paths are from the API's `generated.proto` files. A field number never changes
//! within a version, but another version may have other ones, so each version is named. A selector
//! by a field whose numbers are missing here is forwarded.

use super::rule::Rule;

/// A row of the table.
pub(super) struct BuiltInFields {
    pub(super) group: &'static str,
    pub(super) resource: &'static str,
    pub(super) namespaced: bool,
    /// The versions that have these field numbers.
    pub(super) versions: &'static [&'static str],
    /// The fields: a label, which is also the path in the served JSON (but see
    /// [`BuiltInFields::path`]), its rule, and its field numbers; without any if they are unknown.
    pub(super) fields: &'static [(&'static str, Rule, &'static [u32])],
}

impl BuiltInFields {
    /// Returns the path in the served JSON to the value of a label.
    pub(super) fn path(label: &str) -> &str {
        if label == "status.successful" { "status.succeeded" } else { label }
    }

    /// Returns older labels, each with the label that replaces it.
    pub(super) fn aliases(&self) -> &'static [(&'static str, &'static str)] {
        if self.resource == "pods" { &[("spec.host", "spec.nodeName")] } else { &[] }
    }

    /// Returns the label over which the API server has an index.
    pub(super) fn indexed(&self) -> Option<&'static str> {
        matches!(self.resource, "pods" | "resourceslices").then_some("spec.nodeName")
    }
}

/// The built-in resources with fields of their own. `Event` is not among them: events are not
/// cached, so a selector by any of their many labels is forwarded.
#[rustfmt::skip]
pub(super) const BUILT_IN: &[BuiltInFields] = &[
    BuiltInFields { group: "", resource: "pods", namespaced: true, versions: &["v1"], fields: &[
        ("spec.nodeName", Rule::Text, &[2, 10]),
        ("spec.restartPolicy", Rule::Text, &[2, 3]),
        ("spec.schedulerName", Rule::Text, &[2, 19]),
        ("spec.serviceAccountName", Rule::Text, &[2, 8]),
        ("spec.hostNetwork", Rule::Bool, &[2, 11]),
        ("status.phase", Rule::Text, &[3, 1]),
        ("status.podIP", Rule::Text, &[3, 6]),
        ("status.podIPs", Rule::Empty, &[]),
        ("status.nominatedNodeName", Rule::Text, &[3, 11]),
    ] },
    BuiltInFields { group: "", resource: "nodes", namespaced: false, versions: &["v1"], fields: &[
        ("spec.unschedulable", Rule::Bool, &[2, 4]),
    ] },
    BuiltInFields { group: "", resource: "namespaces", namespaced: false, versions: &["v1"], fields: &[
        ("status.phase", Rule::Text, &[3, 1]),
    ] },
    BuiltInFields { group: "", resource: "secrets", namespaced: true, versions: &["v1"], fields: &[
        ("type", Rule::Text, &[3]),
    ] },
    BuiltInFields { group: "", resource: "services", namespaced: true, versions: &["v1"], fields: &[
        ("spec.clusterIP", Rule::Text, &[2, 3]),
        ("spec.type", Rule::Text, &[2, 4]),
    ] },
    BuiltInFields { group: "", resource: "replicationcontrollers", namespaced: true, versions: &["v1"], fields: &[
        ("status.replicas", Rule::Number, &[3, 1]),
    ] },
    BuiltInFields { group: "batch", resource: "jobs", namespaced: true, versions: &["v1"], fields: &[
        ("status.successful", Rule::Number, &[3, 5]),
    ] },
    BuiltInFields { group: "certificates.k8s.io", resource: "certificatesigningrequests", namespaced: false, versions: &["v1", "v1beta1"], fields: &[
        ("spec.signerName", Rule::Text, &[2, 7]),
    ] },
    BuiltInFields { group: "certificates.k8s.io", resource: "clustertrustbundles", namespaced: false, versions: &["v1alpha1", "v1beta1"], fields: &[
        ("spec.signerName", Rule::Text, &[2, 1]),
    ] },
    BuiltInFields { group: "certificates.k8s.io", resource: "podcertificaterequests", namespaced: false, versions: &["v1beta1"], fields: &[
        ("spec.signerName", Rule::Text, &[2, 1]),
        ("spec.podName", Rule::Text, &[2, 2]),
        ("spec.nodeName", Rule::Text, &[2, 6]),
    ] },
    BuiltInFields { group: "resource.k8s.io", resource: "resourceslices", namespaced: false, versions: &["v1", "v1beta1", "v1beta2"], fields: &[
        ("spec.nodeName", Rule::Text, &[2, 3]),
        ("spec.driver", Rule::Text, &[2, 1]),
    ] },
];
