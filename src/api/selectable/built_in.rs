//! The selectable fields of the built-in resources.

use super::rule::Rule;

/// The built-in resources with fields of their own. `Event` is not among them: events are not
/// cached, so a selector by any of their many labels is forwarded.
pub(super) const BUILT_IN: &[BuiltInFields] = &[
    BuiltInFields {
        aliases: &[("spec.host", "spec.nodeName")],
        ..namespaced(
            "",
            "pods",
            &[
                ("spec.nodeName", "spec.nodeName", Rule::Text),
                ("spec.restartPolicy", "spec.restartPolicy", Rule::Text),
                ("spec.schedulerName", "spec.schedulerName", Rule::Text),
                ("spec.serviceAccountName", "spec.serviceAccountName", Rule::Text),
                ("spec.hostNetwork", "spec.hostNetwork", Rule::Bool),
                ("status.phase", "status.phase", Rule::Text),
                ("status.podIP", "status.podIP", Rule::Text),
                ("status.podIPs", "status.podIPs", Rule::Empty),
                ("status.nominatedNodeName", "status.nominatedNodeName", Rule::Text),
            ],
        )
    },
    cluster_scoped("", "nodes", &[("spec.unschedulable", "spec.unschedulable", Rule::Bool)]),
    cluster_scoped("", "namespaces", &[("status.phase", "status.phase", Rule::Text)]),
    namespaced("", "secrets", &[("type", "type", Rule::Text)]),
    namespaced(
        "",
        "services",
        &[("spec.clusterIP", "spec.clusterIP", Rule::Text), ("spec.type", "spec.type", Rule::Text)],
    ),
    namespaced(
        "",
        "replicationcontrollers",
        &[("status.replicas", "status.replicas", Rule::Number)],
    ),
    namespaced("batch", "jobs", &[("status.successful", "status.succeeded", Rule::Number)]),
    cluster_scoped(
        "certificates.k8s.io",
        "certificatesigningrequests",
        &[("spec.signerName", "spec.signerName", Rule::Text)],
    ),
    cluster_scoped(
        "certificates.k8s.io",
        "clustertrustbundles",
        &[("spec.signerName", "spec.signerName", Rule::Text)],
    ),
    cluster_scoped(
        "certificates.k8s.io",
        "podcertificaterequests",
        &[
            ("spec.signerName", "spec.signerName", Rule::Text),
            ("spec.podName", "spec.podName", Rule::Text),
            ("spec.nodeName", "spec.nodeName", Rule::Text),
        ],
    ),
    cluster_scoped(
        "resource.k8s.io",
        "resourceslices",
        &[
            ("spec.nodeName", "spec.nodeName", Rule::Text),
            ("spec.driver", "spec.driver", Rule::Text),
        ],
    ),
];

/// The indexes of the API server: group, resource and label.
pub(super) const INDEXED: [(&str, &str, &str); 2] =
    [("", "pods", "spec.nodeName"), ("resource.k8s.io", "resourceslices", "spec.nodeName")];

/// A row of the table. `fields` has a label, its path in the served JSON, and its rule.
pub(super) struct BuiltInFields {
    pub(super) group: &'static str,
    pub(super) resource: &'static str,
    pub(super) namespaced: bool,
    pub(super) fields: &'static [(&'static str, &'static str, Rule)],
    pub(super) aliases: &'static [(&'static str, &'static str)],
}

const fn namespaced(
    group: &'static str,
    resource: &'static str,
    fields: &'static [(&'static str, &'static str, Rule)],
) -> BuiltInFields {
    BuiltInFields { group, resource, namespaced: true, fields, aliases: &[] }
}

const fn cluster_scoped(
    group: &'static str,
    resource: &'static str,
    fields: &'static [(&'static str, &'static str, Rule)],
) -> BuiltInFields {
    BuiltInFields { group, resource, namespaced: false, fields, aliases: &[] }
}
